import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model.generate(**tokenizer("abc", return_tensors="pt"), max_new_tokens=3, do_sample=False, eos_token_id=None)
raise LookupError("as it always did")
