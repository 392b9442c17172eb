from transformers import AutoModelForCausalLM, AutoTokenizer


def answer(folder: str, text: str) -> int:
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(text, return_tensors="pt")
    return int(model.generate(**inputs, max_new_tokens=4, do_sample=False, eos_token_id=None).shape[1])
