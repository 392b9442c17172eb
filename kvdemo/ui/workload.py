"""Your workload: six numbers that are asked once. Every form starts from them, and this browser keeps them.

Forms are changed only when one of these numbers is, never the other way round, so that nothing goes in circles.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.form_values import notice, refusal, typed_number
from kvdemo.components.markup import fragment, text
from kvdemo.components.wiring import LIGHT, Updates, bound, updates
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.complete_request import request_words, target_words
from kvdemo.experiments.question import Starts
from kvdemo.facts.units import format_count, format_seconds
from kvdemo.facts.workload import Workload
from kvdemo.questions.verdict import Readiness

__all__ = ["WorkloadParts", "build_workload", "kept_in_browser", "user_notices", "wire_workload"]

# Fixed, so that what a browser keeps outlives this process. It hides nothing: anybody at that browser can read and write it.
STORAGE_KEY, SECRET = "kvdemo.workload", "kvdemo.workload"
MOST_CHARS = 1000

LABELS = {
    "longest_prompt_tokens": "Longest prompt",
    "longest_answer_tokens": "Longest answer",
    "at_once": "Requests at once",
    "memory_gib": "Memory",
    "target_s": "Time target",
    "other_s": "Other time",
}
ASKED = {
    "longest_prompt_tokens": ("Longest prompt, tokens", "not said; or 2,000"),
    "longest_answer_tokens": ("Longest answer, tokens", "not said; or 300"),
    "at_once": ("Requests at once", "not said; or 4"),
    "memory_gib": ("Memory, GiB", "this machine's"),
    "target_s": ("Time target, s", "none; or 10"),
    "other_s": ("Other time, s", "not said; or 1.8"),
}
WHOLE = ("longest_prompt_tokens", "longest_answer_tokens", "at_once")
WHY = (
    "Compare and Memory start from these numbers, and “Ready to decide?” judges by them. The time target is for a complete "
    "request. Other time is the part of a request that is not generation, such as searching or the network. The numbers stay "
    "in this browser."
)
TITLE = "Your workload"


@dataclass(frozen=True, slots=True)
class WorkloadParts:
    """said: the numbers as they were last read without a mistake; words, user: what a user would notice."""

    place: gr.Accordion
    fields: dict[str, gr.Textbox]
    notice: gr.Markdown
    said: gr.State
    words: gr.Markdown
    user: gr.Plot


def kept_in_browser() -> gr.BrowserState:
    """Where the numbers stay. It must lie outside the tabs, whose parts are made only when somebody looks.

    As text: Gradio's part goes in circles over an object, which is another one each time it is looked at.
    """
    return gr.BrowserState("", storage_key=STORAGE_KEY, secret=SECRET)


def build_workload() -> WorkloadParts:
    """Lay it out in the current Blocks."""
    with gr.Accordion(TITLE, open=False, elem_id="workload", elem_classes="kv-card kv-workload") as place:
        with gr.Row(elem_classes="kv-workload-line"):
            fields = {
                name: gr.Textbox(
                    label=label, placeholder=nothing, max_lines=1, min_width=150, elem_id=f"workload-{name}"
                )
                for name, (label, nothing) in ASKED.items()
            }
        place_of_notice = fragment(elem_id="workload-notice")
        fragment(Markup('<p class="kv-small">{}</p>').format(WHY), elem_id="workload-why")
        words = fragment(elem_id="workload-words")
        user = gr.Plot(show_label=False, container=False, visible=False, elem_id="workload-user")
    return WorkloadParts(place, fields, place_of_notice, gr.State(Workload()), words, user)


def wire_workload(
    parts: WorkloadParts, kept: gr.BrowserState, starts: Starts, linked: Starts, arrived: Any
) -> tuple[Any, Any]:
    """What is typed is kept, and forms start from it; so does a page that opens, after `arrived`.

    linked   the parts among them that a link may have set: a link has the last word
    Gives both events back: what follows from these numbers comes after them.
    """
    fields, all_starts = list(parts.fields.values()), (*starts, *linked)
    started = list({part._id: part for part, _ in all_starts}.values())
    typed = gr.on(
        [field.change for field in fields],
        bound(say, parts, kept, all_starts),
        [parts.said, *fields],
        [parts.place, parts.said, kept, parts.notice, *started],
        trigger_mode="always_last",
        **LIGHT,
    )
    restoring = bound(recalled, parts, starts, linked)
    restored = arrived.then(restoring, kept, [parts.place, parts.said, *fields, *started], **LIGHT)
    return typed, restored


def say(parts: WorkloadParts, kept: gr.BrowserState, starts: Starts, said: Workload, *typed: Any) -> Updates:
    """The numbers as they are typed; a mistake is told by its field, and all stays as it was."""
    try:
        wanted = read(dict(zip(parts.fields, typed, strict=True)))
    except KvdemoError as error:
        return {parts.notice: notice(refusal(error, LABELS))}
    return {
        parts.place: gr.update(label=title(wanted)),
        parts.said: wanted,
        kept: json.dumps(asdict(wanted)),
        parts.notice: "",
        **started_from(starts, said, wanted),
    }


def recalled(parts: WorkloadParts, starts: Starts, linked: Starts, request: gr.Request, kept: Any) -> Updates:
    """What this browser has kept; what is broken is dropped."""
    wanted = Workload.kept(opened(kept))
    if wanted == Workload():
        return updates({})
    shown = {field: written(getattr(wanted, name)) for name, field in parts.fields.items()}
    named = {*request.query_params} - {"tab", "result", "question"}
    free = starts if any(not name.startswith("__") for name in named) else (*starts, *linked)
    return {
        parts.place: gr.update(label=title(wanted)),
        parts.said: wanted,
        **shown,
        **started_from(free, Workload(), wanted),
    }


def opened(kept: Any) -> Any:
    """The text that a browser kept as plain values; None for what is no such text."""
    if not isinstance(kept, str) or len(kept) > MOST_CHARS:
        return None
    try:
        return json.loads(kept)
    except (ValueError, RecursionError):
        return None


def read(typed: dict[str, Any]) -> Workload:
    """The six numbers out of boxes of text; InvalidRequest names the first that is none."""
    return Workload(**{name: (whole if name in WHOLE else typed_number)(name, value) for name, value in typed.items()})


def whole(name: str, typed: Any) -> Any:
    """A whole number as people write it: 2000, 2,000 or 2_000."""
    if not isinstance(typed, str):
        return typed
    digits = "".join(char for char in typed if char not in ",_ \u00a0\u202f")
    if not digits:
        return None
    if not (digits.isascii() and digits.isdigit() and len(digits) < 12):
        raise InvalidRequest(name, f"{typed.strip()[:20]!r} is not a whole number")
    return int(digits)


def written(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.12g}"


def started_from(starts: Starts, before: Workload, now: Workload) -> Updates:
    """The parts whose number is another one than before; what somebody typed there for other reasons stays."""
    values = ((part, start(before), start(now)) for part, start in starts)
    return {part: new for part, old, new in values if new is not None and new != old}


def user_notices(parts: WorkloadParts, found: Readiness) -> Updates:
    """A complete request in its parts, in words and drawn; nothing while it is not known."""
    if found.request is None:
        return {parts.words: "", parts.user: gr.update(value=None, visible=False)}
    from kvdemo.charts.request_chart import request_chart

    said = f"{request_words(found.request)} {target_words(found.request, found.target_s)}".rstrip()
    return {
        parts.words: Markup("<p>{}</p>").format(text(said)),
        parts.user: gr.update(value=request_chart(found.request, found.target_s), visible=True),
    }


def title(wanted: Workload) -> str:
    """The heading says what is known, so that it need not be opened to see."""
    known = [
        *_tokens(wanted.longest_prompt_tokens, "of prompt"),
        *_tokens(wanted.longest_answer_tokens, "of answer"),
        *([f"{format_count(wanted.at_once)} at once"] if wanted.at_once is not None else []),
        *([f"{wanted.memory_gib:g} GiB"] if wanted.memory_gib is not None else []),
        *([f"target {format_seconds(wanted.target_s)}"] if wanted.target_s is not None else []),
        *([f"{format_seconds(wanted.other_s)} elsewhere"] if wanted.other_s is not None else []),
    ]
    return f"{TITLE}: {', '.join(known)}" if known else TITLE


def _tokens(count: int | None, what: str) -> list[str]:
    return [] if count is None else [f"{format_count(count)} tokens {what}"]
