"""Beside the charts: are the tokens the same, and what is not in the times? A fragment of the page."""

from __future__ import annotations

from markupsafe import Markup

from kvdemo.charts.arms import key_classes
from kvdemo.components.markup import table, text
from kvdemo.components.terms import term
from kvdemo.experiments.comparison import Comparison, ComparisonResult
from kvdemo.experiments.summary import arms
from kvdemo.facts.units import format_bytes, format_count, format_seconds

__all__ = ["verdict_card"]


def verdict_card(result: ComparisonResult) -> str:
    """Are the tokens the same? For each arm beside the first; where they differ, the texts around the first difference."""
    found = [item for item in result.comparisons if item.metric == "generation_s"]
    parts = Markup("").join(_verdict(result, item) for item in found if item.rounds)
    if not parts:
        return ""
    return Markup(
        '<div class="kv-card kv-verdict"><h2 class="kv-card-title">Are the tokens the same?</h2>'
        '{}<h2 class="kv-card-title">What is not in these times?</h2>{}</div>'
    ).format(parts, _beside_the_clock(result))


def _verdict(result: ComparisonResult, item: Comparison) -> str:
    verdict = item.verdict
    one, other = result.row(item.baseline).label, result.row(item.candidate).label
    if verdict.same_output is None:
        return Markup("<p>{} and {}: not known, their tokens were not named.</p>").format(text(one), text(other))
    if verdict.same_output:
        counted = result.counted(item.candidate)
        many = format_count(counted[-1].new_tokens) if counted else "0"
        return Markup("<p><strong>{} and {}: the same {} tokens</strong> in every round.</p>").format(
            text(one), text(other), many
        )
    first = format_count((verdict.first_difference or 0) + 1)
    words: list[str] = [
        Markup("<strong>{} and {}: they differ from token {} on.</strong>").format(text(one), text(other), first)
    ]
    if verdict.largest_gap is not None:
        words.append(f"Up to there their logits are at most {verdict.largest_gap:.2g} apart.")
    if verdict.expected_equal:
        words.append(Markup('<span class="kv-failed">In greedy float32 this is a fault.</span>'))
    else:
        words.append("This is no test of quality.")
    around = ""
    if verdict.baseline_text or verdict.candidate_text:
        pairs = ((item.baseline, verdict.baseline_text), (item.candidate, verdict.candidate_text))
        around = Markup("").join(
            (
                Markup('<p class="kv-around"><span class="kv-key {}"></span>… {} …</p>').format(
                    text(key_classes(key)), text(words_around)
                )
                for key, words_around in pairs
            )
        )
    return Markup("<p>{}</p>{}").format(Markup(" ").join(words), around)


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
    return table(
        [term(name) for name in head], rows, caption="Times apart from the generation: medians; and the peak of memory"
    )
