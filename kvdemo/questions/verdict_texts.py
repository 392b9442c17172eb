"""Every text of "Ready to decide?", in one place: what the ten rows ask, the six verdicts, why, and what would overturn them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvdemo.experiments.evidence import Answer

__all__ = ["ASKED", "ELSEWHERE", "NOTHING_YET", "SAID", "TEXTS", "Outcome", "Texts"]

Outcome = Literal["not enough", "ask", "elsewhere", "nothing to change", "turn on", "keep on"]

ASKED = {
    1: "Which setting is in force, and who set it?",
    2: "Does the work really go through it?",
    3: "Is it faster, by how much, in how many rounds?",
    4: "Are the tokens the same?",
    5: "On your prompts and lengths?",
    6: "At the longest request you allow?",
    7: "With the users you expect?",
    8: "Does it fit, with room to spare?",
    9: "Does the complete request get faster, and does it meet the target?",
    10: "Can you go back?",
}

# What to do for a row of which nothing is known, where no question of the table settles it.
ELSEWHERE = {
    1: "Shown as soon as the model is loaded. In a terminal: kvdemo inspect.",
    2: "Look at what does the work: watch your application, or check the engine that serves it.",
    8: "Say your longest prompt and answer under Your workload.",
    10: "Compare on this machine: Keep this and Go back then say how.",
}


@dataclass(frozen=True, slots=True)
class Texts:
    """A verdict, why, what would overturn it, and the numbers of the rows that it rests on. {...} is filled in."""

    sentence: str
    because: str
    overturned_by: str
    rests_on: tuple[int, ...]


TEXTS: dict[Outcome, Texts] = {
    "not enough": Texts(
        "Not enough evidence yet: {answered} of 10 answered.",
        "{missing}",
        "Nothing is decided yet.",
        (),
    ),
    "ask": Texts(
        "Ask whoever runs inference.",
        "The work is done by an engine behind a URL, where no cache is in use, or that cannot be told.",
        "What its operator says of its settings, or a check of the endpoint that finds the cache in use.",
        (2,),
    ),
    "elsewhere": Texts(
        "Look elsewhere: generation is {share} of the request.",
        "Whatever a cache does, {other} of {whole} stay.",
        "Less time spent elsewhere, or answers so long that generation is {least} of the request or more.",
        (9,),
    ),
    "nothing to change": Texts(
        "Nothing to change: it is on and {good}.",
        "{met}",
        "{worse}, other lengths, or a setting that switches it off.",
        (1, 3, 9),
    ),
    "turn on": Texts(
        "Turn it on.",
        "It is off; with it the same tokens come clearly faster, and it fits.",
        "Other tokens or no gain on your prompts, longer requests, or more at once than were planned for.",
        (1, 3, 4, 8),
    ),
    "keep on": Texts(
        "Keep it on.",
        "It is on, and {kept}.",
        "A clear loss in six rounds or more on your prompts, or memory that does not hold it.",
        (1, 3, 4),
    ),
}

NOTHING_YET = "Nothing was measured for it yet."
SAID: dict[Answer, str] = {"yes": "answered", "no": "no", "not yet": "not yet"}

# What stands in the braces above.
WITH_TARGET = {
    "good": "meets your target",
    "met": "The complete request takes {took}; your target is {target}.",
    "worse": "Requests slower than {target}",
}
WITHOUT_TARGET = {
    "good": "clearly faster",
    "met": "It is clearly faster than none; nobody said a target.",
    "worse": "No gain on your prompts",
}
KEPT = "clearly faster than none"
KEPT_UNCLEAR = "no clear gain over none was measured"
OTHER_TOKENS = "; the tokens differ"
MISSING = "Missing for any verdict: {rows}."
NOT_FOR_IT = "It is not on, and {rows} {do} not speak for turning it on."
NOISE = "Two identical runs differ by up to {most} on this machine."
NO_NOISE = 'How far two identical runs differ here was not measured: "How noisy is this machine?" does it.'
