"""What a cache weighs: footprints of layers, plans made of them, and points that were measured.

A footprint counts elements, never bytes, so that a change of length, batch or dtype is arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvdemo.errors import InvalidRequest
from kvdemo.facts.records import PeakKind
from kvdemo.facts.requests import checked_choice, checked_int, checked_number

__all__ = [
    "CACHE_DTYPES",
    "MOST_PAGE_TOKENS",
    "USUAL_BUDGET",
    "Architecture",
    "Budget",
    "Capacity",
    "FixedState",
    "LayerFootprint",
    "LayerKind",
    "LayerPlan",
    "MeasuredLayer",
    "MeasuredPoint",
    "MemoryPlan",
    "MemoryRequest",
    "Method",
    "Paged",
    "StoredWeights",
    "TokenStream",
]

CACHE_DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}
LayerKind = Literal[
    "full",
    "sliding",
    "chunked",
    "latent",
    "indexed",
    "compressed",
    "state",
    "hybrid",
    "shared",
    "cross",
    "none",
]
Method = Literal["traced", "estimated", "by hand"]
"""How a geometry became known: the model's own code was run on meta, read from fields, or typed."""

MAX_LENGTH = 100_000_000
MAX_BATCH = 1_000_000
MOST_PAGE_TOKENS = 65_536


@dataclass(frozen=True, slots=True)
class FixedState:
    """Elements of one sequence whatever its length. bytes_each None: stored in the cache's dtype."""

    elements: int
    bytes_each: int | None = None


@dataclass(frozen=True, slots=True)
class TokenStream:
    """Tensors of a layer, beside keys and values, whose size depends on the length N in tokens.

    elements     of one entry
    every        tokens per entry: there are N // every entries
    remainder    N % every entries instead: tokens that wait until their entry is full
    once         one entry as soon as N reaches `every`, and never more
    bytes_each   None: stored in the cache's dtype
    """

    elements: int
    every: int = 1
    remainder: bool = False
    once: bool = False
    bytes_each: int | None = None

    def elements_at(self, num_tokens: int) -> int:
        """Elements that one sequence of num_tokens keeps."""
        if self.once:
            return self.elements if num_tokens >= self.every else 0
        return self.elements * (num_tokens % self.every if self.remainder else num_tokens // self.every)


@dataclass(frozen=True, slots=True)
class LayerFootprint:
    """What one layer keeps for one sequence.

    per token        kv_heads x key_dim + value_heads x value_dim + extra_elements
    lead_tokens      positions that the model puts in front of every sequence
    streams          what grows in another way
    window           tokens a sliding or chunked layer attends to; None: all of them
    held_window      tokens a growing cache keeps between steps (window - 1 in transformers); None: all
    fixed            states whose size does not depend on the length
    shares           index of the layer whose cache this one reads (it stores nothing itself)
    """

    index: int
    kind: LayerKind
    kv_heads: int = 0
    key_dim: int = 0
    value_heads: int = 0
    value_dim: int = 0
    extra_elements: int = 0
    window: int | None = None
    held_window: int | None = None
    fixed: tuple[FixedState, ...] = ()
    shares: int | None = None
    lead_tokens: int = 0
    streams: tuple[TokenStream, ...] = ()

    @property
    def elements_per_token(self) -> int:
        return self.kv_heads * self.key_dim + self.value_heads * self.value_dim + self.extra_elements


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """All weights in bytes as they are stored, and how, in words: "as published: mxfp4"."""

    num_bytes: int
    how: str


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory that a plan may fill, in GiB, and whose it is: "this machine", or "default" where nobody has said."""

    gib: float
    source: str


USUAL_BUDGET = Budget(80, "default")


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model as the planner sees it: geometry, and how it became known.

    encoder_len  tokens that the encoder of an encoder-decoder hands over when the request does not say; None: as
                 many as the request's own length
    static       False: transformers has no cache of fixed size for this model
    weights      as they are stored, where that is not every parameter in dtype
    loaded       it is in memory on this machine, or would be loaded here
    hub_id       owner/name on the hub; None: of a folder, a file or numbers, or not known
    """

    name: str
    model_type: str
    layers: tuple[LayerFootprint, ...]
    num_parameters: int | None
    context_limit: int | None
    dtype: str
    method: Method
    attention_heads: int | None = None
    notes: tuple[str, ...] = ()
    encoder_len: int | None = None
    static: bool = True
    weights: StoredWeights | None = None
    loaded: bool = False
    hub_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """How long, how many, in which dtypes, within which budget.

    weights_dtype   None: as they are published, or loaded
    encoder_len     tokens that an encoder hands over
    page_tokens     of a page, in an engine with a paged cache
    budget_source   whose memory the budget is, as Budget names it; "given": a person said so
    """

    seq_len: int
    batch_size: int = 1
    cache_dtype: str = "bfloat16"
    weights_dtype: str | None = None
    budget_gib: float | None = None
    keep_free: float = 0.1
    tensor_parallel: int = 1
    encoder_len: int | None = None
    budget_source: str = "given"
    page_tokens: int = 16

    def __post_init__(self) -> None:
        checked_int("page_size", self.page_tokens, 1, MOST_PAGE_TOKENS)
        checked_int("seq_len", self.seq_len, 1, MAX_LENGTH)
        checked_int("batch_size", self.batch_size, 1, MAX_BATCH)
        checked_choice("cache_dtype", self.cache_dtype, tuple(CACHE_DTYPES))
        if self.weights_dtype is not None:
            checked_choice("weights_dtype", self.weights_dtype, (*CACHE_DTYPES, "int4"))
        if self.budget_gib is not None:
            checked_number("budget_gib", self.budget_gib, 0.001, 1_000_000)
        if checked_number("keep_free", self.keep_free, 0, 0.99) < 0:
            raise InvalidRequest("keep_free", "must be a share between 0 and 0.99")
        checked_int("tensor_parallel", self.tensor_parallel, 1, 1024)
        if self.encoder_len is not None:
            checked_int("encoder_len", self.encoder_len, 1, MAX_LENGTH)


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """One layer of a plan; sizes for the whole batch, in bytes."""

    footprint: LayerFootprint
    held_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """What fits in the budget with the share kept free.

    usable_bytes         budget less the kept free share, less the weights; negative when the weights alone do not fit
    longest_by_batch     (requests at once, longest request in tokens, capped by the model's own limit?)
    most_at_once         requests of the asked length that fit together
    """

    budget_bytes: int
    usable_bytes: int
    longest_by_batch: tuple[tuple[int, int, bool], ...]
    most_at_once: int
    fits: bool


@dataclass(frozen=True, slots=True)
class Paged:
    """A cache in pages, as an engine holds it, on one device.

    seq_len    of one request: the asked length, or the model's own limit where that is less
    at_once    requests of seq_len tokens that fit together, a fraction as engines print it
    notes      what is not in these figures, in sentences
    commands   (engine, the command that starts it so, for this machine only)
    """

    page_tokens: int
    page_bytes: int
    cache_bytes: int
    num_pages: int
    tokens: int
    seq_len: int
    at_once: float
    notes: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Predicted sizes in bytes for the whole batch.

    held              what a growing cache holds after seq_len tokens, fixed state included
    reserved          what a cache of fixed size allocates: reserved_attention + fixed_state
    uniform           every attention layer at full length, fixed state included
    bytes_per_token   one sequence, at this length (layers beyond their window add nothing)
    weight_bytes      of one device; weights_how: how they are stored, in words; None: not known
    crossover_tokens  smallest length per request at which the cache reaches the weights; None: never
    paged             the same memory in pages; None without a budget, or where nothing is kept by token
    """

    architecture: Architecture
    request: MemoryRequest
    layers: tuple[LayerPlan, ...]
    weight_bytes: int | None
    weights_how: str | None
    held_bytes: int
    reserved_bytes: int
    uniform_bytes: int
    reserved_attention_bytes: int
    fixed_state_bytes: int
    bytes_per_token: int
    crossover_tokens: int | None
    budget_crossover_tokens: int | None = None
    capacity: Capacity | None = None
    notes: tuple[str, ...] = ()
    paged: Paged | None = None


@dataclass(frozen=True, slots=True)
class MeasuredLayer:
    """One layer of a live cache, bytes: logical (the tensors), storage (what stays allocated), and the prediction."""

    index: int
    kind: LayerKind
    held_bytes: int
    storage_bytes: int
    predicted_bytes: int
    cause: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A cache of the loaded model, really filled with seq_len tokens and weighed."""

    strategy: str
    seq_len: int
    layers: tuple[MeasuredLayer, ...]
    process_bytes: int | None = None
    process_kind: PeakKind = "resident"

    @property
    def held_bytes(self) -> int:
        return sum(layer.held_bytes for layer in self.layers)

    @property
    def storage_bytes(self) -> int:
        return sum(layer.storage_bytes for layer in self.layers)

    @property
    def predicted_bytes(self) -> int:
        return sum(layer.predicted_bytes for layer in self.layers)
