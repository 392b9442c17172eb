"""Token ids to text, one id at a time: never half a character, and at the end exactly the whole decode.

What it holds back: bytes of a character that is not complete yet, and text that may turn out to be a stop string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["IncrementalText"]

_BROKEN = "\ufffd"


class IncrementalText:
    """Feed ids with push, then call finish once; the pieces joined are the text before the first stop string."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_strings: Sequence[str] = ()) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stops = tuple(stop_strings)
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._decoded = ""
        self._shown = 0
        self.stopped = False

    @property
    def text(self) -> str:
        """What has been shown so far."""
        return self._decoded[: self._shown]

    def push(self, token_id: int) -> str:
        """The text that became readable with this id, possibly none."""
        self._ids.append(token_id)
        if self._backend is not None:
            self._decoded += self._stream.step(self._backend, token_id) or ""
        else:
            whole = self._decode()
            if whole.startswith(self._decoded) and not whole.endswith(_BROKEN):
                self._decoded = whole
        return self._release(at_end=False)

    def finish(self) -> str:
        """The text held back until now; a character that was cut in the middle is dropped."""
        whole = self._decode()
        if whole.startswith(self._decoded):
            self._decoded += whole[len(self._decoded) :].rstrip(_BROKEN)
        return self._release(at_end=True)

    def _decode(self) -> str:
        text = self._tokenizer.decode(self._ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def _release(self, *, at_end: bool) -> str:
        if self.stopped:
            return ""
        found = [at for stop in self._stops if (at := self._decoded.find(stop, self._shown)) >= 0]
        if found:
            self.stopped = True
            end = min(found)
        elif at_end:
            end = len(self._decoded)
        else:
            end = len(self._decoded) - self._possible_stop()
        piece, self._shown = self._decoded[self._shown : end], end
        return piece

    def _possible_stop(self) -> int:
        """Length of the longest end of the text that a stop string begins with."""
        unseen = len(self._decoded) - self._shown
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, unseen), longest, -1):
                if self._decoded.endswith(stop[:length]):
                    longest = length
                    break
        return longest
