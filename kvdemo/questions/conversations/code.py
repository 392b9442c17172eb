"""The few lines that compare two turns by token ids, for whoever wants to do it without kvdemo. A test runs them."""

__all__ = ["CONVERSATIONS_CODE"]

CONVERSATIONS_CODE = """\
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(name)


def ids_of(messages):
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]


# One turn, its answer as text, and the next request
prompt = ids_of(messages)
answer = tokenizer(messages_after[len(messages)]["content"], add_special_tokens=False)["input_ids"]
held = prompt + answer  # the end token is the one that a cache does not hold
after = ids_of(messages_after)
shared = next((at for at, pair in enumerate(zip(held, after)) if pair[0] != pair[1]), min(len(held), len(after)))
for page_size in (1, 16, 128, 256):
    print(page_size, min(shared, len(after) - 1) // page_size * page_size, "of", len(after))
if shared < len(held):
    print("held", repr(tokenizer.decode(held[shared : shared + 8])))
    print("now", repr(tokenizer.decode(after[shared : shared + 8])))
"""
