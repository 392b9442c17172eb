"""Keep this, and Go back: what to write for the chosen arm and for what was in force before, each ready to copy."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import code_block, text
from kvdemo.errors import KvdemoError
from kvdemo.experiments.question import AnyResult, Question
from kvdemo.facts.decision import CacheAdvice, InspectSpec
from kvdemo.ui.compare.in_force import decision_for

__all__ = ["advice_for", "arms", "fastest", "keep_card"]


def arms(question: Question[Any, Any], result: AnyResult) -> list[tuple[str, str]]:
    """(label, key) of the arms among which to choose; none where a strategy ran beside itself alone."""
    one = question.comparison(result)
    keys = () if one is None or len(one.spec.strategies) < 2 else one.spec.strategies
    return [(one.row(key).label, key) for key in keys if one is not None]


def fastest(question: Question[Any, Any], result: AnyResult) -> str | None:
    """The arm with the largest gain over the baseline; the baseline where none gained, or nothing was compared."""
    one = question.comparison(result)
    return one.fastest or one.spec.strategies[0] if one is not None and arms(question, result) else None


def advice_for(backend: Backend, question: Question[Any, Any], result: AnyResult, chosen: Any) -> CacheAdvice | None:
    """From what is in force to the chosen arm and back; None where there is nothing to choose, and where the result came
    from a file of another model, or of an arm that cannot be used here."""
    one = question.comparison(result)
    if (
        one is None
        or chosen not in [key for _, key in arms(question, result)]
        or decision_for(backend, one.model) is None
    ):
        return None
    call = json.dumps({"max_new_tokens": one.spec.max_new_tokens, "do_sample": not one.spec.sampling.greedy})
    needed = max((run.prompt_tokens or 0 for run in one.runs), default=0) + one.spec.max_new_tokens
    try:
        return backend.advice(chosen, num_tokens=needed, spec=InspectSpec(generate_kwargs=call))
    except KvdemoError:
        return None


def keep_card(backend: Backend, question: Question[Any, Any], result: AnyResult, chosen: Any) -> str:
    """The calls, the file, and the difference of the two calls; or the question's own lines, where it has some."""
    if question.code:
        return Markup('<div><h2 class="kv-card-title">The lines that do it</h2>{}</div>').format(
            code_block(question.code)
        )
    labels = {key: name for name, key in arms(question, result)}
    if not isinstance(chosen, str) or chosen not in labels:
        return ""
    change = advice_for(backend, question, result, chosen)
    if change is None:
        words = "What was in force for this model is not known here: run the comparison on this machine first."
        return Markup('<p class="kv-small">{}</p>').format(words)
    label = labels[chosen]
    notes = Markup("").join(Markup('<p class="kv-small">{}</p>').format(text(note)) for note in change.notes)
    return Markup(
        '<div class="kv-change"><div><h2 class="kv-card-title">Keep this: {}</h2>{}{}</div><div>'
        '<h2 class="kv-card-title">Go back: what was in force before</h2>{}{}</div><div>'
        '<h2 class="kv-card-title">The difference of the two calls</h2>{}{}</div></div>'
    ).format(
        text(label),
        code_block(change.keep_call),
        _file("Where the call cannot be changed, the same in generation_config.json:", change.keep_file_text),
        code_block(change.back_call),
        _file("and generation_config.json as it was:", change.back_file_text),
        code_block(change.diff or "none"),
        notes,
    )


def _file(words: str, content: str) -> str:
    """JSON to copy under these words, where there is any; then what else to do, in words."""
    end = content.rfind("}") + 1 if content.startswith("{") else 0
    rest = content[end:].strip()
    values = Markup('<p class="kv-small">{}</p>{}').format(words, code_block(content[:end])) if end else ""
    return values + (Markup('<p class="kv-small">{}</p>').format(text(rest)) if rest else "")
