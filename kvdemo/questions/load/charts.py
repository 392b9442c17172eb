"""The charts of a load: a timeline of the requests per mode, pages in use, throughput and latency over the load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from kvdemo.charts.lines import banner, banner_px, line_label, strong_line
from kvdemo.charts.look import GREY, Spot, blank, note
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_count, format_seconds, format_speed
from kvdemo.palette import MEANINGS, Meaning, of_strategy
from kvdemo.questions.load.spec import LoadResult, ModeRun, mode_of
from kvdemo.questions.load.summary import ModeSummary, summarise_mode

__all__ = ["draw", "drawings", "growing_chart", "latency_chart", "pages_chart", "throughput_chart", "timeline_chart"]

PLOT_PX = 220
ROW_PX, HEAD_PX = 11, 26
MOST_ROWS = 12  # requests of each mode that are drawn
BAR_PX = 7

MEANING_OF_MODE = {
    "one-by-one": of_strategy("dynamic"),
    "padded": of_strategy("static"),
    "continuous": replace(MEANINGS["reused"], marker="diamond"),
    "continuous-unshared": replace(of_strategy("offloaded"), marker="cross"),
    "one-by-one-no-cache": of_strategy("none"),
    "padded-no-cache": of_strategy("fp8"),
    "at-once": replace(MEANINGS["reused"], marker="diamond"),
}


def timeline_chart(result: LoadResult) -> go.Figure:
    """When was each request waiting, read (prefill) and answered (decode)? The first counted round of every mode, s."""
    shown = [(key, runs[0]) for key in result.spec.modes if (runs := result.main.of(key))]
    rows_of = [_request_rows(result, one) for _, one in shown]
    heads, height = [], 0.0
    for rows in rows_of:
        heads.append(height)
        height += HEAD_PX + ROW_PX * len(rows)
    legend = [
        (MEANINGS["weights"], "waiting: thin"),
        (MEANINGS["prefill"], "prefill"),
        (replace(MEANINGS["dynamic"], marker="square"), "decode: in the mode's colour"),
    ]
    longest = max((one.record.wall_s or 0.0 for _, one in shown), default=1.0)
    top = 66 + banner_px([text for _, text in legend])
    figure = blank(
        "When was each request answered?",
        height=int(top + max(height, 40) + 54),
        top=top,
        left=14,
        x={"title_text": "time since the first arrival, s", "range": [0, longest * 1.02 or 1.0], "nticks": 6},
        y={"range": [max(height, 40), 0], "showticklabels": False, "showgrid": False},
    )
    banner(figure, legend, left=14)
    for (key, one), rows, head in zip(shown, rows_of, heads, strict=True):
        meaning = MEANING_OF_MODE[key]
        hidden = len(one.record.runs) - len(rows)
        more = f" (the first {len(rows)} of {len(one.record.runs)})" if hidden else ""
        text = f"{mode_of(key).label}: {format_seconds(one.record.wall_s)}{more}"
        line_label(figure, meaning, text, Spot(0, head + HEAD_PX / 2, (2, 0), refs=("paper", "y")))
        ys = [head + HEAD_PX + ROW_PX * (at + 0.5) for at in range(len(rows))]
        phases = [_phases(run, arrival_s) for run, arrival_s in rows]
        for phase, (colour, thick_px) in enumerate(
            ((MEANINGS["weights"].fill, 2), (MEANINGS["prefill"].fill, BAR_PX), (meaning.fill, BAR_PX))
        ):
            _bars(
                figure, [(spans[phase], y) for spans, y in zip(phases, ys, strict=True) if spans], colour, thick_px, key
            )
        for (run, _), y in zip(rows, ys, strict=True):
            if not run.token_times_s:
                note(figure, "preempted, times incomplete", Spot(0, y, (2, 0), refs=("paper", "y")), name="preempted")
    return figure


def _request_rows(result: LoadResult, one: ModeRun) -> list[tuple[RunRecord, float]]:
    """The requests that are drawn, each with its arrival, s after the first one."""
    arrivals = result.spec.arrivals(result.main.requests)
    return [(run, arrival.at_s) for run, arrival in zip(one.record.runs[:MOST_ROWS], arrivals, strict=False)]


def _bars(
    figure: go.Figure, spans: Sequence[tuple[tuple[float, float], float]], colour: str, thick_px: int, name: str
) -> None:
    """Level bars from begin to end, s, as one trace, parted by gaps."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for (begin, end), y in spans:
        xs += [begin, end, None]
        ys += [y, y, None]
    line = {"color": colour, "width": thick_px}
    figure.add_scatter(x=xs, y=ys, mode="lines", line=line, hovertemplate="%{x:.2f} s<extra></extra>", name=name)


def _phases(run: RunRecord, arrival_s: float) -> tuple[tuple[float, float], ...]:
    """(begin, end) of waiting, prefill and decode, s since the first arrival; () where its times are not known."""
    if not run.token_times_s:
        return ()
    started = arrival_s + run.queue_s
    first, last = started + run.token_times_s[0], started + run.token_times_s[-1]
    return (arrival_s, started), (started, first), (first, last)


def pages_chart(result: LoadResult) -> go.Figure | None:
    """How many pages are in use? Over time, first counted round of each mode that has pages; None where none has."""
    series = []
    for key in result.spec.modes:
        for one in result.main.of(key)[:1]:
            points = [(item.at_s, item.pages) for item in one.record.forwards or () if item.pages is not None]
            if points:
                series.append((key, one, points))
    if not series:
        return None
    total = max(one.record.num_pages or 0 for _, one, _ in series)
    labels = [
        (MEANING_OF_MODE[key], f"{mode_of(key).label}: at most {format_count(max(pages for _, pages in points))}")
        for key, _, points in series
    ]
    top = 66 + banner_px([text for _, text in labels])
    longest = max(points[-1][0] for _, _, points in series) or 1.0
    figure = blank(
        "How many pages are in use?",
        height=top + PLOT_PX + 48,
        top=top,
        x={"title_text": "time since the first arrival, s", "range": [0, longest * 1.02], "nticks": 6},
        y={"range": [0, 1.15 * max(1, total)], "nticks": 5},
        y_title=f"pages of {format_count(result.spec.page_size)} tokens",
    )
    banner(figure, labels)
    figure.add_hline(y=total, line={"color": GREY, "width": 1, "dash": "dot"})
    note(figure, f"{format_count(total)} reserved", Spot(1, total, (-4, 9), "right", refs=("paper", "y")))
    for key, _, points in series:
        xs, ys = zip(*points, strict=True)
        strong_line(figure, MEANING_OF_MODE[key], xs, ys, "%{x:.2f} s: %{y} pages", name=key)
    return figure


def throughput_chart(result: LoadResult) -> go.Figure | None:
    """How does throughput grow with the number of requests? None where there is one number only."""
    return growing_chart(
        result,
        "How does throughput grow with the load?",
        "tokens a second, all requests together",
        lambda found: found.throughput_tokens_per_s,
        format_speed,
    )


def latency_chart(result: LoadResult) -> go.Figure | None:
    """How long does a request take as their number grows? p95, s, with the target where there is one."""
    figure = growing_chart(
        result,
        "How long does a request take?",
        "complete request, p95, s",
        lambda found: found.request_s.p95 if found.request_s else None,
        format_seconds,
    )
    target_s = result.spec.target_request_s
    if figure is not None and target_s is not None:
        figure.add_hline(y=target_s, line={"color": MEANINGS["budget"].fill, "width": 1.5, "dash": "longdash"})
        note(figure, f"target {format_seconds(target_s)}", Spot(1, target_s, (-4, 9), "right", refs=("paper", "y")))
        figure.update_yaxes(range=[0, max(figure.layout.yaxis.range[1], 1.15 * target_s)])
    return figure


def growing_chart(
    result: LoadResult,
    title: str,
    y_title: str,
    value: Callable[[ModeSummary], float | None],
    words: Callable[[float], str],
) -> go.Figure | None:
    """One line per mode over the number of requests."""
    if len(result.points) < 2:
        return None
    series: list[tuple[Meaning, str, Sequence[tuple[int, float]]]] = []
    for key in result.spec.modes:
        found = [(point.requests, value(summarise_mode(result.spec, point, key))) for point in result.sweep]
        known = [(number, figure) for number, figure in found if figure is not None]
        if known:
            series.append((MEANING_OF_MODE[key], mode_of(key).label, known))
    labels = [(meaning, label) for meaning, label, _ in series]
    top = 66 + banner_px([text for _, text in labels])
    most = max(point.requests for point in result.points)
    highest = max((y for *_, points in series for _, y in points), default=1.0)
    figure = blank(
        title,
        height=top + PLOT_PX + 48,
        top=top,
        x={"title_text": "requests at once", "range": [0, most * 1.06], "nticks": 6},
        y={"range": [0, 1.1 * highest], "nticks": 5},
        y_title=y_title,
    )
    banner(figure, labels)
    for meaning, label, points in series:
        xs, ys = zip(*points, strict=True)
        strong_line(figure, meaning, xs, ys, "%{x} requests: %{customdata}", name=label, words=words)
    return figure


def draw(result: LoadResult, picked: Mapping[str, str]) -> list[go.Figure | None]:
    """The page's figures in their order."""
    timeline = timeline_chart(result) if any(result.main.of(key) for key in result.spec.modes) else None
    return [timeline, pages_chart(result), throughput_chart(result), latency_chart(result)]


def drawings(result: LoadResult) -> list[go.Figure]:
    """The same for a report."""
    return [figure for figure in draw(result, {}) if figure is not None]
