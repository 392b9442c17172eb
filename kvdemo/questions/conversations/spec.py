"""Will my conversations reuse it: the requests in order, and what a cache would hold for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kvdemo.errors import InvalidRequest
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.requests import checked_int, checked_text
from kvdemo.facts.results import Environment
from kvdemo.facts.templates import TemplateMessage, TemplateRequest

__all__ = [
    "MAX_LINES",
    "PAGE_SIZES",
    "Asked",
    "BadLine",
    "Check",
    "ConversationReuse",
    "ConversationsResult",
    "ConversationsSpec",
    "Kind",
    "Lint",
    "Miss",
    "SharedBeginning",
    "Talk",
    "Totals",
    "TurnReuse",
]

PAGE_SIZES = (1, 16, 128, 256)
MAX_LINES = 5000
MAX_PAGE = 1_000_000

Kind = Literal[
    "first_request",
    "system_changed",
    "tools_changed",
    "tools_reordered",
    "message_changed",
    "history_shortened",
    "reasoning_dropped",
    "whitespace_changed",
    "date_changed",
    "generation_prompt",
    "template_rerenders",
    "tokens_joined",
    "other_tokens",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and its answer.

    answer       None: not known, so that only the prompt is held
    answer_ids   the tokens that the model wrote, where they are known; None: the answer is tokenised as text
    line         of the file, from 1; 0 for none
    """

    request: TemplateRequest
    answer: TemplateMessage | None = None
    answer_ids: tuple[int, ...] | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Talk:
    """The requests of one conversation, in the order in which they were sent."""

    id: str
    asked: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not answered, and why; the others are."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class ConversationsSpec:
    """Conversations, none for the model's template alone.

    page_sizes   tokens of a page: engines share whole pages only
    model        whose tokenizer and template; None: the loaded model's
    bad          lines that could not be read
    """

    conversations: tuple[Talk, ...] = ()
    page_sizes: tuple[int, ...] = PAGE_SIZES
    model: str | None = None
    bad: tuple[BadLine, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.page_sizes) <= 8:
            raise InvalidRequest("page_sizes", "choose between one and 8")
        if len(set(self.page_sizes)) < len(self.page_sizes):
            raise InvalidRequest("page_sizes", "each may be named once")
        for size in self.page_sizes:
            checked_int("page_sizes", size, 1, MAX_PAGE)
        if self.model is not None:
            checked_text("model", self.model, max_chars=1000)
        if self.bad and not self.conversations:
            first = self.bad[0]
            more = f", and {len(self.bad) - 1:,} more lines" if len(self.bad) > 1 else ""
            raise InvalidRequest("file", f"no line can be read: line {first.line:,}: {first.why}{more}")


@dataclass(frozen=True, slots=True)
class Miss:
    """The first token in which a prompt differs from what is held.

    index                 counted from 0
    held_text, new_text   both sides with a little around; message: where it lies
    kind, cause           why, as a key and in plain words; advice: "" where nothing can be done about it
    """

    index: int
    held_text: str
    new_text: str
    message: str
    kind: Kind
    cause: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class TurnReuse:
    """What one request would find in the cache.

    held_tokens     prompt and answer of the turn before, less one token
    shared_tokens   longest common beginning of these and the prompt
    reused_tokens   by page size: the whole pages in min(shared, held, prompt - 1)
    again_tokens    positions that were held and are processed again: min(held, prompt - 1) - shared
    assumed         the held answer was tokenised as text; the model may have written it in other tokens
    """

    prompt_tokens: int
    held_tokens: int
    shared_tokens: int
    reused_tokens: dict[str, int]
    again_tokens: int
    miss: Miss | None = None
    assumed: bool = True
    line: int = 0

    @property
    def new_tokens(self) -> int:
        """Processed for the first time, or because a page or the last token is never reused."""
        return self.prompt_tokens - self.again_tokens - next(iter(self.reused_tokens.values()))


@dataclass(frozen=True, slots=True)
class ConversationReuse:
    id: str
    turns: tuple[TurnReuse, ...]


@dataclass(frozen=True, slots=True)
class SharedBeginning:
    """What the first requests of several conversations begin with; saved_tokens: by page size, if it were kept once."""

    tokens: int
    conversations: int
    text_start: str
    saved_tokens: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Totals:
    """Over all turns. avoidable_tokens: processed again for a cause that can be avoided; again_tokens: for any, by kind.

    saved_s   by page size, s: an estimate from the loaded model's measured prefill speed; None where that is not known
    """

    prompt_tokens: int
    reused_tokens: dict[str, int]
    avoidable_tokens: int
    again_tokens: dict[str, int] = field(default_factory=dict)
    prefill_tokens_per_s: float | None = None

    @property
    def saved_s(self) -> dict[str, float] | None:
        speed = self.prefill_tokens_per_s
        return None if not speed else {page: tokens / speed for page, tokens in self.reused_tokens.items()}


@dataclass(frozen=True, slots=True)
class Check:
    """Is the template prefix-stable in this case? None: it refuses the case, and `note` says how."""

    name: str
    stable: bool | None
    first_difference: Miss | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Lint:
    """The model's template by itself, without anybody's conversation."""

    stable_over_turns: bool | None
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class ConversationsResult:
    """spec: without the conversations, which stay where they are. stopped_because: conversations (all), stopped."""

    spec: ConversationsSpec
    model: ModelFacts
    environment: Environment
    conversations: tuple[ConversationReuse, ...]
    shared_beginnings: tuple[SharedBeginning, ...]
    totals: Totals
    template: Lint
    refused: tuple[BadLine, ...] = ()
    stopped_because: str = "conversations"
