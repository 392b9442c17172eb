"""The charts of an endpoint: what a step costs by position, first tokens cold and warm, tokens a second by requests at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from kvdemo.charts.lines import banner, banner_px, faint_lines, strong_line
from kvdemo.charts.look import Spot, blank, note
from kvdemo.experiments.statistics import median
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_count, format_ratio, format_seconds, format_speed
from kvdemo.palette import MEANINGS, Meaning
from kvdemo.questions.endpoint.spec import AT_ONCE, EndpointResult
from kvdemo.questions.endpoint.timings import concurrency, prefix_pairs

__all__ = ["draw", "drawings", "pairs_chart", "steps_chart", "together_chart"]

PLOT_PX = 220
AGAIN = replace(MEANINGS["none"], marker="square")
STEP = MEANINGS["dynamic"]
COLD, WARM = replace(MEANINGS["prefill"], marker="square"), replace(MEANINGS["reused"], marker="diamond")
TOGETHER = replace(MEANINGS["reused"], marker="diamond")


def steps_chart(result: EndpointResult) -> go.Figure | None:
    """What does a further token cost, by position? Beside it what computing the whole text costs: a first token of that length.

    None where no answer has times by token.
    """
    steps = [line for line in map(_steps, (*result.arm("short"), *result.arm("long"))) if line is not None]
    firsts: dict[int, list[float | None]] = {}
    for run in (*result.arm("short"), *result.arm("long"), *(run for run in result.lengths if run.counts)):
        if run.prompt_tokens:
            firsts.setdefault(run.prompt_tokens, []).append(run.ttft_s)
    again = sorted((tokens, (median(times) or 0.0) * 1000) for tokens, times in firsts.items())
    if not steps or not again:
        return None
    labels = [
        (STEP, "a further token of the answer"),
        (AGAIN, "the whole text again: a first token"),
    ]
    top = 66 + banner_px([text for _, text in labels])
    longest = max(max(xs[-1] for xs, _ in steps), again[-1][0])
    highest = max(max(ys) for ys in [*(ys for _, ys in steps), [y for _, y in again]])
    figure = blank(
        "What does one more token cost?",
        height=top + PLOT_PX + 48,
        top=top,
        x={"title_text": "position, tokens", "range": [0, longest * 1.04], "nticks": 6},
        y={"range": [0, highest * 1.08], "nticks": 5},
        y_title="time, ms",
    )
    banner(figure, labels)
    faint_lines(figure, STEP, steps)
    for key in ("short", "long"):
        middle = _median_steps(result.arm(key))
        if middle is not None:
            strong_line(figure, STEP, *middle, "position %{x:,}: %{y:.3g} ms", name=f"{key} prompt")
    xs, ys = [tokens for tokens, _ in again], [y for _, y in again]
    strong_line(figure, AGAIN, xs, ys, "%{x:,} tokens: %{y:.3g} ms", name="first token")
    return figure


def _steps(run: RunRecord) -> tuple[list[int], list[float]] | None:
    """(positions, ms) of the steps of an answer; None where tokens have no times of their own."""
    if not run.step_s or not run.prompt_tokens:
        return None
    return [run.prompt_tokens + at for at in range(1, len(run.step_s) + 1)], [1000 * step for step in run.step_s]


def _median_steps(runs: Sequence[RunRecord]) -> tuple[list[int], list[float]] | None:
    """The median at each place of the answer."""
    known = [(run, steps) for run in runs if (steps := _steps(run)) is not None]
    if not known:
        return None
    shared = min(len(ys) for _, (_, ys) in known)
    start = round(median(run.prompt_tokens for run, _ in known) or 0)
    return (
        [start + at for at in range(1, shared + 1)],
        [median(ys[at] for _, (_, ys) in known) or 0.0 for at in range(shared)],
    )


def pairs_chart(result: EndpointResult) -> go.Figure | None:
    """How long to the first token, with a new and with a known beginning? A point for each of a pair. None without pairs."""
    pairs = prefix_pairs(result)
    if not pairs:
        return None
    cold, warm = [pair.cold_ttft_s * 1000 for pair in pairs], [pair.warm_ttft_s * 1000 for pair in pairs]
    labels = [
        (COLD, f"new beginning: median {format_seconds((median(cold) or 0) / 1000)}"),
        (WARM, f"sent before: median {format_seconds((median(warm) or 0) / 1000)}"),
    ]
    top = 66 + banner_px([text for _, text in labels])
    tokens = format_count(median(pair.prompt_tokens for pair in pairs))
    figure = blank(
        "Is a known beginning faster?",
        height=top + PLOT_PX + 48,
        top=top,
        x={"title_text": f"pair ({tokens} prompt tokens)", "range": [0.5, len(pairs) + 0.5], "dtick": 1},
        y={"range": [0, max(*cold, *warm) * 1.1], "nticks": 5},
        y_title="first token, ms",
    )
    banner(figure, labels)
    numbers = list(range(1, len(pairs) + 1))
    for meaning, times, name in ((COLD, cold, "new"), (WARM, warm, "known")):
        _points(figure, meaning, numbers, times, name)
    return figure


def _points(figure: go.Figure, meaning: Meaning, xs: Sequence[int], ys: Sequence[float], name: str) -> None:
    marker = {"color": meaning.fill, "size": 10, "symbol": meaning.marker}
    hover = f"pair %{{x}}, {name} beginning: %{{y:.3g}} ms<extra></extra>"
    figure.add_scatter(x=list(xs), y=list(ys), mode="markers", marker=marker, name=name, hovertemplate=hover)


def together_chart(result: EndpointResult) -> go.Figure | None:
    """How many tokens a second do 1, 2, 4 and 8 requests at once get? None where several were not measured."""
    speeds: dict[int, list[float]] = {}
    for one in result.at_once:
        if one.round and one.status == "ok" and (speed := one.record.throughput_tokens_per_s):
            speeds.setdefault(one.requests, []).append(speed)
    numbers = sorted(speeds)
    if len(numbers) < 2 or numbers[0] != 1:
        return None
    middle = [median(speeds[number]) or 0.0 for number in numbers]
    gains = concurrency(result)
    most = numbers[-1]
    gain = median(one.gain for one in gains.get(most, []))
    labels = [
        (TOGETHER, f"measured: {format_ratio(gain)} times with {most}"),
        (replace(MEANINGS["weights"], marker="x"), "dotted: one after the other"),
    ]
    top = 66 + banner_px([text for _, text in labels])
    rounds = range(max(len(found) for found in speeds.values()))
    lines = [
        ([n for n in numbers if at < len(speeds[n])], [speeds[n][at] for n in numbers if at < len(speeds[n])])
        for at in rounds
    ]
    figure = blank(
        "Do several together get more?",
        height=top + PLOT_PX + 48,
        top=top,
        x={
            "title_text": "requests at once",
            "range": [0, most * 1.06],
            "tickvals": list(AT_ONCE),
            "ticktext": [f"{n}" for n in AT_ONCE],
        },
        y={"range": [0, 1.1 * max(max(found) for found in speeds.values())], "nticks": 5},
        y_title="tokens a second, all together",
    )
    banner(figure, labels)
    figure.add_hline(y=middle[0], line={"color": MEANINGS["weights"].fill, "width": 1.5, "dash": "dot"})
    note(figure, format_speed(middle[0]), Spot(1, middle[0], (-4, -9), "right", refs=("paper", "y")))
    faint_lines(figure, TOGETHER, lines)
    strong_line(figure, TOGETHER, numbers, middle, "%{x} at once: %{customdata}", name="together", words=format_speed)
    return figure


def draw(result: EndpointResult, picked: Mapping[str, str]) -> list[go.Figure | None]:
    """The page's figures in their order."""
    return [steps_chart(result), pairs_chart(result), together_chart(result)]


def drawings(result: EndpointResult) -> list[go.Figure]:
    """The same for a report."""
    return [figure for figure in draw(result, {}) if figure is not None]
