"""Step by step: one token for each press, each a run of its own on the visitor's kept cache, and a look into that cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import text
from kvdemo.components.wiring import CHATTING, MODEL, Updates, bound, owner_of, unhurried, updates
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.step_words import step_words
from kvdemo.facts.requests import checked_int
from kvdemo.facts.steps import CacheLook, Stepped
from kvdemo.facts.units import format_count
from kvdemo.ui.chat import turns
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.form import ChatStepping, Stepping
from kvdemo.ui.chat.layout import ChatParts, show
from kvdemo.ui.chat.messages import past_turns
from kvdemo.ui.chat.settings import ChatSettings

__all__ = ["NORMS", "look_card", "wire_stepping"]

MOST_BARS = 96
MOST_ROWS = 128
NORMS = "How long the stored vectors are (L2 norm), position by position: how large the stored numbers are, not what they mean."


def wire_stepping(parts: ChatParts, stepping: ChatStepping, backend: Backend, place: str) -> None:
    """A press makes a token; another layer or head is another look."""
    chosen = [stepping.layer, stepping.head]
    drawn = [stepping.words, stepping.looked, stepping.state]
    given = [parts.conversation, stepping.state, parts.box, *chosen, *parts.form.fields.values()]
    stepping.button.click(bound(step, parts, stepping, backend, place), given, [*parts.outputs, *drawn], **MODEL)
    gr.on(
        [stepping.layer.change, stepping.head.change],
        bound(look, stepping, backend, place),
        [stepping.state, *chosen],
        [stepping.words, stepping.looked],
        trigger_mode="always_last",
        **MODEL,
    )


def step(
    parts: ChatParts,
    stepping: ChatStepping,
    backend: Backend,
    place: str,
    request: gr.Request,
    conversation: Conversation,
    before: Stepping,
    box: Any,
    layer: Any,
    head: Any,
    *form: Any,
) -> Iterator[Updates]:
    """One token more; the first press takes the message from the composer."""
    owner, mine = owner_of(request, place), object()
    if parts.answering.setdefault(owner, mine) is not mine:
        yield {stepping.words: str(said(turns.BUSY))}
        return
    try:
        settings = ChatSettings(*form)
        now = going_on(before, conversation) or begun(backend, conversation, box, settings)
        steps = backend.step(
            now.messages,
            now.made,
            strategy=settings.strategy,
            layer=chosen("layer", layer),
            head=chosen("head", head),
            owner=owner,
            reader=CHATTING,
        )
        for event in unhurried(steps):
            if isinstance(event, Stepped):
                yield drawn(parts, stepping, now, event)
            else:
                yield updates({})
    except KvdemoError as error:
        yield {stepping.words: str(said(str(error)))}
    finally:
        del parts.answering[owner]


def going_on(before: Stepping, conversation: Conversation) -> Stepping | None:
    """The same answer, if it has not ended and nothing else happened to the conversation."""
    return before if not before.ended and before.conversation == conversation else None


def begun(backend: Backend, conversation: Conversation, box: Any, settings: ChatSettings) -> Stepping:
    """A new answer, to the message in the composer; InvalidRequest where there is none."""
    backend.describe()
    if not isinstance(box, str) or not box.strip():
        raise InvalidRequest("message", "is empty: write one, then press Next token")
    asked = conversation.asked(box)
    system_prompt = settings.system_prompt if isinstance(settings.system_prompt, str) else ""
    return Stepping(asked, asked.messages(system_prompt), ended=False)


def chosen(name: str, value: Any) -> int:
    return checked_int(name, value, 0, 100_000)


def drawn(parts: ChatParts, stepping: ChatStepping, before: Stepping, event: Stepped) -> Updates:
    """The answer with one token more, what the step did, and what the cache holds now."""
    number = len(event.made)
    word = "token" if number == 1 else "tokens"
    answered = before.conversation.answered(
        event.text,
        figures=f"{format_count(number)} {word}, one at a time",
        note="" if event.ended else "Not ended yet.",
    )
    after = Stepping(answered, before.messages, event.made, event.record.cache_bytes or 0, event.ended)
    view: turns.ChatView = {"conversation": answered, "past": past_turns(answered), "live": "", "notice": ""}
    if number == 1:
        view["box"] = ""
    return {
        **show(parts, view),
        stepping.words: str(said(words_of(event, before.held_bytes, before.conversation.turns[-1].answer))),
        stepping.looked: "" if event.look is None else str(look_card(event.look)),
        stepping.state: after,
    }


def words_of(event: Stepped, held_before: int, text_before: str) -> str:
    """What this step did, in words."""
    record = event.record
    computed, read = sum(record.positions_computed or ()), record.reused_tokens or 0
    layers = event.look.layers if event.look is not None else ()
    more = None if event.look is None else (record.cache_bytes or 0) - (held_before if read else 0)
    did = step_words(
        f"Step {format_count(len(event.made))}",
        computed,
        read,
        more_bytes=more,
        layers=layers,
        again=event.look is None and len(event.made) > 1,
    )
    piece = event.text.removeprefix(text_before)
    shown = f' It wrote "{piece}".' if piece else " Nothing of it can be read yet."
    return f"{did}{' The answer ended.' if event.ended else shown}"


def look(
    stepping: ChatStepping, backend: Backend, place: str, request: gr.Request, state: Stepping, layer: Any, head: Any
) -> Iterator[Updates]:
    """Another layer or head of what is kept now."""
    if not state.made:
        yield updates({})
        return
    try:
        looks = backend.look(
            layer=chosen("layer", layer), head=chosen("head", head), owner=owner_of(request, place), reader=CHATTING
        )
        for found in unhurried(looks):
            if isinstance(found, CacheLook):
                yield {stepping.looked: str(look_card(found))}
            else:
                yield updates({})
    except KvdemoError as error:
        yield {stepping.words: str(said(str(error)))}


def said(words: str) -> Markup:
    return Markup('<p class="kv-said" role="status">{}</p>').format(Markup(text(words)))


def look_card(found: CacheLook) -> Markup:
    """What the cache holds now: a strip of positions, the map of layers and heads, the norms of one head."""
    return Markup("{}{}{}").format(strip(found), layer_map(found), norms(found))


def strip(found: CacheLook) -> Markup:
    """The positions of the text: forgotten, or held; the newest token is not in the cache yet."""
    held = found.held[found.layer]
    if held is None:
        return Markup("")
    gone = found.tokens - held
    parts = [("unread", gone, "forgotten"), ("reused", held, "held")]
    bars = Markup("").join(
        Markup('<span class="kv-part kv-part-{}" style="flex:{} 1 0"></span>').format(kind, count)
        for kind, count, _ in (*parts, ("newest", 1, ""))
        if count
    )
    words = ", ".join(f"{format_count(count)} {name}" for _, count, name in parts if count)
    layer = f"Layer {found.layer}: {words}; the newest token is not in the cache yet."
    return Markup('<div class="kv-bar" role="img" title="{}">{}</div><p class="kv-small">{}</p>').format(
        layer, bars, layer
    )


def layer_map(found: CacheLook) -> Markup:
    """Layers by KV heads: how much of the text each holds."""
    rows = []
    for index, (layer, held) in enumerate(list(zip(found.layers, found.held, strict=True))[:MOST_ROWS]):
        heads = layer.keys_shape[1] if layer.keys_shape is not None and len(layer.keys_shape) == 4 else 1
        share = 100.0 if held is None else 100 * held / max(1, found.tokens)
        words = f"Layer {index}: {'not known how much' if held is None else f'{format_count(held)} positions'}, {heads} KV heads"
        cells = Markup("").join(
            Markup('<span class="kv-cell{}"><span style="width:{:.1f}%"></span></span>').format(
                " kv-cell-chosen" if (index, head) == (found.layer, found.head) else "", share
            )
            for head in range(min(heads, 16))
        )
        rows.append(Markup('<div class="kv-map-row" title="{}">{}</div>').format(words, cells))
    more = len(found.layers) - len(rows)
    below = f" The first {MOST_ROWS} layers." if more > 0 else ""
    caption = f"One row per layer, one cell per KV head, filled as far as the text is held.{below}"
    return Markup(
        '<h3 class="kv-card-title">Layers and heads</h3><div class="kv-map" role="img" title="{}">{}</div>'
        '<p class="kv-small">{}</p>'
    ).format(caption, Markup("").join(rows), caption)


def norms(found: CacheLook) -> Markup:
    """The norms of keys and values of the chosen head, as two rows of bars."""
    if not found.key_norms:
        return Markup('<p class="kv-small">{}</p>').format(
            "The vectors of a cache of this kind cannot be read one by one."
        )
    title = f"Layer {found.layer}, KV head {found.head}"
    return Markup('<h3 class="kv-card-title">{}</h3>{}{}<p class="kv-small">{}</p>').format(
        title, bars("Keys", found.key_norms, found.first), bars("Values", found.value_norms, found.first), NORMS
    )


def bars(name: str, values: Sequence[float], first: int) -> Markup:
    """One bar per position, or per few positions where there are very many."""
    each = -(-len(values) // MOST_BARS)
    means = [fmean(values[at : at + each]) for at in range(0, len(values), each)]
    top = max(means) or 1.0
    drawn_bars = Markup("").join(
        Markup('<span style="height:{:.1f}%"></span>').format(max(2.0, 100 * value / top)) for value in means
    )
    last = first + len(values)
    words = (
        f"{name}: {min(values):.2f} to {max(values):.2f}, positions {format_count(first + 1)} to {format_count(last)}"
    )
    return Markup('<p class="kv-small">{}</p><div class="kv-norms" role="img" title="{}">{}</div>').format(
        words, words, drawn_bars
    )
