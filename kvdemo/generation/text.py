"""Token ids to text, one id at a time: never half a character, and at the end exactly the whole decode.

What it holds back: bytes of a character that is not complete yet, and text that may turn out to be a stop string.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["IncrementalText"]

_BROKEN = "\ufffd"


class IncrementalText:
    """Feed ids with push, then call finish once; the pieces joined are the text before the first stop string.

    What has been handed over stays. Where a later id changes the whole decode of earlier ones (tokenizers that fall back
    to bytes spoil a whole run of them for one bad byte), the text goes on from there, decoded after what stands.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_strings: Sequence[str] = ()) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stops = tuple(stop_strings)
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._decoded_ids = 0
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
        piece = self._step(token_id)
        if piece:
            self._decoded += piece
            self._decoded_ids = len(self._ids)
        return self._release(at_end=False)

    def finish(self) -> str:
        """The text held back until now; a character that was cut in the middle is dropped."""
        rest = self._rest()
        readable = rest.rstrip(_BROKEN)
        self._decoded += readable + rest[len(readable) :][: self._whole_replacement_characters()]
        return self._release(at_end=True)

    def _step(self, token_id: int) -> str:
        """What this id adds; "" while it ends in half a character."""
        if self._backend is not None:
            try:
                return self._stream.step(self._backend, token_id) or ""
            except Exception:  # the class that the library raises where a byte spoils the decode of those before it
                self._backend = None
        rest = self._rest()
        return "" if rest.endswith(_BROKEN) else rest

    def _rest(self) -> str:
        """The ids whose text was not handed over yet, as they read after what was."""
        whole = self._decode(self._ids)
        if whole.startswith(self._decoded):
            return whole[len(self._decoded) :]
        # A letter in front keeps the space that a tokenizer drops at the beginning of a text.
        letter = self._tokenizer.convert_tokens_to_ids("a")
        before = [] if letter is None else [letter]
        return self._decode([*before, *self._ids[self._decoded_ids :]])[len(self._decode(before)) :]

    def _whole_replacement_characters(self) -> int:
        """How many U+FFFD at the end of the text the model wrote itself, byte for byte, and are not half a character."""
        special = set(self._tokenizer.all_special_ids)
        written = [token_id for token_id in self._ids[self._decoded_ids :] if token_id not in special]
        # A model may have more ids than its tokenizer: a vocabulary is often padded to a round number.
        tokens = [token for token in self._tokenizer.convert_ids_to_tokens(written) if token is not None]
        raw = b"".join(map(_bytes_of, tokens))
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=False)
        return len(text) - len(text.rstrip(_BROKEN))

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

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


def _bytes_of(token: str) -> bytes:
    """The bytes that a vocabulary's entry stands for: <0xEF>, GPT-2's letters for bytes, or the text itself."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    letters = _byte_of_letter()
    return bytes(letters[letter] for letter in token) if all(letter in letters for letter in token) else token.encode()


@cache
def _byte_of_letter() -> dict[str, int]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {letter: byte for byte, letter in bytes_to_unicode().items()}
