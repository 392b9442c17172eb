"""A conversation survives a reload of its tab: kept in this tab's own storage by assets/page.js, and read back with every check
that an opened file goes through. The server keeps nothing for it; Clear empties it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import gradio as gr
from markupsafe import Markup

from kvdemo.components.markup import fragment, text
from kvdemo.components.wiring import LIGHT, Updates, bound, updates
from kvdemo.errors import KvdemoError
from kvdemo.experiments.documents import loads
from kvdemo.settings import Settings
from kvdemo.ui.chat import turns
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.conversation_file import as_json, conversation_of
from kvdemo.ui.chat.layout import ChatParts, show

__all__ = ["ChatReload", "back", "chat_reload", "to_keep", "wire_reload"]

MOST_CHARS = 1_000_000  # of one tab's storage, which browsers limit to about five times that
LOST = "The page was loaded again while this answer was written. Retry writes it once more."
BACK = "Your conversation is here again. Its cache went with the old page: your next message makes it once more."


@dataclass(frozen=True, slots=True)
class ChatReload:
    """kept: what the tab is to keep; back: where it puts that after a reload."""

    kept: gr.Markdown
    back: gr.Textbox


def chat_reload() -> ChatReload:
    """Lay out both ends, unseen."""
    return ChatReload(
        fragment(elem_id="chat-keep-here"),
        gr.Textbox(label="Kept conversation", visible="hidden", elem_id="chat-bring-back"),
    )


def wire_reload(parts: ChatParts, reload: ChatReload, settings: Settings) -> None:
    """Every change of the conversation is handed to the tab; what the tab hands back is opened."""
    system_prompt = parts.form.fields["system_prompt"]
    # What is drawn changes with it; a State's own change event wants a hash, which records do not have.
    parts.past.change(to_keep, [parts.conversation, system_prompt], reload.kept, **LIGHT)
    bringing = bound(back, parts, settings.limits.upload_bytes)
    reload.back.change(bringing, [reload.back, parts.conversation], [*parts.outputs, system_prompt], **LIGHT)


def to_keep(conversation: Conversation, system_prompt: str) -> str:
    """The conversation as a fragment that the tab stores word for word; empty for an empty one."""
    if not conversation.turns:
        return Markup('<pre class="kv-keep-here"></pre>')
    document = as_json(conversation, None, system_prompt, indent=None)
    if len(document) > MOST_CHARS:  # the texts matter more than the figures
        bare = tuple(replace(turn, record=None) for turn in conversation.turns)
        document = as_json(replace(conversation, turns=bare), None, system_prompt, indent=None)
    return Markup('<pre class="kv-keep-here">{}</pre>').format(text(document) if len(document) <= MOST_CHARS else "")


def back(parts: ChatParts, limit_bytes: int, kept: str, conversation: Conversation) -> Updates:
    """What the tab has kept, in the place of an empty conversation; what cannot be read is left out without a word."""
    if conversation.turns or not kept or len(kept) > limit_bytes:
        return updates({})
    try:
        found, system_prompt = conversation_of(loads(kept))
    except KvdemoError:
        return updates({})
    if not found.turns:
        return updates({})
    last = found.turns[-1]
    if not last.answer and not last.note:
        found = replace(found, turns=(*found.turns[:-1], replace(last, note=LOST)))
    shown = show(parts, {**turns.opened(found), "notice": turns.notice(BACK, kind="hint")})
    return {**shown, parts.form.fields["system_prompt"]: system_prompt}
