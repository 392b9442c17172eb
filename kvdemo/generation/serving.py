"""Requests that are served together, inside the model's thread: one by one, or as padded batches. Continuous batching, which
is the library's own, is in paged.py; who stands in line for all three, and what is told, in many.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvdemo.caches.strategies import strategy_of
from kvdemo.facts.load import Forward, ManyRequest
from kvdemo.facts.records import Status
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.admission import Admitted
from kvdemo.generation.device import Device, device_of
from kvdemo.generation.ends import end_ids
from kvdemo.generation.logits import refuse_what_is_no_number
from kvdemo.generation.prompt import EncodedPrompt
from kvdemo.generation.run import FRESH, Cut, Outcome, Run

if TYPE_CHECKING:
    import torch

    from kvdemo.models.loaded import LoadedModel

__all__ = ["Answer", "Load", "Served", "one_by_one", "padded"]

GLANCE_S = 0.02


@dataclass(slots=True)
class Answer:
    """What became of one request; times in s of the device's clock.

    started_s   the model took it; None: it never did
    complete    False: the engine began it anew, so that its times are not all there
    """

    started_s: float | None = None
    token_ids: tuple[int, ...] = ()
    times_s: tuple[float, ...] = ()
    status: Status = "cancelled"
    error: str | None = None
    reused_tokens: int | None = 0
    complete: bool = True


@dataclass(slots=True)
class Served:
    """What serving leaves behind; forwards with times of the device's clock. None: not known."""

    answers: list[Answer]
    forwards: list[Forward] | None = field(default_factory=list)
    padding_positions: int | None = 0
    reserved_bytes: int | None = 0
    peak_bytes: int | None = 0
    num_pages: int | None = None
    page_bytes: int | None = None


@dataclass
class Load:
    """The requests while they are served: their ids, the clock, and who may end it all.

    began_s   when the first request arrived; the clock starts when whoever serves is ready for it
    """

    loaded: LoadedModel
    request: ManyRequest
    encoded: tuple[EncodedPrompt, ...]
    stop: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)
    make_device: Callable[[str], Device] = device_of
    device: Device = field(init=False)
    began_s: float = 0.0

    def __post_init__(self) -> None:
        self.device = self.make_device(self.loaded.model.device.type)

    @property
    def prompts(self) -> tuple[tuple[int, ...], ...]:
        return tuple(one.token_ids for one in self.encoded)

    def begin(self) -> None:
        """The first request arrives."""
        self.began_s = self.device.now_s()

    def now_s(self) -> float:
        """s since the first request arrived."""
        return self.device.now_s() - self.began_s

    def over(self) -> Cut | None:
        """Why it must end here, None while it goes on."""
        if self.stop.is_set() or self.closed.is_set():
            return "cancelled"
        late = self.request.timeout_s is not None and self.now_s() > self.request.timeout_s
        return "timed_out" if late else None

    def arrived(self, index: int) -> bool:
        return self.now_s() >= self.request.arrivals[index].at_s

    def wait_for(self, index: int) -> Cut | None:
        """Wait until this request has arrived; returns why it must end before that."""
        while not (why := self.over()) and not self.arrived(index):
            left_s = self.request.arrivals[index].at_s - self.now_s()
            self.closed.wait(min(max(left_s, 0.0), GLANCE_S))
        return why

    def left_s(self) -> float | None:
        """Time that is left for whoever runs now."""
        timeout_s = self.request.timeout_s
        return None if timeout_s is None else max(0.001, timeout_s - self.now_s())

    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        return frozenset() if self.request.fixed_length else end_ids(self.loaded)


class _Timed(Run):
    """A run that also knows when its forwards began."""

    def __init__(self, load: Load, admitted: Admitted) -> None:
        super().__init__(
            admitted,
            load.device,
            load.stop,
            obtain=lambda: (admitted.strategy.make(load.loaded.model.config, admitted.slots), FRESH),
            give_back=lambda _cache, _ids: None,
        )
        self.closed = load.closed
        self.forward_s: list[float] = []

    def accepted_s(self) -> float:
        """When the model took it."""
        return self._accepted_s

    def _before_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super()._before_forward(args, kwargs)
        self.forward_s.append(self._device.now_s())


def one_by_one(load: Load) -> Served:
    """A generate for each, in the order of arrival."""
    served = Served([Answer() for _ in load.encoded])
    load.begin()
    for index in range(len(load.encoded)):
        why = load.wait_for(index)
        if why:
            return _ended(served, why)
        run = _Timed(load, _admitted(load, [index]))
        outcome = run.work()
        _count(served, run, outcome)
        times = tuple(run.accepted_s() + step.time_s for step in outcome.steps)
        ids = tuple(step.token_id for step in outcome.steps)
        served.answers[index] = Answer(run.accepted_s(), ids, times, outcome.cut or "ok")
        if outcome.cut:
            return _ended(served, outcome.cut)
    return served


def padded(load: Load) -> Served:
    """One generate over the rows of all that wait, again and again until nobody does."""
    served = Served([Answer() for _ in load.encoded])
    load.begin()
    first = 0
    while first < len(load.encoded):
        why = load.wait_for(first)
        if why:
            return _ended(served, why)
        last = first + 1
        while last < len(load.encoded) and load.arrived(last):
            last += 1
        rows = range(first, last)
        run = _Batch(load, rows)
        outcome = run.work()
        _count(served, run, outcome)
        for index, ids in zip(rows, run.answers(), strict=True):
            times = tuple(run.accepted_s() + time_s for time_s in run.step_s[: len(ids)])
            served.answers[index] = Answer(run.accepted_s(), ids, times, outcome.cut or "ok")
        if served.padding_positions is not None:
            served.padding_positions += run.padding_positions(outcome)
        if outcome.cut:
            return _ended(served, outcome.cut)
        first = last
    return served


class _Batch(_Timed):
    """One generate over several rows, padded on the left to the longest; each ends at its own length.

    step_s   s since acceptance when the tokens of each step were there
    """

    def __init__(self, load: Load, rows: range) -> None:
        super().__init__(load, _admitted(load, rows))
        self.prompts = [load.encoded[row].token_ids for row in rows]
        self.most_new = [load.request.arrivals[row].max_new_tokens for row in rows]
        self.ends = load.ends()
        self.step_s: list[float] = []
        self.made: list[list[int]] = []

    def put(self, value: Any) -> None:
        """generate's streamer interface: the prompts first, then one id of every row."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self.step_s.append(self._device.now_s() - self._accepted_s)
        self.made.append(value.reshape(-1).tolist())
        self._device.sample_peak()

    def _look_at(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        # All of every row, and not the tokens that were taken: a row that has ended takes padding, whatever its score.
        return refuse_what_is_no_number(input_ids, scores)

    def answers(self) -> list[tuple[int, ...]]:
        """Every row up to its own length or its end token."""
        return [self._answer(row) for row in range(len(self.prompts))]

    def padding_positions(self, outcome: Outcome) -> int:
        """Positions computed for nobody: left padding, and rows that had ended while others went on."""
        lengths = [len(answer) for answer in self.answers()]
        computed, cached, useful = outcome.positions_computed or (), self._admitted.strategy.cache is not None, 0
        for step in range(len(computed)):
            going = [row for row, length in enumerate(lengths) if step < length]
            if cached and step:
                useful += len(going)
            else:
                useful += sum(len(self.prompts[row]) + (0 if cached else step) for row in going)
        return sum(computed) - useful

    def _answer(self, row: int) -> tuple[int, ...]:
        ids: list[int] = []
        for step in self.made[: self.most_new[row]]:
            ids.append(step[row])
            if step[row] in self.ends:
                break
        return tuple(ids)

    def _inputs(self) -> dict[str, Any]:
        import torch

        device, width = self._admitted.loaded.model.device, len(self._admitted.token_ids)
        ids = torch.full((len(self.prompts), width), self._ending()["pad_token_id"])
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(self.prompts):
            ids[row, width - len(tokens) :] = torch.tensor(tokens)
            mask[row, width - len(tokens) :] = 1
        criteria = [_each_at_its_length(width, torch.tensor(self.most_new, device=device))]
        return {"inputs": ids.to(device), "attention_mask": mask.to(device), "stopping_criteria": criteria}


def _each_at_its_length(width: int, most_new: torch.Tensor) -> Callable[..., torch.Tensor]:
    """A stopping criterion of generate: [rows] of bool, who has all the tokens it was asked for."""

    def ended(input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        return input_ids.shape[1] - width >= most_new

    return ended


def _admitted(load: Load, rows: Sequence[int]) -> Admitted:
    """The longest of these rows, for as many tokens as any of them was asked for."""
    encoded = max((load.encoded[row] for row in rows), key=lambda one: len(one.token_ids))
    new_tokens = max(load.request.arrivals[row].max_new_tokens for row in rows)
    request = GenerationRequest(
        encoded.token_ids,
        new_tokens,
        load.request.strategy,
        fixed_length=load.request.fixed_length,
        timeout_s=load.left_s(),
    )
    slots = len(encoded.token_ids) + new_tokens - 1
    return Admitted(load.loaded, request, strategy_of(request.strategy), encoded, slots, False, 0.0, 0.0)


def _count(served: Served, run: _Timed, outcome: Outcome) -> None:
    """Add the run's work and bytes; what it raised is raised here."""
    if outcome.error is not None:
        raise outcome.error
    computed, read = outcome.positions_computed, outcome.positions_read
    if computed is None or read is None:
        served.forwards = served.padding_positions = None
    elif served.forwards is not None:
        # A forward that was cut before it began has no time.
        counts = zip(run.forward_s, computed, read, strict=False)
        served.forwards += [Forward(at_s, *both) for at_s, *both in counts]
    served.peak_bytes = max(served.peak_bytes or 0, outcome.weight.held_bytes)
    served.reserved_bytes = max(served.reserved_bytes or 0, outcome.weight.storage_bytes)


def _ended(served: Served, why: Cut) -> Served:
    """Whoever was not served yet never will be."""
    for answer in served.answers:
        if answer.started_s is None:
            answer.status = why
    return served
