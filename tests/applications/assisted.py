import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
helper = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
inputs = tokenizer("The quick brown fox", return_tensors="pt")
model.generate(**inputs, assistant_model=helper, max_new_tokens=8, do_sample=False, eos_token_id=None)
