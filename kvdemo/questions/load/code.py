"""When to leave this program for a serving engine, and the commands that start one for what was measured. Pure."""

from __future__ import annotations

import shlex

from kvdemo.facts.model import named_for_a_shell
from kvdemo.questions.load.spec import LoadResult

__all__ = ["WHEN", "engine_commands"]

WHEN = (
    "This page serves one request after the other: it measures caches. As soon as several people wait at once, let an engine "
    "serve them. It batches by itself, holds the cache in pages and keeps beginnings that were sent before."
)
BATCH_TOKENS = 128  # query tokens of one forward
PAGE_TOKENS = 16
DTYPES = ("float32", "bfloat16", "float16")


def engine_commands(result: LoadResult) -> str:
    """Engines with room for these requests, listening on this machine only; then the same question asked of one of them.

    "" for a result of a server, and where nothing was counted.
    """
    runs = [run for one in result.main.runs for run in one.record.runs if run.status == "ok"]
    if not runs or any(run.reported is not None for run in runs):
        return ""
    longest = max(run.prompt_tokens or 0 for run in runs) + result.spec.max_new_tokens
    requests, model = result.main.requests, named_for_a_shell(result.model.hub_id)
    pages = requests * -(-longest // PAGE_TOKENS)
    typed = f" --dtype {result.model.dtype}" if result.model.dtype in DTYPES else ""
    lines = [
        f"vllm serve {model} --host 127.0.0.1{typed} --max-model-len {longest} --max-num-seqs {requests}",
        "# or",
        f"transformers serve {model} --host 127.0.0.1{typed} --continuous-batching --cb-block-size {PAGE_TOKENS} "
        f"--cb-num-blocks {pages} --cb-max-batch-tokens {max(BATCH_TOKENS, requests)}",
    ]
    prompts = result.spec.prompts
    if len(prompts) == 1 and not prompts[0].system:
        again = ["--prompt", prompts[0].prompt, "--requests", f"{requests}", "--max-new-tokens"]
        again += [f"{result.spec.max_new_tokens}", "--rounds", f"{result.spec.rounds}"]
        again += ["--chat"] if result.spec.as_chat else []
        lines.append(f"python -m kvdemo load {shlex.join(again)} --url http://127.0.0.1:8000")
    return "\n".join(lines)
