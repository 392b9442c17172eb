"""Numbers as people read them, each with its unit: the one place that rounds.

1 MiB = 2**20 bytes, 1 GiB = 2**30 bytes. A missing number is "n/a", never 0.
"""

from __future__ import annotations

import math

__all__ = [
    "NOT_AVAILABLE",
    "format_bytes",
    "format_count",
    "format_parameters",
    "format_ratio",
    "format_seconds",
    "format_speed",
]

NOT_AVAILABLE = "n/a"


def format_seconds(seconds: float | None) -> str:
    """0.0338 -> "33.8 ms", 17.31 -> "17.3 s", 125 -> "2 min 5 s"."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_AVAILABLE
    if seconds < 0:
        return f"-{format_seconds(-seconds)}"
    if seconds == 0:
        return "0 ms"
    milliseconds = seconds * 1000
    if milliseconds < 0.1:
        return f"{milliseconds:.1e} ms"
    for limit, digits in ((9.995, 2), (99.95, 1), (999.5, 0)):
        if milliseconds < limit:
            return f"{milliseconds:.{digits}f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def format_bytes(num_bytes: int | float | None) -> str:
    """5_662_310 -> "5.4 MiB", 10_737_418_240 -> "10.00 GiB"."""
    if num_bytes is None or not math.isfinite(num_bytes):
        return NOT_AVAILABLE
    if num_bytes < 0:
        return f"-{format_bytes(-num_bytes)}"
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B"
    for power, unit in ((10, "KiB"), (20, "MiB"), (30, "GiB"), (40, "TiB")):
        value = num_bytes / 2**power
        if value < 1023.5 or unit == "TiB":
            break
    digits = 0 if value >= 99.95 else 2 if unit in ("GiB", "TiB") else 1
    return f"{value:,.{digits}f} {unit}"


def format_count(count: int | float | None) -> str:
    """7620 -> "7,620"."""
    return NOT_AVAILABLE if count is None or not math.isfinite(count) else f"{count:,.0f}"


def format_parameters(count: int | None) -> str:
    """134_515_008 -> "134.5 M", 8_030_261_248 -> "8.0 B": thousand, million, billion (10**9)."""
    if count is None or not math.isfinite(count):
        return NOT_AVAILABLE
    for limit, divisor, unit in ((999_950, 1e3, "k"), (999_950_000, 1e6, "M")):
        if count < limit:
            return f"{count / divisor:.1f} {unit}" if count >= 1000 else f"{count}"
    return f"{count / 1e9:,.1f} B"


def format_ratio(ratio: float | None) -> str:
    """1.013 -> "1.01", 4.21 -> "4.2", 61.95 -> "62": as many digits as such ratios repeat."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_AVAILABLE
    digits = 2 if ratio < 1.995 else 1 if ratio < 19.95 else 0
    return f"{ratio:,.{digits}f}"


def format_speed(tokens_per_s: float | None) -> str:
    """29.62 -> "29.6 tok/s"."""
    if tokens_per_s is None or not math.isfinite(tokens_per_s):
        return NOT_AVAILABLE
    digits = 1 if tokens_per_s < 999.5 else 0
    return f"{tokens_per_s:,.{digits}f} tok/s"
