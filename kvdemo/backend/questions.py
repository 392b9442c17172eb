"""Questions answered by several runs: each experiment gets its runs from the engine and its words from nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from kvdemo.backend.model import OverModel
from kvdemo.engine.shared_prefix import SharedPrefix, text_of_length
from kvdemo.experiments.attempt import Run
from kvdemo.experiments.compare import compare
from kvdemo.experiments.rounds import Step
from kvdemo.facts.questions import (
    GrowthPoint,
    GrowthResult,
    GrowthSpec,
    PrefixPair,
    PrefixResult,
    PrefixSpec,
    PromptResult,
    PromptSetResult,
    PromptSetSpec,
)
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.requests import CompareSpec, GenerationRequest
from kvdemo.facts.results import ComparisonResult
from kvdemo.generation.environment import environment
from kvdemo.generation.logits import largest_gap
from kvdemo.generation.prompt import encode_prompt
from kvdemo.models.loaded import LoadedModel
from kvdemo.questions.documents import AnyResult
from kvdemo.questions.grow.run import chosen_points, growth
from kvdemo.questions.prefix.run import prefix_reuse
from kvdemo.questions.prompts.run import prompt_set
from kvdemo.questions.recorded import recorded_names, recorded_result

__all__ = ["Questions"]


class Questions(OverModel):
    """The part of the backend that compares."""

    def compare(
        self, spec: CompareSpec, *, owner: str = "", reader: Reader = AT_ONCE
    ) -> Iterator[Step | ComparisonResult]:
        """The same prompt with every strategy of the spec, in rounds; the last thing yielded is the result."""
        loaded = self._engine.ready()
        prompt = spec.prompt_of_run()
        for key in spec.strategies:
            ids = self._engine.check_length(GenerationRequest(prompt, spec.max_new_tokens, key)).token_ids
        with self._engine.stoppable(owner) as stop:
            yield from compare(
                spec,
                self._runs(owner, stop, reader),
                prompt_tokens=len(ids),
                gap=lambda one, other, made: largest_gap(loaded, self._engine.turnstile, ids, made, one, other, stop),
                decode=_decoder(loaded),
                **self._common(stop, reader),
            )

    def growth(
        self, spec: GrowthSpec, *, owner: str = "", reader: Reader = AT_ONCE
    ) -> Iterator[Step | GrowthPoint | GrowthResult]:
        """The comparison at several lengths of prompt and answer."""
        loaded = self._engine.ready()
        with self._engine.stoppable(owner) as stop:
            answering = growth(
                spec,
                self._runs(owner, stop, reader),
                prompt_of=lambda length: text_of_length(loaded, spec.prompt, length),
                **self._common(stop, reader),
            )
            for prompt_tokens, new_tokens in chosen_points(spec):
                for key in spec.strategies:
                    self._engine.check_size(GenerationRequest(spec.prompt, new_tokens, key), prompt_tokens)
            yield from answering

    def prompt_set(
        self, spec: PromptSetSpec, *, owner: str = "", reader: Reader = AT_ONCE
    ) -> Iterator[Step | PromptResult | PromptSetResult]:
        """The comparison on each of many prompts."""
        loaded = self._engine.ready()

        def tokens_of(one: CompareSpec) -> int:
            prompt = one.prompt_of_run()
            self._engine.check(GenerationRequest(prompt, one.max_new_tokens))
            length, limit = len(encode_prompt(loaded, prompt).token_ids), loaded.facts.context_limit
            if (
                limit is None or length + one.max_new_tokens <= limit
            ):  # else it is named with the others that are too long
                for key in one.strategies:
                    self._engine.check_size(GenerationRequest(prompt, one.max_new_tokens, key), length)
            return length

        with self._engine.stoppable(owner) as stop:
            yield from prompt_set(
                spec,
                self._runs(owner, stop, reader),
                count_tokens=tokens_of,
                **self._common(stop, reader),
            )

    def prefix_reuse(
        self, spec: PrefixSpec, *, owner: str = "", reader: Reader = AT_ONCE
    ) -> Iterator[Step | PrefixPair | PrefixResult]:
        """A long system prompt with several questions: processed every time, or once and kept."""
        loaded = self._engine.ready()
        with self._engine.stoppable(owner) as stop:
            shared = SharedPrefix(self._engine, spec, owner, stop, reader)
            yield from prefix_reuse(
                spec,
                self._runs(owner, stop, reader),
                shared.run,
                shared.prepare,
                decode=_decoder(loaded),
                **{**self._common(stop, reader), "cache_slots": shared.slots},
            )

    def recorded_results(self) -> tuple[str, ...]:
        """Names of the results that are shipped; they open without a model."""
        return recorded_names()

    def recorded_result(self, name: str) -> AnyResult:
        """The shipped result of this name; InvalidRequest for any other name."""
        return recorded_result(name)

    def _runs(self, owner: str, stop: threading.Event, reader: Reader) -> Run:
        """Runs that belong together: one that finds no room waits for it, or it would count against its arm."""
        return lambda request: self._engine.run(request, owner, stop=stop, reader=reader, patient=True)

    def _common(self, stop: threading.Event, reader: Reader) -> dict[str, Any]:
        """What every experiment is told."""
        return {
            "model": self.describe(),
            "environment": environment(on_page=reader.on_page),
            "strategies": {row.key: row for row in self.strategies()},
            "cache_slots": lambda prompt, new: prompt + new - 1,
            "stop": stop.is_set,
            "limit_s": self.settings.limits.compare_budget_s,
        }


def _decoder(loaded: LoadedModel) -> Any:
    return lambda ids: str(loaded.tokenizer.decode(list(ids), skip_special_tokens=True))
