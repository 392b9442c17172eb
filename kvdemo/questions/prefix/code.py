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


# Tokens that every prompt begins with; a tokenizer may merge the last of them with how a question begins
prompts = [ids_of(question)["input_ids"][0].tolist() for question in ("a", "b", *questions)]
shared = next(index for index, tokens in enumerate(zip(*prompts)) if len(set(tokens)) > 1)
kept = DynamicCache(config=model.config)
with torch.inference_mode():
    model(input_ids=torch.tensor([prompts[0][:shared]]), cache=kept)  # once

for question in questions:
    inputs = ids_of(question)
    # generate appends to the cache it is given: every question needs a copy
    output = model.generate(**inputs, cache=copy.deepcopy(kept), max_new_tokens=max_new_tokens, do_sample=False)
    print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
"""
