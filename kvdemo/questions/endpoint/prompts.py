"""Prompts whose beginning no server has seen, of about as many tokens as are asked for."""

from __future__ import annotations

import secrets

from kvdemo.facts.requests import Message, Prompt

__all__ = ["COUNT", "END", "TOKENS_A_WORD", "Beginning", "short"]

TOKENS_A_WORD = 1.4  # until the server has said how it counts
WORDS = (
    *("river", "stone", "garden", "window", "yellow", "seven", "market", "paper", "silver", "morning", "summer"),
    *("bridge", "forest", "letter", "orange", "winter", "music", "island", "carpet", "button", "doctor", "finger"),
    *("kitchen", "ladder", "mountain", "number", "pencil", "rabbit", "spider", "ticket", "village", "water"),
)
END = ". List {number}: continue it with many more words, and write nothing else."
COUNT = "Write the numbers from one to five hundred in words, one after the other, and nothing else."


def salt() -> str:
    """So that what follows it is new to every cache: a cache can only be reused from the first token on."""
    return f"{secrets.token_hex(8)}: "


def short() -> Prompt:
    """A fresh prompt that asks for a long answer."""
    return (Message("user", salt() + COUNT),)


class Beginning:
    """A fresh long text; every prompt that begins with it differs at its end, so that an answer kept whole is no answer."""

    def __init__(self, words: int) -> None:
        self.text = salt() + " ".join(WORDS[at % len(WORDS)] for at in range(words))
        self.prompts = 0

    def prompt(self) -> Prompt:
        self.prompts += 1
        return asked(self.text + END.format(number=self.prompts))


def asked(text: str) -> Prompt:
    return (Message("user", text),)
