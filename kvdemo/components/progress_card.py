"""Where the headline will stand: what is running, how far, and time left."""

from __future__ import annotations

from markupsafe import Markup

from kvdemo.components.markup import text
from kvdemo.facts.results import Progress
from kvdemo.facts.units import format_count, format_seconds

__all__ = ["progress_card"]


def progress_card(progress: Progress | None, unit: str = "runs") -> str:
    """Where the headline will stand: what is running, how far, and time left. `unit`: what is counted."""
    words, share = ["Getting ready"], 0.0
    if progress is not None:
        words = [progress.phase]
        if progress.of:
            words.append(f"{format_count(progress.done)} of {format_count(progress.of)} {unit} done")
            share = 100 * progress.done / progress.of
        left_s = progress.left_s
        words.append(f"{_whole(progress.elapsed_s)} so far" if left_s is None else f"about {_whole(left_s)} left")
    return Markup(
        '<div class="kv-card kv-headline kv-headline-running"><p>{}</p><div class="kv-thin-bar">'
        '<span style="width:{:.1f}%"></span></div></div>'
    ).format(text(" · ".join(words)), share)


def _whole(seconds: float) -> str:
    """A time in whole seconds: it is only an estimate."""
    return f"{max(1, round(seconds))} s" if seconds < 100 else format_seconds(seconds)
