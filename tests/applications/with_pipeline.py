import sys

from transformers import pipeline

answer = pipeline("text-generation", model=sys.argv[1])
answer("The quick brown fox", max_new_tokens=6, do_sample=False)
