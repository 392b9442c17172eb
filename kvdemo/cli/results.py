"""Results of several runs: what came out in a sentence, where it was measured, and a table."""

from __future__ import annotations

from typing import Any

from kvdemo.cli.table import print_table
from kvdemo.experiments.summary import arms
from kvdemo.experiments.wording import TIMED, headline, plain, scope_line
from kvdemo.facts.questions import GrowthResult, PromptSetResult
from kvdemo.facts.results import ArmSummary, ComparisonResult
from kvdemo.facts.units import format_bytes, format_count, format_seconds, format_speed
from kvdemo.questions.documents import AnyResult
from kvdemo.questions.words import growth_headline, notices, prefix_headline, prompt_set_headline

__all__ = ["print_result"]

LONGEST_CELL = 40


def print_result(result: AnyResult) -> None:
    """The answer to whatever question was asked."""
    if isinstance(result, ComparisonResult):
        _print_comparison(result)
        return
    from kvdemo.report.question_frames import growth_frame, prefix_frame, prompt_set_frame

    if isinstance(result, GrowthResult):
        words, frame = growth_headline(result), growth_frame(result)
    elif isinstance(result, PromptSetResult):
        words, frame = prompt_set_headline(result), prompt_set_frame(result)
    else:
        words, frame = prefix_headline(result), prefix_frame(result)
    print(plain(words))
    print(f"{result.model.name}, {result.model.dtype}, {result.model.device}.")
    _print_notices(result)
    print()
    if len(frame):
        _print_frame(frame)


def _print_comparison(result: ComparisonResult) -> None:
    print(plain(headline(result)))
    print(scope_line(result))
    _print_notices(result)
    print()
    table = arms(result)
    rows = [
        (
            "Strategy",
            "First token",
            "Per token",
            "Speed",
            "Total, median",
            "Range",
            "n",
            "Tokens",
            "Cache held",
            "Computed",
        )
    ]
    for arm in table:
        total = arm.generation_s
        rows.append(
            (
                arm.label,
                format_seconds(arm.ttft_s.median if arm.ttft_s else None),
                format_seconds(arm.tpot_s.median if arm.tpot_s else None),
                format_speed(arm.decode_tokens_per_s),
                format_seconds(total.median if total else None),
                f"{format_seconds(total.low)} to {format_seconds(total.high)}" if total else "n/a",
                str(arm.n),
                "n/a" if arm.tokens is None else " to ".join(str(count) for count in dict.fromkeys(arm.tokens)),
                format_bytes(arm.cache_bytes) if arm.cache_bytes else "nothing kept",
                format_count(arm.positions_computed),
            )
        )
    print_table(rows)
    print(TIMED)
    for arm in table:
        for line in _remarks(arm, result.model.device):
            print(f"{arm.label}: {line}")


def _print_notices(result: AnyResult) -> None:
    for words in notices(result):
        print(f"Note: {words}")


def _remarks(arm: ArmSummary, device: str) -> list[str]:
    """What no column shows: compile time, and where a cache sits that is not all on the model's device."""
    lines = []
    if arm.compile_s is not None:
        lines.append(f"compiling took {format_seconds(arm.compile_s)}, once, and is in no time above.")
    places = arm.cache_bytes_by_device
    if any(place.split(":")[0] != device.split(":")[0] for place in places):
        where = ", ".join(f"{format_bytes(held)} on {place}" for place, held in places.items())
        lines.append(
            f"its cache sits in two places: {where}." if len(places) > 1 else f"its cache sits elsewhere: {where}."
        )
    return lines


def _print_frame(frame: Any) -> None:
    """A data frame whose cells are words already; long texts are cut."""
    cells = [tuple(_cut(str(cell)) for cell in row) for row in frame.itertuples(index=False, name=None)]
    print_table([tuple(map(str, frame.columns)), *cells])


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_CELL else f"{line[: LONGEST_CELL - 3]}..."
