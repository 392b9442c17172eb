"""Bytes of a file as the text that somebody wrote: UTF-8, or UTF-16 as some editors and spreadsheets save it."""

from __future__ import annotations

import codecs

from kvdemo.errors import InvalidRequest

__all__ = ["text_of"]


def text_of(field: str, data: bytes, name: str = "the file") -> str:
    """The text without its byte order mark; UTF-16 needs one. InvalidRequest names the field and the byte otherwise."""
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        called = "UTF-16" if encoding == "utf-16" else "UTF-8"
        raise InvalidRequest(field, f"{name} is not {called} text (byte {error.start:,}); save it as UTF-8") from error
