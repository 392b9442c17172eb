"""The message to whoever runs the engine: what only they can say."""

from __future__ import annotations

from kvdemo.questions.endpoint.spec import SUBJECTS, EndpointResult, Subject
from kvdemo.questions.endpoint.timings import judgements, ratio_words

__all__ = ["message"]

MEANT: dict[Subject, str] = {
    "kv_cache": "a longer text makes each further token longer by {} of what computing it again would",
    "prefix_reuse": "after a beginning that was sent before the first token comes {} times as fast",
    "batching": "several at once get {} times the tokens a second of one",
}
QUESTIONS = (
    "Which engine and version serves it (vLLM, SGLang, TGI, llama.cpp, transformers serve, another), started with which flags?",
    "Is the KV cache on? Which flag or setting says so (use_cache in config.json and generation_config.json)?",
    "Is prefix caching on, with which flags and tokens per page? Is it shared between replicas?",
    "Which dtype does the cache have, and how many tokens does it hold? (vLLM prints both at its start.)",
    "What are the limits: longest prompt and answer, most requests at once, requests and tokens a minute?",
    "Under your usual load, what are p50 and p95 of the time to the first token and of the time per token after it, and the "
    "share of prompt tokens that prefix caching saves?",
)


def message(result: EndpointResult) -> str:
    """Plain text to copy; it names the model as the server does, and neither address nor key."""
    found = "\n".join(
        f"- {SUBJECTS[subject]}: {judged.verdict}" + (f": {MEANT[subject].format(ratio)}" if ratio else "")
        for subject, judged in judgements(result).items()
        for ratio in [ratio_words(subject, judged)]
    )
    asked = "\n".join(f"{number}. {question}" for number, question in enumerate(QUESTIONS, 1))
    return (
        f"Hello, we use the model {result.model.name} that you run. Timed from outside, with {result.requests_sent:,} "
        f"requests, it looks like this:\n{found}\n\nCould you tell us:\n{asked}\n"
    )
