"""Questions answered by several runs: each gets a bench to measure with, and its words from nobody."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

from kvdemo.backend.endpoints import answers_from, models_at, served
from kvdemo.backend.model import BackendBase
from kvdemo.backend.tokenizers import Tokenizers
from kvdemo.engine.engine import LoadModel, load_named
from kvdemo.engine.shared_prefix import SharedPrefix, text_of_length
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.attempt import Alive
from kvdemo.experiments.bench import Bench, no_count, no_runs
from kvdemo.experiments.comparison import Noise
from kvdemo.experiments.question import AnyResult, Question
from kvdemo.experiments.statistics import MIN_ROUNDS, median
from kvdemo.facts.endpoint import Endpoint, ServedModel
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.requests import GenerationRequest, Prompt
from kvdemo.facts.steps import CacheNorms
from kvdemo.generation.environment import environment
from kvdemo.generation.logits import largest_gap, margin
from kvdemo.generation.norms import cache_norms
from kvdemo.generation.prompt import encode_prompt
from kvdemo.generation.templated import Templated
from kvdemo.questions.recorded import recorded_names, recorded_result
from kvdemo.questions.table import QUESTIONS, Table, asked_by
from kvdemo.settings import Settings

__all__ = ["Questions"]


class Questions(BackendBase):
    """The part of the backend that compares."""

    def __init__(self, settings: Settings, *, load_model: LoadModel = load_named, questions: Table = QUESTIONS) -> None:
        super().__init__(settings, load_model=load_model)
        self.questions = questions
        self._noise: Noise | None = None
        self._prefill_tokens_per_s: float | None = None
        self._tokenizers = Tokenizers(settings)

    def ask(
        self, spec: Any, *, owner: str = "", reader: Reader = AT_ONCE, endpoint: Endpoint | None = None
    ) -> Generator[Any, None, None]:
        """The question that this request asks: its steps, then its result. InvalidRequest before anything runs.

        endpoint   the engine behind a URL that is asked, in the place of the loaded model
        """
        question = asked_by(spec, self.questions)
        if endpoint is not None or question.needs == "endpoint":
            yield from self._ask_endpoint(question, spec, owner, reader, endpoint)
            return
        if question.needs == "model":
            self._engine.ready()
        with self._engine.stoppable(owner) as stop:
            alone = question.needs == "tokenizer"
            bench = self._tokenizer_bench(spec.model, stop, reader) if alone else self._bench(owner, stop, reader)
            for step in question.run(spec, bench):
                if isinstance(step, question.result):
                    noise = question.noise(step)
                    if noise is not None and noise.rounds >= MIN_ROUNDS:  # a first look is no measure of later ones
                        self._noise = noise
                    speeds = [run.prefill_tokens_per_s for _, run in question.runs(step) if run.counts]
                    self._prefill_tokens_per_s = median_of(speeds) or self._prefill_tokens_per_s
                yield step

    def endpoint_models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        """What a server lists; InvalidRequest where it may not be asked, Unanswered where it does not answer."""
        return models_at(self.settings, endpoint)

    def _ask_endpoint(
        self, question: Question[Any, Any], spec: Any, owner: str, reader: Reader, endpoint: Endpoint | None
    ) -> Generator[Any, None, None]:
        if endpoint is None:
            raise InvalidRequest("url", "give the address of an OpenAI-compatible server")
        if question.at_endpoint is None:
            raise InvalidRequest("url", f"{question.title!r} is asked of a model that runs here, not of a server")
        with (
            self._engine.stoppable(owner) as stop,
            served(self.settings, endpoint, reader=reader, stop=stop, count_text=self._count_text) as server,
        ):
            yield from answers_from(question, spec, server, self.settings)

    def _count_text(self, text: str) -> int | None:
        """By the tokenizer that is at hand, where there is one."""
        loaded = self._engine.loaded
        if loaded is None:
            return None
        with loaded.encoding:
            return len(loaded.tokenizer(text, add_special_tokens=False)["input_ids"])

    def recorded_results(self) -> tuple[str, ...]:
        """Names of the results that are shipped; they open without a model."""
        return recorded_names()

    def recorded_result(self, name: str) -> AnyResult:
        """The shipped result of this name; InvalidRequest for any other name."""
        return recorded_result(name, table=self.questions)

    def _tokenizer_bench(self, name: str | None, stop: threading.Event, reader: Reader) -> Bench:
        """The tokenizer of the model called `name` (None: the one that is or would be loaded); no weights are waited for."""
        loaded = self._engine.loaded
        of_model = loaded is not None and name in (None, self.settings.model)
        found = loaded if loaded is not None and of_model else self._tokenizers.named(name)
        return Bench(
            model=found.facts,
            environment=environment(on_page=reader.on_page),
            strategies={},
            run=no_runs,
            count=no_count,
            tokens=Templated(found.tokenizer, found.encoding),
            prefill_tokens_per_s=self._prefill_tokens_per_s if of_model else None,
            stop=stop.is_set,
            limit_s=self.settings.limits.compare_budget_s,
        )

    def _bench(self, owner: str, stop: threading.Event, reader: Reader) -> Bench:
        """The loaded model to measure with."""
        engine, loaded = self._engine, self._engine.ready()

        def gap(prompt: Prompt, baseline: str, candidate: str, made: tuple[int, ...]) -> Alive[float | None]:
            ids = encode_prompt(loaded, prompt).token_ids
            return largest_gap(loaded, engine.turnstile, ids, made, baseline, candidate, stop)

        def between(prompt: Prompt, made: tuple[int, ...], one: int, other: int) -> Alive[float | None]:
            ids = encode_prompt(loaded, prompt).token_ids
            return margin(loaded, engine.turnstile, ids, made, one, other, stop)

        def norms(prompt: Prompt, made: tuple[int, ...], layer: int, head: int) -> Alive[CacheNorms | None]:
            ids = (*encode_prompt(loaded, prompt).token_ids, *made)
            return cache_norms(loaded, engine.turnstile, ids, layer, head, stop)

        def count(request: GenerationRequest) -> int:
            engine.check(request)
            return len(encode_prompt(loaded, request.prompt).token_ids)

        def decode(ids: tuple[int, ...]) -> str:
            return str(loaded.tokenizer.decode(list(ids), skip_special_tokens=True))

        return Bench(
            model=loaded.facts,
            environment=environment(on_page=reader.on_page),
            strategies={row.key: row for row in self.strategies()},
            # Runs that belong together: one that finds no room waits for it, or it would count against its arm.
            run=lambda request: engine.run(request, owner, stop=stop, reader=reader, patient=True),
            count=count,
            check_size=engine.check_size,
            cache_slots=lambda prompt_tokens, new_tokens: prompt_tokens + new_tokens - 1,
            gap=gap,
            decode=decode,
            text_of=lambda text, num_tokens: text_of_length(loaded, text, num_tokens),
            run_many=lambda request: engine.run_many(request, owner, stop=stop, reader=reader),
            check_many=engine.check_many,
            margin=between,
            norms=norms,
            share=lambda prompts, strategy, new_tokens: SharedPrefix(
                engine, prompts, strategy, new_tokens, owner=owner, stop=stop, reader=reader
            ),
            noise=self._noise,
            stop=stop.is_set,
            limit_s=self.settings.limits.compare_budget_s,
        )


def median_of(values: list[float | None]) -> float | None:
    """Of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
