"""Keep this, and Go back: what to write for the chosen arm and for what was in force before, each ready to copy."""

from __future__ import annotations

from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.prefix_reuse import PREFIX_CODE
from kvdemo.experiments.question_documents import AnyResult
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.questions import GrowthResult, PrefixResult
from kvdemo.facts.results import ComparisonResult
from kvdemo.ui.compare_force import decision_for
from kvdemo.ui.markup import text

__all__ = ["arms", "change_card", "change_of", "fastest", "main_comparison"]


def main_comparison(result: AnyResult) -> ComparisonResult | None:
    """The one comparison that stands for a result: itself, the longest request that was measured; None for a prefix."""
    if isinstance(result, ComparisonResult):
        return result
    if isinstance(result, PrefixResult):
        return None
    parts = [part.result for part in (result.points if isinstance(result, GrowthResult) else result.prompts)]
    return max(parts, key=_size, default=None)


def _size(part: ComparisonResult) -> tuple[int, int]:
    return max(((run.prompt_tokens + run.new_tokens, run.new_tokens) for run in part.runs), default=(0, 0))


def arms(result: AnyResult) -> list[tuple[str, str]]:
    """(label, key) of the arms among which to choose."""
    one = main_comparison(result)
    return [] if one is None else [(one.row(key).label, key) for key in one.spec.strategies]


def fastest(result: AnyResult) -> str | None:
    """The arm with the largest gain over the baseline; the baseline where none gained."""
    one = main_comparison(result)
    if one is None:
        return None
    known = [(item.ratio, item.candidate) for item in one.comparisons if item.metric == "generation_s" and item.ratio]
    ratio, key = max(known, default=(0.0, ""))
    return key if ratio > 1 else one.spec.strategies[0]


def change_of(result: AnyResult, chosen: Any, decision: CacheDecision | None) -> Any:
    """From what is in force to the chosen arm and back; None where there is nothing to choose, or an arm that this
    version does not know (a result can come from a file)."""
    from kvdemo.reports.calls import keep_or_go_back

    one = main_comparison(result)
    if one is None or chosen not in one.spec.strategies:
        return None
    try:
        return keep_or_go_back(one, chosen, decision)
    except InvalidRequest:
        return None


def change_card(backend: Any, result: AnyResult, chosen: Any) -> str:
    """The calls, the file, and the difference of the two calls; for a shared prefix the few lines that keep it."""
    if isinstance(result, PrefixResult):
        return f'<div><h3 class="kv-card-title">The lines that do it</h3>{code_block(PREFIX_CODE)}</div>'
    decision = decision_for(backend, result.model)
    change = change_of(result, chosen, decision)
    if change is None:
        return ""
    label = {key: name for name, key in arms(result)}[chosen]
    return (
        '<div class="kv-change">'
        f'<div><h3 class="kv-card-title">Keep this: {text(label)}</h3>{code_block(change.keep_call)}'
        '<p class="kv-small">Where the call cannot be changed, the same in generation_config.json:</p>'
        f"{code_block(change.keep_file_text)}</div>"
        f'<div><h3 class="kv-card-title">Go back: what was in force before</h3>{code_block(change.back_call)}'
        f"{_file_before(change, decision)}</div>"
        f'<div><h3 class="kv-card-title">The difference of the two calls</h3>{code_block(change.diff or "none")}</div></div>'
    )


def _file_before(change: Any, decision: CacheDecision | None) -> str:
    if decision is None:
        words = "What was in force for this model is not known here: this is the call with nothing set."
        return f'<p class="kv-small">{words}</p>'
    before = change.back_file_text
    if before.startswith("{"):
        return f'<p class="kv-small">and generation_config.json as it was:</p>{code_block(before)}'
    return f'<p class="kv-small">{text(before)}</p>'


def code_block(code: str) -> str:
    """Code word for word with a button that copies it."""
    return (
        f'<div class="kv-code"><pre class="kv-text" tabindex="0">{text(code)}</pre></div>'
        '<div class="kv-tools kv-tools-right"><button type="button" class="kv-act kv-act-copy">Copy</button></div>'
    )
