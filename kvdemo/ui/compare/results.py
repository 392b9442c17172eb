"""Any result of Compare as the page shows it: headline, charts, tables, the verdict on the tokens.

Words come from the experiments, figures from the reports; this file only puts them into fragments. Drawing libraries take
seconds to import: only for those who have a result.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kvdemo.components.markup import table, text
from kvdemo.experiments.finding import Pieces
from kvdemo.experiments.summary import arms
from kvdemo.experiments.wording import TIMED, headline, scope_line
from kvdemo.facts.questions import GrowthResult, PrefixResult, PromptSetResult
from kvdemo.facts.results import Comparison, ComparisonResult
from kvdemo.facts.units import format_bytes, format_count, format_seconds
from kvdemo.questions.documents import AnyResult
from kvdemo.questions.words import growth_headline, notices, prefix_headline, prompt_set_headline

__all__ = ["charts", "empty_result", "headline_card", "measured_where", "result_tables", "verdict_card"]

MOST_RUNS = 500  # rows on the page


def empty_result(words: str) -> str:
    """Before any run: what will appear and how to get it."""
    return f'<div class="kv-card kv-headline kv-headline-empty"><p>{text(words)}</p></div>'


def headline_card(result: AnyResult, source: str = "") -> str:
    """The one sentence, and what it was measured on. `source` says where a result comes from that was not run here."""
    strong = "".join(f"<strong>{text(words)}</strong>" if bold else text(words) for words, bold in _pieces(result))
    label = f'<p class="kv-source-label">{text(source)}</p>' if source else ""
    said = "".join(f'<p class="kv-small">{text(words)}</p>' for words in notices(result))
    return (
        f'<div class="kv-card kv-headline" role="status">{label}<p class="kv-headline-text">{strong}</p>'
        f'<p class="kv-small">{text(_scope(result))}</p>{said}</div>'
    )


def measured_where(result: AnyResult) -> str:
    """Where and when was this measured? "2 CPU cores of x86_64, 6 rounds, 2 January 2026"."""
    environment = result.environment
    cores = f"{environment.cpu_cores} CPU {'core' if environment.cpu_cores == 1 else 'cores'}"
    machine = environment.accelerator or f"{cores} of {environment.processor or environment.platform}"
    rounds = getattr(result.spec, "rounds", None)
    rounds_words = [] if rounds is None else [f"{rounds} {'round' if rounds == 1 else 'rounds'}"]
    return ", ".join([machine, *rounds_words, _date(environment.measured_at)])


def result_tables(result: AnyResult) -> str:
    """One row per arm, point, prompt or question; one per run on demand; and what was timed."""
    from kvdemo.report.frames import arms_frame
    from kvdemo.report.question_frames import any_runs_table, growth_frame, prefix_frame, prompt_set_frame

    if isinstance(result, ComparisonResult):
        frame, caption = arms_frame(result), "One row per strategy: medians over the rounds"
    elif isinstance(result, GrowthResult):
        frame, caption = growth_frame(result), "One row per request size and strategy: medians"
    elif isinstance(result, PromptSetResult):
        frame, caption = prompt_set_frame(result), "One row per prompt: its own ratio"
    else:
        frame, caption = prefix_frame(result), "One row per question: time to its first token"
    runs = any_runs_table(result)
    shown = f"; the first {MOST_RUNS} are shown, files hold all" if len(runs) > MOST_RUNS else ""
    return (
        f'<div class="kv-card kv-tables">{_table(frame, caption)}<p class="kv-small">{text(TIMED)}</p>'
        f"<details><summary>Every run ({len(runs)}{shown})</summary>"
        f'<p class="kv-small">Warm-ups and runs that did not finish count in nothing. Queue wait and preparing '
        f"(template and tokenising) lie before the clock; first token is the prefill.</p>"
        f"{_table(runs.head(MOST_RUNS), 'One row per run')}</details></div>"
    )


def verdict_card(result: AnyResult) -> str:
    """Are the tokens the same? For each arm beside the first; where they differ, the texts around the first difference."""
    if not isinstance(result, ComparisonResult):
        return ""
    found = [item for item in result.comparisons if item.metric == "generation_s"]
    parts = "".join(_verdict(result, item) for item in found if item.verdict.same_output is not None)
    if not parts:
        return ""
    return (
        f'<div class="kv-card kv-verdict"><h2 class="kv-card-title">Are the tokens the same?</h2>{parts}'
        f'<h2 class="kv-card-title">What lies beside the clock?</h2>{_beside_the_clock(result)}</div>'
    )


def charts(result: AnyResult, along: str = "new_tokens", candidate: str | None = None) -> list[Any]:
    """The figures of a result in the order of its page; None where there is nothing to draw.

    along       growth only: by new_tokens or by prompt_tokens
    candidate   growth and prompt sets: the arm beside the baseline; None: the first one
    """
    if isinstance(result, GrowthResult):
        from kvdemo.questions.grow.charts import GROWTH_FIGURES, growth_figure_chart, growth_ratio_chart

        if not any(point.result.comparisons for point in result.points):
            return [None] * 4
        others = [growth_figure_chart(result, name, along) for name in GROWTH_FIGURES]
        return [growth_ratio_chart(result, along, candidate), *others]
    if isinstance(result, PromptSetResult):
        from kvdemo.questions.prompts.charts import prompt_ratios_chart, prompt_set_chart

        return [prompt_set_chart(result), prompt_ratios_chart(result, candidate)] if result.prompts else [None] * 2
    if isinstance(result, PrefixResult):
        from kvdemo.questions.grow.charts import prefix_chart

        return [prefix_chart(result) if result.ratio is not None else None]
    return _comparison_charts(result)


def _comparison_charts(result: ComparisonResult) -> list[Any]:
    from kvdemo.questions.faster.charts import arrival_chart, cache_bytes_chart, step_cost_chart, time_split_chart
    from kvdemo.questions.faster.work_chart import work_chart

    counted = [run for run in result.runs if run.counts]
    if not counted:
        return [None] * 5
    holds = any(held for run in counted for held, _ in run.cache_bytes_by_token)
    four = [arrival_chart(result), step_cost_chart(result), time_split_chart(result), work_chart(result)]
    return [*four, cache_bytes_chart(result) if holds else None]


def _pieces(result: AnyResult) -> Pieces:
    if isinstance(result, GrowthResult):
        return growth_headline(result)
    if isinstance(result, PromptSetResult):
        return prompt_set_headline(result)
    return prefix_headline(result) if isinstance(result, PrefixResult) else headline(result)


def _scope(result: AnyResult) -> str:
    if isinstance(result, ComparisonResult):
        return scope_line(result)
    model, environment = result.model, result.environment
    machine = f"{environment.cpu_cores} CPU cores" if model.device.startswith("cpu") else environment.accelerator
    return (
        f"{model.name.rsplit('/', 1)[-1]}, {model.dtype}, {machine or model.device}. "
        "Other models, machines and lengths give other numbers."
    )


def _verdict(result: ComparisonResult, item: Comparison) -> str:
    verdict = item.verdict
    one, other = result.row(item.baseline).label, result.row(item.candidate).label
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
            f'<p class="kv-around"><span class="kv-key kv-of-{text(key)}"></span>… {text(words_around)} …</p>'
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


def _date(measured_at: str) -> str:
    try:
        day = datetime.fromisoformat(measured_at)
    except ValueError:
        return measured_at[:40]
    return f"{day.day} {day:%B %Y}"


def _table(frame: Any, caption: str) -> str:
    rows = [[text(value) for value in values] for values in frame.itertuples(index=False)]
    return table([text(name) for name in frame.columns], rows, caption=caption)
