import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], padding_side="left")
inputs = tokenizer(["one two", "three four five", "six"], return_tensors="pt", padding=True)
model.generate(**inputs, max_new_tokens=5, do_sample=False, eos_token_id=None)
model.generate(**inputs, max_new_tokens=5, do_sample=False, eos_token_id=None, num_beams=2)
