"""What conversations would reuse, in words: how much, why not more, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kvdemo.experiments.pieces import Pieces
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.units import format_count, format_seconds
from kvdemo.questions.conversations.spec import Check, ConversationsResult, Kind, Lint, Miss, Totals, TurnReuse

METHOD = (
    "Predicted from token ids through the model's own chat template; nothing was run. Held after a turn: its prompt and "
    "answer less one token. Shared: the longest common beginning of what is held and the next prompt. Reused: the whole "
    "pages in the smallest of shared, held and prompt - 1. An answer out of a file is tokenised as text, which is assumed: "
    "a model may have written it in other tokens."
)
CAPTION = "The worst misses: what was held, what came instead, and why"
PRIVATE = "The conversations stay on this machine; files made of a result hold the few words around each miss."

BECAUSE: dict[Kind, str] = {
    "system_changed": "the system prompt changed",
    "tools_changed": "the list of tools changed",
    "tools_reordered": "the tools came in another order",
    "message_changed": "an earlier message changed",
    "history_shortened": "the history was shortened",
    "reasoning_dropped": "reasoning is left out of the history",
    "whitespace_changed": "the template changes white space in the history",
    "date_changed": "the template prints the date",
    "generation_prompt": "the template begins answers in another way than it writes them in the history",
    "template_rerenders": "the template writes earlier messages in another way",
    "tokens_joined": "the tokenizer joins characters across a boundary",
    "other_tokens": "the model had written the same text in other tokens",
    "unknown": "of something that is not known",
}


def headline(result: ConversationsResult) -> Pieces:
    """How much would be reused, and why not more?"""
    totals = result.totals
    if not totals.prompt_tokens:
        return _template_headline(result)
    page = next(iter(totals.reused_tokens))
    pieces: Pieces = [(f"{share_words(totals.reused_tokens[page], totals)} of prompt tokens would be reused", True)]
    pieces.append((f"{' at pages of ' + page if page != '1' else ''}{_pages_words(totals)}.", False))
    worst = max(totals.again_tokens, key=lambda kind: totals.again_tokens[kind], default=None)
    if worst is None:
        pieces.append((" Nothing that was held is processed again.", True))
    else:
        share = share_words(totals.again_tokens[worst], totals)
        pieces.append((f" {share} are processed again because {_because(result, worst)}.", True))
        others = sum(totals.again_tokens.values()) - totals.again_tokens[worst]
        if others:
            pieces.append((f" {share_words(others, totals)} for other causes.", False))
    if totals.saved_s is not None:
        saved = format_seconds(totals.saved_s[page])
        pieces.append(
            (f" About {saved} of prefill avoided (estimate from this model's measured prefill speed).", False)
        )
    if result.stopped_because == "stopped":
        pieces.append((" Stopped before all were compared.", False))
    return pieces


def _template_headline(result: ConversationsResult) -> Pieces:
    lint = result.template
    if result.refused:
        return [(f"None of the requests could be compared: {_refused(result)[0]}", True)]
    if lint.stable_over_turns is None:
        return [("The template could not be tried over turns", True), (f": {lint.checks[0].note}.", False)]
    unstable = [check.name for check in lint.checks if check.stable is False]
    if not unstable:
        return [("This template is prefix-stable: every turn begins with what the turn before leaves held.", True)]
    words = "is" if lint.stable_over_turns else "is not"
    return [
        (f"This template {words} prefix-stable over turns.", True),
        (f" A cached beginning is lost {_listed(unstable)}.", False),
    ]


def share_words(tokens: int, totals: Totals) -> str:
    """ "71 %"; less than one percent with a digit."""
    share = 100 * tokens / totals.prompt_tokens if totals.prompt_tokens else 0.0
    return f"{share:.1f} %" if 0 < share < 1 or 99 < share < 100 else f"{share:.0f} %"


def _pages_words(totals: Totals) -> str:
    """ " (69 % at whole pages of 16, 60 % of 128)"."""
    _, *more = totals.reused_tokens.items()
    if not more:
        return ""
    first, *rest = [(page, share_words(tokens, totals)) for page, tokens in more]
    words = [f"{first[1]} at whole pages of {first[0]}", *(f"{share} of {page}" for page, share in rest)]
    return f" ({', '.join(words)})"


def _because(result: ConversationsResult, kind: str) -> str:
    """The cause as most of its misses have it: "the system prompt carries the time of day"."""
    said: dict[str, int] = {}
    for turn in _turns(result):
        if turn.miss is not None and turn.miss.kind == kind:
            said[turn.miss.cause] = said.get(turn.miss.cause, 0) + turn.again_tokens
    most = max(said, key=lambda cause: said[cause], default="")
    if kind == "system_changed" and most.startswith("The system prompt carries"):
        return f"the system prompt{most.removeprefix('The system prompt').rstrip('.')}"
    return BECAUSE.get(kind, BECAUSE["unknown"])  # type: ignore[call-overload,no-any-return]


def _turns(result: ConversationsResult) -> Iterable[TurnReuse]:
    return (turn for talk in result.conversations for turn in talk.turns)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def scope(result: ConversationsResult) -> str:
    """What was it worked out for?"""
    talks, turns = len(result.conversations), sum(len(talk.turns) for talk in result.conversations)
    counted = (
        f"{format_count(turns)} requests of {format_count(talks)} {'conversation' if talks == 1 else 'conversations'}"
    )
    about = [result.model.name, "tokenizer and chat template", *([counted] if turns else [])]
    return f"{', '.join(about)}. Predicted, not measured. Another model's template gives other numbers."


def so_far(step: object) -> str:
    """Nothing is known before all is compared."""
    return ""


def verdicts(result: ConversationsResult) -> list[str]:
    """The template by itself, and what can be done."""
    return [*lint_words(result.template), *advice_words(result)] if result.totals.prompt_tokens else []


def lint_words(lint: Lint) -> list[str]:
    return [_check_words(check) for check in lint.checks]


def _check_words(check: Check) -> str:
    said = {True: "yes", False: "no", None: "not tried"}[check.stable]
    why = ""
    if check.first_difference is not None:
        miss = check.first_difference
        why = f": first difference at token {format_count(miss.index + 1)}, {sides(miss)}. {miss.cause}"
    elif check.note:
        why = f": {check.note}"
    return f"Template prefix-stable {check.name}? {said}{why}"


def sides(miss: Miss) -> str:
    return f"held {_quoted(miss.held_text)}, now {_quoted(miss.new_text)}"


def _quoted(text: str) -> str:
    shown = text.replace("\n", "⏎")
    return f"“{shown}”"


def advice_words(result: ConversationsResult) -> list[str]:
    """What to do, the most tokens first."""
    gain: dict[str, int] = {}
    for turn in _turns(result):
        if turn.miss is not None and turn.miss.advice:
            words = f"{turn.miss.cause} {turn.miss.advice}"
            gain[words] = gain.get(words, 0) + turn.again_tokens
    ordered = sorted(gain, key=lambda words: gain[words], reverse=True)
    return [f"{words} ({format_count(gain[words])} tokens)" for words in ordered]


def open_points(result: ConversationsResult, decision: CacheDecision | None) -> list[str]:
    """What it does not tell."""
    return [
        "Whether an engine still has a beginning when the next turn comes: it evicts what was not used for long.",
        "How an engine routes requests: a beginning is reused only where it is held.",
        "The tokens that a model really wrote: answers out of a file are tokenised as text.",
        PRIVATE,
    ]


def request(result: ConversationsResult) -> list[tuple[str, str]]:
    """What was asked."""
    turns = sum(len(talk.turns) for talk in result.conversations)
    return [
        ("conversations", format_count(len(result.conversations))),
        ("requests", format_count(turns)),
        ("page sizes", ", ".join(map(str, result.spec.page_sizes))),
    ]


def remarks(result: ConversationsResult) -> list[str]:
    """What conversations have in common, totals, and lines that are not answered."""
    totals = result.totals
    said = []
    for beginning in result.shared_beginnings:
        saved = ", ".join(f"{format_count(tokens)} at {page}" for page, tokens in beginning.saved_tokens.items())
        said.append(
            f"{format_count(beginning.conversations)} conversations begin with the same {format_count(beginning.tokens)} "
            f"tokens, {_quoted(beginning.text_start[:60])}: kept once, it saves so many tokens by page size: {saved}."
        )
    if totals.prompt_tokens:
        again = sum(totals.again_tokens.values())
        said.append(
            f"Of {format_count(totals.prompt_tokens)} prompt tokens {format_count(again)} are processed again; "
            f"{format_count(totals.avoidable_tokens)} of these for a cause that can be avoided."
        )
    return [*said, *_refused(result)]


def _refused(result: ConversationsResult) -> list[str]:
    shown = [f"Line {bad.line:,}: {bad.why}" if bad.line else bad.why for bad in result.refused[:20]]
    more = len(result.refused) - len(shown)
    return [*shown, *([f"And {more:,} more lines that are not answered."] if more else [])]


def command(result: ConversationsResult) -> list[str]:
    """The conversations are in a file of one's own."""
    if result.totals.prompt_tokens:
        return []
    return [switch for page in result.spec.page_sizes for switch in ("--page-size", str(page))]
