"""The figures of one answer."""

from __future__ import annotations

from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_bytes, format_count, format_seconds, format_speed

__all__ = ["answer_line"]


def answer_line(record: RunRecord) -> str:
    """The figures of one answer in one line."""
    compiling = f"; compiling took {format_seconds(record.compile_s)} of it" if record.compile_s is not None else ""
    return (
        f"{format_count(record.prompt_tokens)} prompt tokens, {format_count(record.new_tokens)} new "
        f"({record.finish_reason}); first token {format_seconds(record.ttft_s)}; "
        f"{format_speed(record.decode_tokens_per_s)}; cache {format_bytes(record.cache_bytes)}; "
        f"{format_count(record.total_computed)} positions computed{compiling}"
    )
