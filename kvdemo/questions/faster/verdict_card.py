"""Beside the charts: are the tokens the same, and what lies beside the clock? A fragment of the page."""

from __future__ import annotations

from kvdemo.charts.arms import key_classes
from kvdemo.components.markup import table, text
from kvdemo.experiments.comparison import Comparison, ComparisonResult
from kvdemo.experiments.summary import arms
from kvdemo.facts.units import format_bytes, format_count, format_seconds

__all__ = ["verdict_card"]


def verdict_card(result: ComparisonResult) -> str:
    """Are the tokens the same? For each arm beside the first; where they differ, the texts around the first difference."""
    found = [item for item in result.comparisons if item.metric == "generation_s"]
    parts = "".join(_verdict(result, item) for item in found if item.rounds)
    if not parts:
        return ""
    return (
        f'<div class="kv-card kv-verdict"><h2 class="kv-card-title">Are the tokens the same?</h2>{parts}'
        f'<h2 class="kv-card-title">What lies beside the clock?</h2>{_beside_the_clock(result)}</div>'
    )


def _verdict(result: ComparisonResult, item: Comparison) -> str:
    verdict = item.verdict
    one, other = result.row(item.baseline).label, result.row(item.candidate).label
    if verdict.same_output is None:
        return f"<p>{text(one)} and {text(other)}: not known, their tokens were not named.</p>"
    if verdict.same_output:
        counted = result.counted(item.candidate)
        many = format_count(counted[-1].new_tokens) if counted else "0"
        return f"<p><strong>{text(one)} and {text(other)}: the same {many} tokens</strong> in every round.</p>"
    first = format_count((verdict.first_difference or 0) + 1)
    words = [f"<strong>{text(one)} and {text(other)}: they differ from token {first} on.</strong>"]
    if verdict.largest_gap is not None:
        words.append(f"Up to there their logits are at most {verdict.largest_gap:.2g} apart.")
    if verdict.expected_equal:
        words.append('<span class="kv-failed">In greedy float32 this is a fault.</span>')
    else:
        words.append("This is no test of quality.")
    around = ""
    if verdict.baseline_text or verdict.candidate_text:
        pairs = ((item.baseline, verdict.baseline_text), (item.candidate, verdict.candidate_text))
        around = "".join(
            f'<p class="kv-around"><span class="kv-key {text(key_classes(key))}"></span>… {text(words_around)} …</p>'
            for key, words_around in pairs
        )
    return f"<p>{' '.join(words)}</p>{around}"


def _beside_the_clock(result: ComparisonResult) -> str:
    """Medians of what is timed apart, one row per arm: queue, preparing, warm-up, compiling, peak memory."""
    summaries = arms(result)
    compiled = any(arm.compile_s is not None for arm in summaries)
    head = ["Strategy", "Queue wait", "Preparing", "Warm-up", *(["Compiling, once"] if compiled else []), "Peak memory"]
    rows = []
    for arm in summaries:
        peak = f"{format_bytes(arm.peak_bytes.median)}, {arm.peak_kind}" if arm.peak_bytes else format_bytes(None)
        times = [arm.queue_s.median if arm.queue_s else None, arm.prepare_s.median if arm.prepare_s else None]
        times += [arm.warmup_s, *([arm.compile_s] if compiled else [])]
        rows.append([text(arm.label), *(format_seconds(value) for value in times), text(peak)])
    return table(head, rows, caption="Times apart from the generation: medians; and the peak of memory")
