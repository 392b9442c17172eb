"""What must be known about how prompts came to the model, said on every surface that shows a result. Pure."""

from __future__ import annotations

from kvdemo.experiments.tables import PlacedRuns

__all__ = ["notices"]


def notices(runs: PlacedRuns) -> tuple[str, ...]:
    """Each sentence once; where it is about some prompts of a set only, with their names in front."""
    about: dict[str, dict[object, None]] = {}
    prompts: dict[object, None] = {}
    for place, run in runs:
        prompts[place.get("prompt_id")] = None
        for words in run.notices:
            about.setdefault(words, {})[place.get("prompt_id")] = None
    return tuple(
        words
        if len(ids) == len(prompts)
        else f"{', '.join(map(str, list(ids)[:5]))}{' ...' if len(ids) > 5 else ''}: {words}"
        for words, ids in about.items()
    )
