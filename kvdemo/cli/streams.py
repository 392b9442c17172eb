"""stdout and stderr as a command needs them: whatever becomes of them, the work goes on and its files are written.

A closed stream is one that nobody reads; a character that a terminal does not know is shown as "?"; a pipe that breaks or a
disk that is full is remembered, and the exit status tells of it at the end.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

__all__ = ["failure_of", "forgiving", "is_read", "make_streams_forgiving"]


class _Forgiving(io.FileIO):
    """A file whose first failed write is remembered instead of raised; what comes after it goes nowhere."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


def make_streams_forgiving() -> None:
    """Replace sys.stdout and sys.stderr. To be called once, before anything is opened or printed."""
    # A file that is opened later must not take the number of a closed stream: libraries would write into it.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = forgiving(sys.stdout)
    sys.stderr = forgiving(sys.stderr)


def is_read(stream: TextIO) -> bool:
    """Was there anything at the other end when the program began?"""
    return getattr(stream, "name", None) != os.devnull


def failure_of(stream: TextIO) -> OSError | None:
    """Why what was printed did not arrive; None while all of it did."""
    stream.flush()
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Forgiving) else None


def forgiving(stream: TextIO | None) -> TextIO:
    """The same stream, in such a way that printing to it never raises; None: it is closed."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = getattr(stream.buffer, "raw", stream.buffer)  # there is no buffer in between with python -u
    if type(raw) is not io.FileIO:  # a console of Windows, which is no file
        stream.reconfigure(errors="replace")
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Forgiving(raw.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
