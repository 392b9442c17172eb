"""An engine behind a URL as a bench: the same questions, the same events, and None for what such an engine cannot say."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from kvdemo.endpoints.answers import ENGINES, CountText, answered
from kvdemo.endpoints.client import Client, model_of
from kvdemo.endpoints.policy import Resolve, checked_target, resolved
from kvdemo.errors import InvalidRequest, KvdemoError, RunFailed
from kvdemo.experiments.attempt import Alive
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.comparison import ENDPOINT_ARM, endpoint_row
from kvdemo.experiments.question import Question
from kvdemo.facts.endpoint import NOT_REPORTED, TEMPLATE_TOKENS, Counters, Endpoint, ServedModel
from kvdemo.facts.events import Finished, GenerationEvent, Waiting, Working
from kvdemo.facts.load import Arrival, ManyFinished, ManyRecord, ManyRequest
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.reader import Reader
from kvdemo.facts.records import RunRecord, Status
from kvdemo.facts.requests import GenerationRequest, Message, Prompt
from kvdemo.facts.results import PreparedPrefix
from kvdemo.generation.environment import environment
from kvdemo.settings import Settings

__all__ = ["Served", "answers_from", "endpoint_bench", "models_at", "served"]

log = logging.getLogger(__name__)
WARM_SHARE = 0.01
WARM = "Warm, not comparable: this prompt was new, and the server reports that it reused some of it all the same."


@dataclass(frozen=True)
class Served:
    """A server that is open for the time of one question: the client, the model that was found, and what is at hand here.

    counting: where an answer does not say how much was reused, the server's counters are read before and after it.
    """

    client: Client
    model: ServedModel
    reader: Reader
    stop: threading.Event
    count_text: CountText
    run_s: float
    counting: bool = False

    @property
    def facts(self) -> ModelFacts:
        """What is known of the model from outside. Some servers say which engine they are, others who owns the model."""
        engine = f" ({self.model.engine})" if self.model.engine in ENGINES else ""
        return ModelFacts(
            name=self.model.name,
            source=f"Served by {self.client.target.authority}{engine}.",
            model_type=NOT_REPORTED,
            num_parameters=None,
            weight_bytes=None,
            dtype=NOT_REPORTED,
            device=NOT_REPORTED,
            context_limit=self.model.context_limit,
            cache_bytes_per_token=None,
            vocab_size=None,
            has_chat_template=True,
            attention=NOT_REPORTED,
        )

    def run(self, request: GenerationRequest, *, salt: str = "") -> Iterator[GenerationEvent]:
        """One request, within the operator's limit of a run; salted at its start, so that no cache has seen what follows."""
        allowed_s = self.run_s if request.timeout_s is None else min(request.timeout_s, self.run_s)
        asked = replace(request, prompt=salted(request.prompt, salt), timeout_s=allowed_s)
        events = answered(
            self.client, self.model, asked, stop=self.stop, reader=self.reader, count_text=self.count_text
        )
        return self.counted(events) if self.counting else events

    def counted(self, events: Iterator[GenerationEvent]) -> Iterator[GenerationEvent]:
        """The same, with what the counters say of this request; they are everybody's, and must show no other one's tokens."""
        before = self.client.counters(self.stop)
        for event in events:
            if before is not None and isinstance(event, Finished) and event.record.reused_tokens is None:
                after = self.client.counters(self.stop)
                hits = after.hits_of_one(event.record.prompt_tokens, before) if after is not None else None
                yield replace(event, record=replace(event.record, reused_tokens=hits))
            else:
                yield event

    def fresh(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """One request whose prompt begins as no other did; where something of it is reused all the same, its record says so."""
        for event in self.run(request, salt=new_salt()):
            if isinstance(event, Finished):
                record = event.record
                if beyond_template(record) >= max(1.0, WARM_SHARE * (record.prompt_tokens or 0)):
                    yield replace(event, record=replace(record, notices=(*record.notices, WARM)))
                    continue
            yield event

    def many(self, request: ManyRequest, *, fresh: bool) -> Generator[Waiting | Working | ManyFinished, None, None]:
        """The requests at their times, each on a connection of its own, or one after the other; one that fails fails alone."""
        alone = replace(self, counting=False)  # counters would tell them apart no more, and take their time
        began_s = time.perf_counter()
        ended: queue.SimpleQueue[tuple[int, RunRecord, float]] = queue.SimpleQueue()

        def ask(*indices: int) -> None:
            for index in indices:
                arrival = request.arrivals[index]
                due_s = began_s + arrival.at_s
                while not self.stop.is_set() and (left_s := due_s - time.perf_counter()) > 0:
                    self.stop.wait(left_s)
                ended.put((index, *alone.kept(arrival, request, fresh, due_s, began_s)))

        numbers = range(len(request.arrivals))
        lines = [tuple(numbers)] if request.serving == "one-by-one" else [(index,) for index in numbers]
        for line in lines:
            threading.Thread(target=ask, args=line, name="kvdemo-requests", daemon=True).start()
        runs: dict[int, RunRecord] = {}
        last_s = began_s
        try:
            while len(runs) < len(numbers):
                try:
                    index, run, ended_s = ended.get(timeout=self.reader.every_s or 0.1)
                    runs[index], last_s = run, max(last_s, ended_s)
                except queue.Empty:
                    yield Working(time.perf_counter() - began_s)
        finally:
            if len(runs) < len(numbers):
                self.stop.set()
        found = tuple(runs[index] for index in numbers)
        failed = [run for run in found if run.status == "failed"]
        status: Status = "cancelled" if self.stop.is_set() else "failed" if len(failed) == len(found) else "ok"
        reused = [run.reused_tokens for run in found]
        yield ManyFinished(
            ManyRecord(
                request.serving,
                request.strategy,
                status,
                found,
                last_s - began_s,
                forwards=None,
                reused_tokens=None if None in reused else sum(count or 0 for count in reused),
                error=failed[0].error if status == "failed" else None,
            )
        )

    def kept(
        self, arrival: Arrival, many: ManyRequest, fresh: bool, due_s: float, began_s: float
    ) -> tuple[RunRecord, float]:
        """The record of one of them and when it ended; a failure is one, too. Its queue is what it waited for its turn here."""
        now_s = time.perf_counter()
        waited_s = max(0.0, now_s - due_s)
        left_s = None if many.timeout_s is None else max(0.1, began_s + many.timeout_s - now_s)
        request = GenerationRequest(
            arrival.prompt, arrival.max_new_tokens, fixed_length=many.fixed_length, timeout_s=left_s
        )
        try:
            for event in self.fresh(request) if fresh else self.run(request):
                if isinstance(event, Finished):
                    record = event.record
        except RunFailed as error:
            record = error.record
        except KvdemoError as error:
            record = unsent(str(error))
        except Exception:  # a fault of ours: the others are still waited for
            log.exception("a request of several to a server failed")
            record = unsent("Something went wrong on our side; the log says what.")
        return replace(record, queue_s=waited_s), time.perf_counter()


def unsent(error: str) -> RunRecord:
    """A request of which nothing is known but that it failed."""
    return RunRecord(None, "failed", None, None, token_ids=None, num_new_tokens=0, reused_tokens=None, error=error)


@contextmanager
def served(
    settings: Settings,
    endpoint: Endpoint,
    *,
    reader: Reader,
    stop: threading.Event,
    count_text: CountText = lambda _: None,
    resolve: Resolve = resolved,
) -> Iterator[Served]:
    """The server, checked and asked for its models. InvalidRequest, or Unanswered, before anything else is sent."""
    target = checked_target(endpoint.url, mode=settings.mode, allowed=settings.allowed_endpoints, resolve=resolve)
    client = Client(target, endpoint.key)
    try:
        model = model_of(client.models(stop), endpoint.model, target.authority)
        yield Served(client, model, reader, stop, count_text, settings.limits.run_s)
    finally:
        client.close()


def endpoint_bench(served: Served, settings: Settings, *, fresh: bool, page_tokens: int | None = None) -> Bench:
    """The bench for a question. fresh: every prompt that is timed begins as no other did; else the question does it itself."""

    def count(request: GenerationRequest) -> int:
        if request.max_new_tokens > settings.limits.new_tokens:
            raise InvalidRequest(
                "max_new_tokens",
                f"{request.max_new_tokens:,} is more than the limit here, {settings.limits.new_tokens:,}",
            )
        if request.prompt_chars > settings.limits.prompt_chars:
            raise InvalidRequest(
                "prompt",
                f"is {request.prompt_chars:,} characters long; the limit here is {settings.limits.prompt_chars:,}",
            )
        text = (
            request.prompt
            if isinstance(request.prompt, str)
            else "".join(part.content for part in request.prompt if isinstance(part, Message))
        )
        return served.count_text(text) or max(1, len(text) // 4)

    return Bench(
        model=served.facts,
        environment=environment(on_page=served.reader.on_page),
        strategies={ENDPOINT_ARM: endpoint_row(served.model.name)},
        run=served.fresh if fresh else served.run,
        count=count,
        run_many=lambda request: served.many(request, fresh=fresh),
        share=lambda prompts, _strategy, new_tokens: ServedPrefix(served, prompts, new_tokens),
        page_tokens=page_tokens,
        stop=served.stop.is_set,
        limit_s=settings.limits.compare_budget_s,
    )


def models_at(settings: Settings, endpoint: Endpoint) -> tuple[ServedModel, ...]:
    """What the server lists."""
    target = checked_target(endpoint.url, mode=settings.mode, allowed=settings.allowed_endpoints)
    client = Client(target, endpoint.key)
    try:
        return client.models()
    finally:
        client.close()


def answers_from(question: Question[Any, Any], spec: Any, server: Served, settings: Settings) -> Iterator[Any]:
    """The question's steps and its result, asked of a server.

    A question that is not about reuse sends prompts that are new to the server. Where it reused something of them all the same,
    its runs were warm, and nothing is compared.
    """
    assert question.at_endpoint is not None, "asked before"
    cold = question.cold and question.needs != "endpoint"
    before = server.client.counters(server.stop)
    pages = before.page_tokens if before is not None else None
    counts = before is not None and before.prefix_hits is not None
    server = replace(server, counting=counts and not question.cold)  # reuse is the question
    bench = endpoint_bench(server, settings, fresh=question.needs != "endpoint", page_tokens=pages)
    for step in question.run(question.at_endpoint(spec), bench):
        if not isinstance(step, question.result):
            yield step
            continue
        after = server.client.counters(server.stop) if cold and before is not None else None
        yield as_warm(step) if cold and was_warm(question, step, before, after) else step


def was_warm(question: Question[Any, Any], result: Any, before: Counters | None, after: Counters | None) -> bool:
    """Did the server reuse a hundredth or more of prompts that were new to it? By its counters, or by what it said of each.

    What a chat template puts in front of everybody's prompts is left out: no salt stands before it.
    """
    runs = [run for _, run in question.runs(result)]
    known = [run for run in runs if run.reused_tokens is not None and run.prompt_tokens]
    prompts = sum(run.prompt_tokens or 0 for run in known)
    said = sum(beyond_template(run) for run in known) / prompts if prompts else 0.0
    counted = None
    if before is not None and after is not None:
        counted = after.hit_share_since(before, apart=TEMPLATE_TOKENS * len(runs))
    return max(said, counted or 0.0) >= WARM_SHARE


def beyond_template(run: RunRecord) -> int:
    """Tokens that it says were reused, but for what a template may have put in front."""
    return max(0, (run.reused_tokens or 0) - TEMPLATE_TOKENS)


def as_warm(value: Any) -> Any:
    """The same result, or part of one, without ratios; every run says why."""
    if isinstance(value, RunRecord):
        return value if WARM in value.notices else replace(value, notices=(*value.notices, WARM))
    if isinstance(value, tuple):
        return tuple(map(as_warm, value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    own = {field.name: getattr(value, field.name) for field in fields(value)}
    after = {name: () if name == "comparisons" else as_warm(part) for name, part in own.items()}
    return replace(value, **{name: part for name, part in after.items() if part != own[name]})


class ServedPrefix:
    """What several prompts begin with, as far as a server keeps it: sent once, and then again under the same salt."""

    def __init__(self, served: Served, prompts: Sequence[tuple[Message, ...]], new_tokens: int) -> None:
        self._served, self._first, self._salt = served, prompts[0], new_salt()
        self.slots = new_tokens

    def prepare(self) -> Alive[PreparedPrefix]:
        """Send the first prompt, for one token: whoever keeps prefixes has it now."""
        began_s = time.perf_counter()
        for event in self._served.run(GenerationRequest(self._first, 1), salt=self._salt):
            if isinstance(event, Waiting | Working):
                yield event
        return PreparedPrefix(None, None, time.perf_counter() - began_s)

    def run(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        return self._served.run(request, salt=self._salt)


def new_salt() -> str:
    return f"{secrets.token_hex(8)}: "


def salted(prompt: Prompt, salt: str) -> Any:
    """With the salt in front of everything else: a cache can only be reused from the first token on."""
    if not salt:
        return prompt
    if isinstance(prompt, str):
        return salt + prompt
    first, *rest = prompt
    return (replace(first, content=salt + first.content), *rest) if isinstance(first, Message) else prompt
