import sys
import threading

from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])


def answer(text: str) -> None:
    inputs = tokenizer(text, return_tensors="pt")
    model.generate(**inputs, max_new_tokens=5, do_sample=False, eos_token_id=None)


workers = [threading.Thread(target=answer, args=(text,)) for text in ("abc", "abcdef")]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
