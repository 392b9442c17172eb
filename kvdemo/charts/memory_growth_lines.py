"""What grows in a growth chart: lines, fixed sizes and where they cross, as the planner computes them. Draws nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kvdemo.charts.look import glyph
from kvdemo.charts.plain_text import clean
from kvdemo.facts.plans import MemoryPlan
from kvdemo.facts.units import format_bytes, format_count
from kvdemo.palette import MEANINGS, Meaning, of_strategy
from kvdemo.planner.plan import by_kv_heads, by_layers, growth, growth_by_users, lengths_up_to

__all__ = [
    "GROWS_WITH",
    "NO_LIMIT_TOKENS",
    "Crossing",
    "GrowthLine",
    "Level",
    "crossings",
    "levels_near",
    "levels_of",
    "lines_of",
    "longest",
]

Points = list[tuple[int, int, int]]
FAR = 100
NO_LIMIT_TOKENS = 131_072
"""How far the axis of lengths goes for a model that names no limit of its own."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What grows: words for the title, the axis, a crossing ("15,317 tokens per request") and the other sizes."""

    title: str
    axis: str
    unit: str
    points: Callable[[MemoryPlan, int], Points]
    held_fixed: Callable[[MemoryPlan], str]


def users_words(plan: MemoryPlan) -> str:
    batch = plan.request.batch_size
    return "cache size, 1 request" if batch == 1 else f"cache size, {format_count(batch)} requests at once"


def length_words(plan: MemoryPlan) -> str:
    return f"cache size, {format_count(plan.request.seq_len)} tokens each"


def both_words(plan: MemoryPlan) -> str:
    return f"cache size, {format_count(plan.request.batch_size)} × {format_count(plan.request.seq_len)} tokens"


def known_heads(plan: MemoryPlan) -> list[int] | None:
    """1, 2, 4 ... KV heads as built where nobody knows how many attention heads there are; None: the planner's own choice."""
    if plan.architecture.attention_heads:
        return None
    built = max((layer.kv_heads for layer in plan.architecture.layers), default=0)
    return sorted({2**power for power in range(built.bit_length())} | ({built} if built else set()))


GROWS_WITH = {
    "length": Axis(
        "length",
        "sequence length, tokens",
        "tokens per request",
        lambda plan, most: growth(plan.architecture, plan.request, lengths_up_to(most)),
        users_words,
    ),
    "users": Axis(
        "users",
        "requests at once",
        "requests at once",
        lambda plan, most: growth_by_users(plan.architecture, plan.request, lengths_from_one(most)),
        length_words,
    ),
    "layers": Axis(
        "layers",
        "layers of this model",
        "layers",
        lambda plan, _: by_layers(plan.architecture, plan.request),
        both_words,
    ),
    "heads": Axis(
        "KV heads",
        "KV heads per layer",
        "KV heads",
        lambda plan, _: by_kv_heads(plan.architecture, plan.request, known_heads(plan)),
        both_words,
    ),
}


@dataclass(frozen=True, slots=True)
class GrowthLine:
    label: str
    meaning: Meaning
    points: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Level:
    """A size that does not grow: its name, how a crossing of it is said, and how that is marked."""

    words: str
    size: int
    meaning: Meaning
    crossing: str
    mark: str


Crossing = tuple[Level, int, str]
"""A level, where the line reaches it on the axis, and both in words."""


def lines_of(plan: MemoryPlan, axis: Axis, most: int, others: Sequence[MemoryPlan], kept: str = "") -> list[GrowthLine]:
    """The growing cache (and the fixed one where it differs), 8-bit floats where they can be used, other models.

    kept   what the cache is called where it is neither dynamic nor static
    """
    points = axis.points(plan, most)
    if not points:
        return []
    held, reserved = [(x, size) for x, size, _ in points], [(x, size) for x, _, size in points]
    apart = any(abs(more - less) > 0.03 * max(more, 1) for (_, less), (_, more) in zip(held, reserved, strict=True))
    name = clean(plan.architecture.name, max_chars=24) if others else ""
    usual = kept or ("dynamic" if apart else "dynamic, static")
    lines = [GrowthLine(name or usual, of_strategy("dynamic"), held)]
    if others:
        meanings = [of_strategy(key) for key in ("none", "fp8", "static-compiled")]
        for other, meaning in zip(others, meanings, strict=False):
            drawn = replace(of_strategy("dynamic"), dash=meaning.dash, marker=meaning.marker)
            other_points = [(x, size) for x, size, _ in axis.points(other, most)]
            lines.append(GrowthLine(clean(other.architecture.name, max_chars=24), drawn, other_points))
        return [line for line in lines if line.points]
    if apart:
        lines.append(GrowthLine("static", of_strategy("static"), reserved))
    if plan.request.cache_dtype != "float8" and all(layer.kind == "full" for layer in plan.architecture.layers):
        smaller = axis.points(replace(plan, request=replace(plan.request, cache_dtype="float8")), most)
        lines.append(GrowthLine("fp8", of_strategy("fp8"), [(x, size) for x, size, _ in smaller]))
    return lines


def longest(plan: MemoryPlan, others: Sequence[MemoryPlan]) -> int:
    """How far does the axis of lengths go? To the model's limit, the asked length, and a crossing that is not far off."""
    limit = max(one.architecture.context_limit or NO_LIMIT_TOKENS for one in (plan, *others))
    wanted = max(limit, plan.request.seq_len, 1024)
    near = [at for at in (plan.crossover_tokens, plan.budget_crossover_tokens) if at is not None and at <= 4 * wanted]
    return max(wanted, *(round(1.5 * at) for at in near), 0)


def lengths_from_one(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12 ... up to `most`."""
    steps = {2**power for power in range(most.bit_length())} | {3 * 2**power for power in range(most.bit_length() - 1)}
    return sorted(step for step in steps if step <= most)


def levels_of(plan: MemoryPlan, *, several: bool = False) -> list[Level]:
    """The sizes that do not grow: the weights, and what the budget leaves beside them.

    several   other models are drawn, too: these sizes belong to the first one and carry its marker
    """
    levels = []
    weights = plan.weight_bytes
    whose = f"{glyph(of_strategy('dynamic'))} " if several else ""
    if weights:
        words = f"{whose}weights {format_bytes(weights)}"
        levels.append(Level(words, weights, MEANINGS["weights"], "○ passes the weights at", "circle-open"))
    if plan.capacity is not None and plan.capacity.budget_bytes > (weights or 0):
        words = f"{whose}{plan.capacity.budget_bytes / 2**30:,g} GiB" + (" less weights" if weights else "")
        beside = plan.capacity.budget_bytes - (weights or 0)
        levels.append(Level(words, beside, MEANINGS["budget"], "◇ fills the budget at", "diamond-open"))
    return levels


def levels_near(levels: Sequence[Level], lines: Sequence[GrowthLine]) -> tuple[list[Level], list[Level]]:
    """(those to draw, those so far above everything that they would press the lines flat)"""
    largest = max(size for line in lines for _, size in line.points)
    near: list[Level] = []
    for level in sorted(levels, key=lambda level: level.size):
        if level.size <= FAR * max(largest, *(one.size for one in near), 1):
            near.append(level)
    return [level for level in levels if level in near], [level for level in levels if level not in near]


def crossings(plan: MemoryPlan, by: str, line: GrowthLine, levels: Sequence[Level], most: int) -> list[Crossing]:
    """Where the cache reaches the weights and fills the budget, as far as the chart goes, in words."""
    found = []
    for level in levels:
        if by == "length":
            at = plan.crossover_tokens if level.meaning is MEANINGS["weights"] else plan.budget_crossover_tokens
        else:
            at = first_reaching(by, line, level.size)
        if at is not None and line.points[0][0] <= at <= most:
            found.append((level, at, f"{level.crossing}<br>{format_count(at)} {GROWS_WITH[by].unit}"))
    return sorted(found, key=lambda item: item[1])


def first_reaching(by: str, line: GrowthLine, size: int) -> int | None:
    """The smallest number of users, layers or heads at which the line reaches `size`."""
    if by == "users":
        one = line.points[0][1] // line.points[0][0]
        return -(-size // one) if one else None
    return next((x for x, reached in line.points if reached >= size), None)
