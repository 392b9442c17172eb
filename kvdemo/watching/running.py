"""A call, or a loop over model(...), while it runs: its forwards with their times, the cache they were given, its figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvdemo.caches.footprint import cached_tokens, weigh
from kvdemo.facts.records import FinishReason
from kvdemo.generation.forwards import CACHES, Forward, forward_of
from kvdemo.watching.models import kind_of, name_of
from kvdemo.watching.record import Assistant, Call, Decided, Setting, cached_of

__all__ = ["OwnLoop", "Running", "cache_of", "given_to", "held"]

FILE_NAMES = ("input_ids", "inputs_embeds", "inputs")
ENDS = ("generation_config.json", "config.json")


def cache_of(given: Any) -> Any:
    """The cache among these named arguments, or of a forward's output, by whichever name it goes; None without one."""
    for name in CACHES:
        found = given.get(name) if hasattr(given, "get") else getattr(given, name, None)
        if found is not None:
            return found
    return None


def given_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The ids (or embeddings) that a call begins with; None where there are none."""
    if args and args[0] is not None:
        return args[0]
    return next((kwargs[name] for name in FILE_NAMES if kwargs.get(name) is not None), None)


def held(cache: Any) -> tuple[int | None, int | None]:
    """(bytes, positions) that a cache holds now; also of the caches of earlier versions of transformers."""
    inner = getattr(cache, "self_attention_cache", cache)
    try:
        return weigh(cache).held_bytes, cached_tokens(cache)
    except (AttributeError, TypeError):
        pass
    tensors = [tensor for tensor in _tensors(inner) if hasattr(tensor, "nbytes")]
    length = getattr(inner, "get_seq_length", None)
    try:
        return sum(tensor.nbytes for tensor in tensors) if tensors else None, None if length is None else int(length())
    except (AttributeError, TypeError):  # a cache of the model's own
        return None, None


def _tensors(cache: Any) -> Iterable[Any]:
    """Of lists of keys and of values, and of tuples of both: how caches were kept before they had layers."""
    found = [*getattr(cache, "key_cache", ()), *getattr(cache, "value_cache", ())]
    pairs = cache if isinstance(cache, tuple | list) else ()
    return [*found, *(tensor for pair in pairs if isinstance(pair, tuple | list) for tensor in pair)]


class _Seen:
    """Forwards with the time at which each began, and the cache that they were given."""

    def __init__(self) -> None:
        self.forwards: list[Forward] = []
        self.times_s: list[float] = []
        self.cache_class: str | None = None
        self.peak: tuple[int | None, int | None] = (None, None)
        self.cache: Any = None

    def add(self, forward: Forward, at_s: float, cache: Any) -> None:
        self.forwards.append(forward)
        self.times_s.append(at_s)
        if cache is not None:
            self.cache, self.cache_class = cache, type(cache).__name__

    def look(self) -> None:
        """Does the cache hold more than it ever did?"""
        if self.cache is not None:
            found = held(self.cache)
            if found[0] is not None and found[0] >= (self.peak[0] or 0):
                self.peak = found

    @property
    def several(self) -> bool:
        """Did the newest forward bring several positions? Then the cache may shrink after it."""
        return not self.forwards or self.forwards[-1].computed != 1

    def totals(self, what: str) -> tuple[int, ...] | None:
        found = [getattr(each, what) for each in self.forwards]
        known = [one.rows * value for one, value in zip(self.forwards, found, strict=True) if value is not None]
        return tuple(known) if len(known) == len(found) else None

    def prompt_through(self, prompt_tokens: int) -> int:
        """How many forwards brought the prompt (several where it came in chunks)."""
        seen = self.forwards[0].read or 0
        for at, forward in enumerate(self.forwards, 1):
            seen += forward.computed or 0
            if seen >= prompt_tokens:
                return at
        return len(self.forwards)


class Running(_Seen):
    """A call of generate between its beginning and its end."""

    def __init__(self, model: Any, where: str, began_s: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.where, self.began_s = model, where, began_s
        self.model_type, self.name = kind_of(model), name_of(model)
        self.own = Setting(*_decided(model, args, kwargs))
        self.origin = "handed over" if cache_of(kwargs) is not None else "generate"
        self.overridden = False
        self.in_force: Any = None
        self.elsewhere = False  # it started a thread of continuous batching, which is told apart
        self.others: dict[str, list[Forward]] = {}
        self.other_times_s: list[float] = []
        given = given_to(args, kwargs)
        shape = tuple(getattr(given, "shape", ())) or (1, 0)
        self.batch_size, self.width = int(shape[0]), int(shape[1]) if len(shape) > 1 else 0
        config = getattr(model, "config", None)
        self.encoder_decoder = bool(getattr(config, "is_encoder_decoder", False))
        ids = kwargs.get("input_ids") if kwargs.get("inputs_embeds") is not None else given
        self.echoed = self.width if ids is not None else 0  # positions of the output that are the prompt
        if self.encoder_decoder:
            begun = kwargs.get("decoder_input_ids")
            self.echoed = int(begun.shape[1]) if begun is not None else 1
        self.has_file = None if config is None else not bool(_made_of_config(model))

    def add_other(self, model: Any, forward: Forward, at_s: float) -> None:
        """A forward of another model inside this call: the one that assists."""
        kind = name_of(model)
        self.others.setdefault(kind, []).append(forward)
        self.other_times_s.append(at_s)

    def prepared(self, generation_config: Any) -> None:
        """What generate has made of all settings, in force for this call."""
        self.in_force = generation_config
        named = getattr(generation_config, "cache_implementation", None)
        if named is not None and self.origin == "generate":
            self.origin = str(named)

    def call(self, output: Any, ended_s: float, error: BaseException | None, keep_ids: bool) -> Call:
        """The record; output None where it raised."""
        self.look()
        sequences = getattr(output, "sequences", output)
        answers = _answers(sequences, self.echoed)
        new_tokens = max(map(len, answers), default=0) if answers is not None else None
        first = self.forwards[0] if self.forwards else None
        prompt = self.width or (first.computed if first is not None else None)
        if first is not None and not self.encoder_decoder and first.read and first.computed is not None:
            prompt = max(prompt or 0, first.read + first.computed)
        ttft_s, tpot_s = self._times(prompt, new_tokens, ended_s)
        per_row = [(each.computed, each.read) for each in self.forwards]
        cached = cached_of(per_row, 1 if self.encoder_decoder else prompt)
        return Call(
            where=self.where,
            how="generate",
            model_type=self.model_type,
            batch_size=self.batch_size,
            use_cache=self.setting(cached),
            cache_class=self.cache_class,
            positions_computed=self.totals("computed"),
            positions_read=self.totals("read"),
            prompt_tokens=prompt,
            new_tokens=new_tokens,
            reused_tokens=first.read if first is not None else None,
            generation_s=ended_s - self.began_s,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            peak_cache_bytes=0 if cached is False and self.cache is None else self.peak[0],
            peak_cache_tokens=self.peak[1],
            finish_reason=self._finish(answers, new_tokens),
            cached=cached,
            rows=first.rows if first is not None else self.batch_size,
            beams=int(getattr(self.in_force, "num_beams", None) or 1),
            cache_origin=self.origin,
            has_generation_config=self.has_file,
            assistant=self._assistant(),
            error=None if error is None else type(error).__name__,
            sampled=bool(getattr(self.in_force, "do_sample", False)),
            began_s=self.began_s,
            model=self.name,
            token_ids=tuple(map(tuple, answers)) if keep_ids and answers is not None else None,
        )

    def setting(self, cached: bool | None) -> Setting:
        """use_cache in force, and who decided; a model that keeps none whatever is said has decided itself."""
        value = getattr(self.in_force, "use_cache", self.own.value)
        value = None if value is None else bool(value)
        if self.overridden:
            return Setting(value, "watch")
        if value and cached is False and self.cache_class is None:
            return Setting(False, "model")
        return Setting(value, self.own.source)

    def _times(self, prompt: int | None, new_tokens: int | None, ended_s: float) -> tuple[float | None, float | None]:
        if not self.forwards or not new_tokens:
            return None, None
        through = self.prompt_through(1 if self.encoder_decoder else prompt or 0)
        began_last = self.times_s[through - 1]
        later = [at for at in (*self.times_s, *self.other_times_s) if at > began_last]
        first_s = min(later, default=ended_s)
        if self.others:  # several tokens come at a time
            return first_s - self.began_s, None
        tpot_s = (ended_s - first_s) / (new_tokens - 1) if new_tokens > 1 else None
        return first_s - self.began_s, tpot_s

    def _finish(self, answers: list[list[int]] | None, new_tokens: int | None) -> FinishReason | None:
        """Why it ended, as far as its settings tell; None where it cannot be told."""
        config = self.in_force
        if config is None or answers is None or not new_tokens:
            return None
        named = getattr(config, "eos_token_id", None)
        ends = set(named) if isinstance(named, list | tuple) else {named}
        if all(ends.intersection(answer) for answer in answers):
            return "stop"
        longest = getattr(config, "max_length", None)
        if longest is not None and self.echoed + new_tokens >= longest:
            return "length"
        if getattr(config, "max_new_tokens", None) == new_tokens:
            return "length"
        if getattr(config, "stop_strings", None):
            return "stop_string"
        return "timed_out" if getattr(config, "max_time", None) else None

    def _assistant(self) -> Assistant | None:
        for kind, forwards in self.others.items():
            computed = [each.rows * each.computed for each in forwards if each.computed is not None]
            return Assistant(kind, len(forwards), sum(computed) if len(computed) == len(forwards) else None)
        return None


class OwnLoop(_Seen):
    """Forwards outside generate that follow each other: each continues the one before, with a cache or without."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model_type, self.name = kind_of(model), name_of(model)
        self.where = ""
        self.ended_s = 0.0
        self._ids: Any = None

    def begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Forward, bool]:
        """The forward that is about to begin, and does it continue this loop?"""
        forward = forward_of(args, kwargs)
        ids = kwargs.get("input_ids", args[0] if args else None)
        continues = self._continues(forward, ids)
        if not self.forwards or continues:
            self._ids = ids
        return forward, continues

    def _continues(self, forward: Forward, ids: Any) -> bool:
        if not self.forwards or forward.computed is None:
            return False
        before = self.forwards[-1]
        if before.computed is None or forward.rows != before.rows:
            return False
        if forward.read:
            decoding = before.computed == 1 and len(self.forwards) > 1
            return forward.read == (before.read or 0) + before.computed and (forward.computed == 1 or not decoding)
        # Without a cache: the same ids again and one more. Texts that are only scored do not begin with each other.
        return not before.read and forward.computed == before.computed + 1 and _begins_with(ids, self._ids)

    def let_go(self) -> None:
        """Weigh the cache and keep no hold of it: whether the loop goes on is its own affair, and so is its memory."""
        self.look()
        self.cache = None

    @property
    def is_loop(self) -> bool:
        return len(self.forwards) > 1

    def call(self) -> Call:
        per_row = [(each.computed, each.read) for each in self.forwards]
        first = self.forwards[0]
        read = first.read or 0
        # A prompt may come in several forwards; then it ends where one position a time begins.
        chunks = 1
        if self.forwards[1].read:
            singles = (at for at, each in enumerate(self.forwards[1:], 1) if each.computed == 1)
            chunks = next(singles, len(self.forwards))
        prompt = read + sum(each.computed or 0 for each in self.forwards[:chunks])
        new_tokens = len(self.forwards) - chunks + 1
        began_s = self.times_s[0]
        first_s = self.times_s[chunks] if chunks < len(self.times_s) else self.ended_s
        return Call(
            where=self.where,
            how="own loop",
            model_type=self.model_type,
            batch_size=first.rows,
            use_cache=Setting(self.cache_class is not None, "call"),
            cache_class=self.cache_class,
            positions_computed=self.totals("computed"),
            positions_read=self.totals("read"),
            prompt_tokens=prompt,
            new_tokens=new_tokens,
            reused_tokens=first.read,
            generation_s=self.ended_s - began_s,
            ttft_s=first_s - began_s,
            tpot_s=(self.ended_s - first_s) / (new_tokens - 1) if new_tokens > 1 else None,
            peak_cache_bytes=0 if self.cache_class is None else self.peak[0],
            peak_cache_tokens=self.peak[1],
            finish_reason=None,
            cached=cached_of(per_row, prompt),
            rows=first.rows,
            cache_origin="handed over",
            began_s=began_s,
            model=self.name,
        )


def _begins_with(ids: Any, before: Any) -> bool:
    if ids is None or before is None or getattr(ids, "dim", lambda: 0)() != 2:
        return False
    same = ids[:, : before.shape[1]] == before.to(ids.device)
    return bool(same.all())


def _answers(sequences: Any, echoed: int) -> list[list[int]] | None:
    """The new ids of every row; None where the output is of another kind (audio, for one)."""
    if getattr(sequences, "dim", lambda: 0)() != 2 or sequences.is_floating_point():
        return None
    found: list[list[int]] = sequences[:, echoed:].tolist()
    return found


def _made_of_config(model: Any) -> bool | None:
    """Was its generation config made of config.json, for want of a generation_config.json?"""
    found: bool | None = getattr(getattr(model, "generation_config", None), "_from_model_config", None)
    return found


def _decided(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool | None, Decided]:
    """use_cache as far as call and model say it, and who does; the library's default is on."""
    if "use_cache" in kwargs:  # None counts, too: it takes the place of what the files say, and is no cache
        return bool(kwargs["use_cache"]), "call"
    passed = kwargs.get("generation_config") or (args[1] if len(args) > 1 else None)
    given = getattr(passed, "use_cache", None)
    if given is not None:
        return bool(given), "call"
    value = getattr(getattr(model, "generation_config", None), "use_cache", None)
    if value is None:
        return True, "library default"
    made_of_config = _made_of_config(model)
    written = _written(model, ENDS[1] if made_of_config else ENDS[0])
    said = None if written is None else written.get("use_cache")
    if value is True and said is None:  # earlier versions write the default into every generation config
        return True, "library default"
    if written is not None and said != value:
        return bool(value), "code"
    return bool(value), "config.json" if made_of_config else "generation_config.json"


def _written(model: Any, name: str) -> dict[str, Any] | None:
    """This file of the folder that the model was loaded from; None where it cannot be had."""
    folder = getattr(model.config, "_name_or_path", "") or getattr(model, "name_or_path", "")
    path = Path(folder, name)
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8")) if folder and path.is_file() else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
