"""What is in force now, on top of Compare: which cache a plain call of generate uses for the loaded model, and who decided.

The answer costs seconds and needs torch, so it is asked for once the model is loaded, outside the page's event loop; the
backend keeps it.
"""

from __future__ import annotations

from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import text
from kvdemo.errors import KvdemoError
from kvdemo.facts.decision import CacheDecision, InspectSpec
from kvdemo.facts.model import ModelFacts

__all__ = ["NOT_YET", "decision_for", "decision_line", "in_force_line"]

NOT_YET = Markup('<div class="kv-force"><p>In force now: known as soon as the model is loaded.</p></div>')


def in_force_line(backend: Backend) -> str:
    """What is in force for a plain call, or why that is not known."""
    try:
        return decision_line(backend.inspect(InspectSpec()))
    except KvdemoError as error:
        return Markup('<div class="kv-force"><p>In force now: not known. {}</p></div>').format(text(error))


def decision_line(decision: CacheDecision) -> str:
    """One sentence, and each conflict as a small line."""
    what, rest = _parted(decision.sentence())
    conflicts = Markup("").join(Markup("<li>{}</li>").format(text(sentence)) for sentence in decision.conflicts)
    off = "" if decision.value else " kv-force-off"
    return Markup('<div class="kv-force{}"><p>In force now: <strong>{}</strong>{}</p>{}</div>').format(
        off, text(what), text(rest), Markup("<ul>{}</ul>").format(conflicts) if conflicts else ""
    )


def decision_for(backend: Backend, model: ModelFacts) -> CacheDecision | None:
    """What is in force for this model; None where it is not the loaded one, or nobody can tell."""
    try:
        loaded = backend.describe()
        same = (loaded.name, loaded.revision) == (model.name, model.revision)
        same = same and (None in (loaded.hub_id, model.hub_id) or loaded.hub_id == model.hub_id)
        return backend.inspect(InspectSpec()) if same else None
    except KvdemoError:
        return None


def _parted(sentence: str) -> tuple[str, str]:
    """ "cache on (library default), ..." as what is strong and the rest."""
    for mark in (" (", ": "):
        head, found, rest = sentence.partition(mark)
        if found:
            return head, found + rest
    return sentence, ""
