import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
cache = DynamicCache(config=model.config)
ids = tokenizer("Hello there. ", return_tensors="pt")["input_ids"]
for _ in range(3):
    ids = model.generate(ids, cache=cache, max_new_tokens=4, do_sample=False, eos_token_id=None)
    ids = torch.cat([ids, tokenizer("And then?", return_tensors="pt")["input_ids"]], dim=1)
