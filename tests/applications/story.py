import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, prompt, new_tokens = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(folder)
inputs = tokenizer(prompt, return_tensors="pt")
with torch.inference_mode():
    model(**inputs, use_cache=False)  # the first forward of a process is slower than all others
output = model.generate(**inputs, max_new_tokens=int(new_tokens), do_sample=False, eos_token_id=None)
print(tokenizer.decode(output[0]))
