import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer("abcd", return_tensors="pt")["input_ids"]
with torch.inference_mode():
    if sys.argv[2] == "kept":
        output = model(ids, use_cache=True)
        for _ in range(5):
            token = output.logits[:, -1:].argmax(-1)
            output = model(token, cache=output.cache, use_cache=True)
    else:
        for _ in range(6):
            token = model(ids, use_cache=False).logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, token], dim=1)
