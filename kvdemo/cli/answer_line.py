"""The figures of one answer."""

from __future__ import annotations

from kvdemo.facts.endpoint import NOT_REPORTED
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_bytes, format_count, format_seconds, format_speed

__all__ = ["answer_line"]


def answer_line(record: RunRecord) -> str:
    """The figures of one answer in one line."""
    if record.reported is not None:
        return _served(record)
    compiling = f"; compiling took {format_seconds(record.compile_s)} of it" if record.compile_s is not None else ""
    return (
        f"{format_count(record.prompt_tokens)} prompt tokens, {format_count(record.new_tokens)} new "
        f"({record.finish_reason}); first token {format_seconds(record.ttft_s)}; "
        f"{format_speed(record.decode_tokens_per_s)}; cache {format_bytes(record.cache_bytes)}; "
        f"{format_count(record.total_computed)} positions computed{compiling}"
    )


def _served(record: RunRecord) -> str:
    """Of a server: what was measured here, and what it said."""

    def said(count: int | None) -> str:
        return NOT_REPORTED if count is None else format_count(count)

    return (
        f"{format_count(record.new_tokens)} new tokens ({record.finish_reason}); first token {format_seconds(record.ttft_s)}; "
        f"{format_speed(record.decode_tokens_per_s)}; of the server, prompt tokens: {said(record.prompt_tokens)}, "
        f"reused: {said(record.reused_tokens)}, cache: {NOT_REPORTED}"
    )
