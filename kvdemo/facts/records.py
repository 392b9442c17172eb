"""What one run did: raw times, counts and work. Every rate is a property, None when it is undefined.

Definitions (the README prints them for readers):
    prefill_s = ttft_s = first token - accepted        decode_s = last token - first token
    tpot_s = decode_s / (n - 1)                        generation_s = prefill_s + decode_s
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

__all__ = ["FinishReason", "LayerBytes", "PeakKind", "Reported", "RunRecord", "Status"]

FinishReason = Literal["stop", "stop_string", "length", "cancelled", "timed_out"]
Status = Literal["ok", "cancelled", "failed", "timed_out"]
PeakKind = Literal["allocator", "allocator, sampled", "resident"]
"""Who tells a peak: the accelerator's allocator, or the process's resident size, sampled."""


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """One layer of a live cache, in bytes. other_bytes: quantisation's scales and residual, indexer keys.

    storage_bytes   what stays allocated behind the tensors; more than held_bytes where a tensor is a view
    keys_shape      of the tensor of keys, where there is one: (batch, KV heads, positions, head_dim); None: not known
    """

    index: int
    layer_class: str
    keys_bytes: int
    values_bytes: int
    states_bytes: int
    other_bytes: int
    storage_bytes: int
    device: str | None
    keys_shape: tuple[int, ...] | None = None

    @property
    def held_bytes(self) -> int:
        return self.keys_bytes + self.values_bytes + self.states_bytes + self.other_bytes


@dataclass(frozen=True, slots=True)
class Reported:
    """What an engine behind a URL said of a run; None: it did not say. Never mixed with what was measured here.

    cached_tokens        of the prompt's, that it did not compute again
    prefill_s, decode_s  by its own clock
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    prefill_s: float | None = None
    decode_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of the model, or of an engine that was asked for one. None is "not known", 0 is "none of it".

    arm                   what it is called in its comparison; None: by its strategy
    strategy              key of the strategies table; None where the cache is not ours to choose (an engine behind a URL)
    token_ids             of the answer; None where only their number is known: num_new_tokens
    token_times_s         one per new token, since acceptance by the model's thread; fewer where several tokens came at a
                          time, whose ids are not known then
    text_ends             one per new token: how many characters of the text were readable with it; () where that is not known
    positions_computed    one per forward: positions whose keys and values it computed
    positions_read        one per forward: positions it took from the cache
    cache_bytes_by_token  one per new token: (logical, storage) bytes
    cache_bytes_by_device logical bytes at the end, per device name; cache_layers: per layer
    peak_bytes            above the baseline; peak_kind: who says so
    would_end_at          fixed length only: index of the first end token that was passed over
    notices               sentences a person must know about how the prompt came to the model
    compile_s             time torch.compile took, None where nothing was compiled
    reported              what the engine that ran it said; None: it ran here
    reasoning             what it sent as thought before the answer; its tokens count, and have their times
    first_text_s          when the answer itself began, as an engine behind a URL sent it
    round, order          place in a comparison; None outside one
    """

    strategy: str | None
    status: Status
    finish_reason: FinishReason | None
    prompt_tokens: int | None
    token_ids: tuple[int, ...] | None = ()
    token_times_s: tuple[float, ...] = ()
    positions_computed: tuple[int, ...] | None = ()
    positions_read: tuple[int, ...] | None = ()
    text: str = ""
    error: str | None = None
    reused_tokens: int | None = 0
    queue_s: float = 0.0
    prepare_s: float = 0.0
    request_s: float | None = None
    cache_tokens: int | None = 0
    cache_bytes: int | None = 0
    cache_storage_bytes: int | None = 0
    cache_bytes_by_token: tuple[tuple[int, int], ...] = ()
    cache_bytes_by_device: dict[str, int] = field(default_factory=dict)
    cache_layers: tuple[LayerBytes, ...] = ()
    peak_bytes: int | None = None
    peak_kind: PeakKind | None = None
    would_end_at: int | None = None
    compile_s: float | None = None
    round: int | None = None
    order: int | None = None
    warmup: bool = False
    notices: tuple[str, ...] = ()
    arm: str | None = None
    num_new_tokens: int | None = None
    text_ends: tuple[int, ...] = ()
    reported: Reported | None = None
    reasoning: str = ""
    first_text_s: float | None = None

    @property
    def arm_key(self) -> str:
        """The arm it belongs to: its own name, else its strategy."""
        return self.arm or self.strategy or ""

    @property
    def new_tokens(self) -> int:
        return len(self.token_ids) if self.token_ids is not None else self.num_new_tokens or 0

    @property
    def prefill_s(self) -> float | None:
        """Accepted to first token known, s."""
        return self.token_times_s[0] if self.token_times_s else None

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, s: the same as prefill for a local run."""
        return self.prefill_s

    @property
    def decode_s(self) -> float | None:
        """First token to last token, s."""
        return self.token_times_s[-1] - self.token_times_s[0] if self.token_times_s else None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first, s; None below two tokens, or where all came at one time."""
        if self.decode_s is None or self.new_tokens < 2 or len(self.token_times_s) < 2:
            return None
        return self.decode_s / (self.new_tokens - 1)

    @property
    def decode_tokens_per_s(self) -> float | None:
        return 1 / self.tpot_s if self.tpot_s else None

    @property
    def prefill_tokens_per_s(self) -> float | None:
        """Prompt tokens processed (not reused) per second of prefill."""
        if not self.prefill_s or self.reused_tokens is None or self.prompt_tokens is None:
            return None
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_s

    @property
    def generation_s(self) -> float | None:
        """Accepted to last token, s."""
        return self.token_times_s[-1] if self.token_times_s else None

    @property
    def times_by_token_s(self) -> tuple[float, ...]:
        """When each token came, s; () where several came at a time, so that none has a time of its own."""
        return self.token_times_s if len(self.token_times_s) == self.new_tokens else ()

    @property
    def step_s(self) -> tuple[float, ...]:
        """Time of each step after the first token, s: one fewer than tokens."""
        return tuple(after - before for before, after in pairwise(self.times_by_token_s))

    @property
    def total_computed(self) -> int | None:
        """Positions that all forwards together computed."""
        return None if self.positions_computed is None else sum(self.positions_computed)

    @property
    def total_read(self) -> int | None:
        """Positions that all forwards together took from the cache."""
        return None if self.positions_read is None else sum(self.positions_read)

    @property
    def counts(self) -> bool:
        """Does this run belong in the statistics? Warm-ups and runs that did not finish do not."""
        return self.status == "ok" and not self.warmup
