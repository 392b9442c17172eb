"""The few lines that keep a shared prefix, for whoever wants to do it without kvdemo. A test runs them."""

__all__ = ["PREFIX_CODE"]

PREFIX_CODE = """\
import copy

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name).eval()


def ids_of(question):
    messages = [{"role": "system", "content": system_prompt}, {"role": "user", "content": question}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)


first, second = (ids_of(question)["input_ids"][0].tolist() for question in ("a", "b"))
shared = next(index for index, (a, b) in enumerate(zip(first, second)) if a != b)  # tokens every question begins with
kept = DynamicCache(config=model.config)
with torch.inference_mode():
    model(input_ids=torch.tensor([first[:shared]]), cache=kept)  # once

for question in questions:
    inputs = ids_of(question)
    if inputs["input_ids"][0, :shared].tolist() != first[:shared]:
        raise ValueError("the prompt does not begin with the kept tokens")
    # generate appends to the cache it is given: every question needs a copy
    output = model.generate(**inputs, cache=copy.deepcopy(kept), max_new_tokens=max_new_tokens, do_sample=False)
    print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
"""
