"""Watch it again: two runs of one round, replayed from a common zero at their recorded times, step by step, in words.

Everything that is said is put together here; the script (assets/replay.js) only chooses which step is shown. Without it the
finished pictures and sums stand.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from kvdemo.caches.strategies import STRATEGIES
from kvdemo.charts.arms import key_classes
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.pieces import factor
from kvdemo.experiments.question import AnyResult, Question
from kvdemo.experiments.step_words import step_words
from kvdemo.experiments.summary import first_difference, paired
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import checked_choice
from kvdemo.facts.units import format_bytes, format_count, format_ratio, format_seconds, format_speed
from kvdemo.palette import MEANINGS, PAPER, of_strategy
from kvdemo.report.norms_picture import NormsPicture
from kvdemo.report.reproduce import templates
from kvdemo.report.work_grid import work_grid
from kvdemo.shipped import assets_folder

__all__ = [
    "Replay",
    "Side",
    "replay_fragment",
    "replay_holder",
    "replay_html",
    "replay_of",
    "replay_within",
    "script_and_hash",
]

MOST_FRAMES = 400
MOST_CHARS = 30_000  # of one answer that is shown
WITHOUT = "none"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs: its name as a heading and within a sentence, and its record."""

    label: str
    said: str
    classes: str
    run: RunRecord

    @property
    def counted(self) -> bool:
        """Does it say for every token what its forward computed and read?"""
        computed, read = self.run.positions_computed or (), self.run.positions_read or ()
        return bool(computed) and len(computed) == len(read) == self.run.new_tokens

    @property
    def text(self) -> str:
        return self.run.text[:MOST_CHARS]

    @property
    def text_ends(self) -> tuple[int, ...]:
        """How much of the text is shown after each token; spread evenly where the record does not say."""
        ends, tokens = self.run.text_ends, self.run.new_tokens
        if len(ends) == tokens and tokens:
            return (*ends[:-1], len(self.run.text))
        return tuple(len(self.run.text) * done // tokens for done in range(1, tokens + 1))

    def step(self, step: int) -> str:
        """What the forward that made this token (1, 2, ...) did, as a sentence; "" where that is not known."""
        if not 1 <= step <= self.run.new_tokens:
            return f"{self.said}: it had ended."
        if not self.counted or self.run.positions_computed is None or self.run.positions_read is None:
            return ""
        computed, read = self.run.positions_computed[step - 1], self.run.positions_read[step - 1]
        held = self.run.cache_bytes_by_token
        more = None
        if len(held) >= step and held[step - 1][0]:
            more = held[step - 1][0] - (held[step - 2][0] if step > 1 else 0)
        return step_words(
            self.said, computed, read, more_bytes=more, layers=self.run.cache_layers, again=step > 1 and not read
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """Two runs of one round, the baseline's first."""

    result: ComparisonResult
    sides: tuple[Side, Side]
    rounds: int

    @property
    def caption(self) -> str:
        number = self.sides[0].run.round or 1
        return f"Round {number} of {self.rounds}, recorded one after the other, replayed together."

    @property
    def steps(self) -> int:
        return max(side.run.new_tokens for side in self.sides)

    @property
    def frames(self) -> tuple[int, ...]:
        """The steps that can be chosen: all of them, or evenly chosen ones where there are very many; 1 is the first."""
        steps, most = self.steps, MOST_FRAMES
        if steps <= most:
            return tuple(range(1, steps + 1))
        return tuple(sorted({1 + round(at * (steps - 1) / (most - 1)) for at in range(most)}))

    @property
    def times_faster(self) -> float | None:
        """Of this round: generation of the first over that of the second, per token where they made different numbers."""
        one, other = (side.run for side in self.sides)
        if not one.generation_s or not other.generation_s:
            return None
        return (one.generation_s / one.new_tokens) / (other.generation_s / other.new_tokens)

    @property
    def times_less_work(self) -> float | None:
        sums = [side.run.total_computed for side in self.sides]
        return sums[0] / sums[1] if sums[0] and sums[1] else None

    @property
    def differs_at(self) -> int | None:
        """The first step whose tokens differ; None where none does, or ids are not known."""
        one, other = (side.run.token_ids for side in self.sides)
        if one is None or other is None:
            return None
        found = first_difference(one, other)
        return None if found is None else found + 1

    def step(self, step: int) -> str:
        """The step in words."""
        said = [sentence for side in self.sides if (sentence := side.step(step))]
        return " ".join([f"Step {format_count(step)}.", *said])

    def sums(self) -> str:
        """The sums of the work, and why the time fell less."""
        one, other = self.sides
        if self.times_less_work is None or self.times_faster is None:
            return ""
        counts = (
            f"In all: {format_count(one.run.total_computed)} positions computed by {lower(one.label)}, "
            f"{format_count(other.run.total_computed)} by {lower(other.label)}"
        )
        weights = self.result.model.weight_bytes
        reads = "reads all weights" if weights is None else f"reads all {format_bytes(weights)} of weights"
        if self.times_less_work < 1.005:
            return f"{counts}: the same work. Every step {reads}, whatever the cache holds."
        less = f"{counts}: {format_ratio(self.times_less_work)} times less work, {factor(self.times_faster)}."
        if self.times_faster <= 1:
            return f"{less} Computing is a small part of a step here: every step, with a cache or without, {reads}."
        return f"{less} Time fell less than work because every step, with a cache or without, {reads}."

    def phases(self) -> str:
        """Prefill against decode, of the second run."""
        run = self.sides[1].run
        if run.prefill_tokens_per_s is None or run.decode_tokens_per_s is None:
            return ""
        return (
            f"{self.sides[1].label}: prefill {format_speed(run.prefill_tokens_per_s)}, decode "
            f"{format_speed(run.decode_tokens_per_s)}. Prefill reads the weights once for all "
            f"{format_count(run.prompt_tokens)} prompt tokens; decode reads the same weights once for every new token."
        )

    def data(self) -> dict[str, Any]:
        """What the script needs: for each frame its words, and of each side what is known at that frame."""
        frames = self.frames
        at = [step - 1 for step in frames]
        faster, less = self.times_faster, self.times_less_work
        return {
            "steps": frames,
            "words": [self.step(step) for step in frames],
            "differs": None if self.differs_at is None else sum(step < self.differs_at for step in frames),
            "truth": {
                "faster": None if faster is None else format_ratio(faster),
                "less": None if less is None else format_ratio(less),
            },
            "sides": [
                {
                    "times": [round(side.run.times_by_token_s[min(i, side.run.new_tokens - 1)], 4) for i in at],
                    "ends": [min(side.text_ends[min(i, side.run.new_tokens - 1)], MOST_CHARS) for i in at],
                    "made": [min(i + 1, side.run.new_tokens) for i in at],
                    "tokens": side.run.new_tokens,
                    "total": format_seconds(side.run.generation_s),
                }
                for side in self.sides
            ],
        }


def replay_of(result: ComparisonResult, arm: str | None = None) -> Replay | None:
    """The round whose ratio is nearest the median, for one arm beside the baseline; None: the fastest one.

    None where no round of both says when each token came. InvalidRequest for an arm that was not compared.
    """
    baseline = result.spec.arms[0]
    if arm is not None:
        checked_choice("arm", arm, result.spec.arms[1:])
    fastest = result.fastest if result.fastest != baseline else None
    candidates = [arm] if arm is not None else [key for key in (fastest, *result.spec.arms[1:]) if key]
    for candidate in candidates:
        comparison = result.comparison(candidate)
        pairs = [pair for pair in paired(result.runs, baseline, candidate) if all(run.times_by_token_s for run in pair)]
        if pairs:
            wanted = comparison.ratio if comparison is not None and comparison.ratio else 1.0
            one, other = min(pairs, key=lambda pair: abs(ratio_of(*pair) - wanted))
            sides = (side_of(result, baseline, one), side_of(result, candidate, other))
            return Replay(result, sides, rounds=max((run.round or 1) for run in result.runs))
    return None


def replay_within(question: Question[Any, Any], result: AnyResult, arm: str | None = None) -> Replay | None:
    """Of a result that is one comparison; None for one of many lengths or prompts, where no pair stands for the whole."""
    one = question.comparison(result)
    return replay_of(one, arm) if one is not None and one is result else None


def ratio_of(one: RunRecord, other: RunRecord) -> float:
    return (one.generation_s or 0.0) / (other.generation_s or 1.0)


def side_of(result: ComparisonResult, arm: str, run: RunRecord) -> Side:
    label = result.row(arm).label
    said = {WITHOUT: "Without a cache", "dynamic": "With it"}.get(arm, label)
    return Side(label, said, key_classes(arm), run)


def lower(label: str) -> str:
    """A label within a sentence."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def script_and_hash() -> tuple[Markup, str]:
    """Our one script, and what a content security policy admits it by."""
    script = (assets_folder() / "replay.js").read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    return Markup(script), f"sha256-{base64.b64encode(digest).decode()}"


def data_text(data: dict[str, Any]) -> Markup:
    """JSON that is safe inside HTML: nothing in it can end an element or begin one."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def replay_fragment(replay: Replay, *, heading: str = "Watch it again") -> Markup:
    """The finished state, with the data that the script replays."""
    page = templates().get_template("replay.html.j2")
    grids = [work_grid(side.run) if side.counted else Markup("") for side in replay.sides]
    longest = max(((side.run.prompt_tokens or 0) + side.run.new_tokens for side in replay.sides), default=0)
    return Markup(
        page.render(
            replay=replay,
            heading=heading,
            sides=list(zip(replay.sides, grids, strict=True)),
            longest=longest,
            picture=None if replay.result.norms is None else NormsPicture(replay.result.norms),
            data=data_text(replay.data()),
            format_seconds=format_seconds,
            format_count=format_count,
        )
    )


def replay_holder(replay: Replay) -> str:
    """The same for the page, whose cleaner takes SVG away: all of it as data, on one line, which the script puts in place."""
    whole = data_text({"html": str(replay_fragment(replay))})
    return f'<div class="kv-replay-holder"><pre class="kv-replay-html">{whole}</pre></div>'


def replay_html(result: ComparisonResult, *, headline: str, scope: str, arm: str | None = None) -> str:
    """One standalone page that replays it offline; InvalidRequest where there is nothing to replay."""
    replay = replay_of(result, arm)
    if replay is None:
        raise InvalidRequest(
            "file", "has no round in which both runs say when each token came: nothing can be replayed"
        )
    script, admitted = script_and_hash()
    return (
        templates()
        .get_template("replay_page.html.j2")
        .render(
            headline=headline,
            scope=scope,
            fragment=replay_fragment(replay, heading=""),
            script=script,
            admitted=admitted,
            style=replay_style(),
        )
    )


def replay_style() -> Markup:
    """The palette as variables, and the style sheet of the replay."""
    rules = (assets_folder() / "replay.css").read_text(encoding="utf-8")
    names = {id(meaning): name for name, meaning in MEANINGS.items()}
    keys = " ".join(
        f".kv-replay-name .kv-of-{row.key} {{ background: var(--kv-{names[id(of_strategy(row.key))]}); }}"
        for row in STRATEGIES
    )
    dark = f"@media (prefers-color-scheme: dark) {{ {variables('dark', 'dark')} }}"
    return Markup(f"{variables('light', 'fill')}\n{dark}\n{rules}\n{keys}")


def variables(mode: str, colour: str) -> str:
    paper = PAPER[mode]
    named: Sequence[tuple[str, str]] = [
        ("background", paper.background),
        ("card", paper.card),
        ("line", paper.line),
        ("ink", paper.text),
        ("faint", paper.faint_text),
        *((name, getattr(meaning, colour)) for name, meaning in MEANINGS.items()),
    ]
    return ":root { " + " ".join(f"--kv-{name}: {value};" for name, value in named) + " }"
