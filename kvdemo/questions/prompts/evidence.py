"""What a set of prompts says to "Ready to decide?": does the gain hold on somebody's own prompts and lengths?"""

from __future__ import annotations

from collections.abc import Sequence

from kvdemo.experiments.evidence import Evidence
from kvdemo.experiments.gain import beside_no_cache
from kvdemo.experiments.prompt_file import representative
from kvdemo.facts.units import format_count
from kvdemo.facts.workload import Workload
from kvdemo.questions.prompts.spec import PromptSetResult

__all__ = ["evidence"]


def evidence(result: PromptSetResult, workload: Workload) -> Sequence[Evidence]:
    """Row 5; nothing where no cache ran beside none. The shipped set is nobody's own."""
    found = beside_no_cache(result.comparisons, {row.key: row for row in result.strategies})
    if found is None:
        return ()
    gain, item = found
    if result.spec.prompts == representative():
        return (Evidence(5, "not yet", "The shipped prompts were measured: bring your own.", _many(item.prompts)),)
    if gain.low is None:
        return (Evidence(5, "not yet", f"One prompt was measured: {gain.words()}. Bring more.", _many(item.prompts)),)
    words = f"{gain.words()} on {_many(item.prompts)} of {_lengths(result)}."
    return (Evidence(5, "yes" if gain.low > 1 else "no", words, _many(item.prompts)),)


def _many(prompts: int) -> str:
    return "one prompt" if prompts == 1 else f"{format_count(prompts)} prompts"


def _lengths(result: PromptSetResult) -> str:
    """ "12 to 340 tokens"."""
    sizes = sorted(run.prompt_tokens or 0 for item in result.prompts for run in item.result.runs if run.counts)
    if not sizes or sizes[0] == sizes[-1]:
        return f"{format_count(sizes[0] if sizes else None)} tokens"
    return f"{format_count(sizes[0])} to {format_count(sizes[-1])} tokens"
