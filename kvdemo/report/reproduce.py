"""The script "Reproduce without kvdemo", filled in for a comparison: transformers only, about 25 lines of code."""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined

from kvdemo.caches.making import SLOTS
from kvdemo.caches.strategies import slots_for, strategy_of
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.facts.model import ModelFacts
from kvdemo.in_force.advice import COMPILE_LINES
from kvdemo.settings import DEFAULT_MODEL, TINY_WINDOW, TINY_WINDOW_NAME
from kvdemo.shipped import assets_folder

__all__ = ["is_local", "model_id", "model_switches", "reproduce_script", "templates", "to_fill_in"]

DTYPES = ("float64", "float32", "bfloat16", "float16")
LOCAL = tuple(f"{what} from the {place} " for what in ("Weights", "Tokenizer alone,") for place in ("folder", "file"))


@cache
def templates() -> Templates:
    """The templates in assets/; those that end in .html.j2 escape whatever is put into them."""
    return Templates(
        loader=FileSystemLoader(assets_folder()),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )


def model_id(model: ModelFacts) -> str:
    """What names the model to others: its id on the hub, else a place for them to fill in.

    Where it lies on the machine that measured is nobody else's business, and nobody else finds it there.
    """
    if model.hub_id is not None:
        return model.hub_id
    if model.name == TINY_WINDOW_NAME:
        return TINY_WINDOW
    # Results from before ids were kept: only the default model's is known.
    if model.name == DEFAULT_MODEL.split("/")[-1] and not is_local(model):
        return DEFAULT_MODEL
    return f"{'OWNER' if model.revision else 'PATH/TO'}/{model.name}"


def is_local(model: ModelFacts) -> bool:
    """Did the weights come from a folder or file that somebody gave?"""
    return model.hub_id is None and model.source.startswith(LOCAL)


def to_fill_in(model: ModelFacts) -> str:
    """What a reader of the command and the script has to put in, as a sentence; "" where they are complete."""
    named = model_id(model)
    if named == TINY_WINDOW:
        return f"{named} is built by kvdemo alone: the script needs another model's folder or id on the hub."
    if not named.startswith(("OWNER/", "PATH/TO/")):
        return ""
    return f"{named} stands for the model: put in its folder or its id on the hub."


def reproduce_script(result: ComparisonResult) -> str:
    """A script that runs the same arms on the same prompt and prints their medians, ratios and whether tokens agree."""
    spec, model = result.spec, result.model
    chosen = [strategy_of(key) for key in spec.strategies]
    compiled = any(strategy.compiles for strategy in chosen)
    imports = {"AutoModelForCausalLM", "AutoTokenizer", *(["CompileConfig"] if compiled else [])}
    imports |= {strategy.cache.class_name for strategy in chosen if strategy.cache is not None}
    settings = [*sampling_arguments(result), f"eos_token_id={None if spec.fixed_length else 'ends'}"]
    messages = [{"role": "system", "content": spec.system_prompt}] if spec.system_prompt else []
    messages.append({"role": "user", "content": spec.prompt})
    return (
        templates()
        .get_template("reproduce.py.j2")
        .render(
            about=f"Compares {', '.join(spec.arms)} on one prompt, as kvdemo {version(result.environment.kvdemo)} did.",
            transformers=version(result.environment.transformers),
            imports=", ".join(sorted(imports)),
            model=code(model_id(model)),
            dtype=model.dtype if model.dtype in DTYPES else "float32",
            device=code(model.device),
            as_chat=spec.as_chat,
            fixed_length=spec.fixed_length,
            messages=code(messages),
            prompt=code(spec.prompt),
            new_tokens=spec.max_new_tokens,
            rounds=max(1, spec.rounds),
            setup=COMPILE_LINES if compiled else (),
            arms=[(code(arm), ", ".join(arguments(result, spec.strategy_of(arm)))) for arm in spec.arms],
            seed=spec.sampling.seed,
            settings=", ".join(settings),
        )
    )


def arguments(result: ComparisonResult, key: str) -> list[str]:
    """The arm's arguments; a cache of fixed size is made for the prompt of the script, a compiled one as it was.

    Written from the table, never from the result, which may come from a file; only the size of groups is its own.
    """
    strategy = strategy_of(key)
    if strategy.cache is None:
        return ["use_cache=False"]
    prompt_tokens = max((run.prompt_tokens or 0 for run in result.runs), default=0)
    needed = slots_for(strategy, prompt_tokens + result.spec.max_new_tokens)
    group = re.search(r"q_group_size=(\d{1,6})\b", result.row(key).code)
    made = strategy.cache.expression(int(group[1]) if group else None)
    given = [
        "use_cache=True",
        f"cache={made.replace(SLOTS, str(needed) if strategy.compiles else 'length + new_tokens')}",
    ]
    if strategy.compiles:
        return [*given, "compile_config=compile_config"]
    return [*given, "disable_compile=True"] if strategy.fixed_size else given


def sampling_arguments(result: ComparisonResult) -> list[str]:
    sampling = result.spec.sampling
    if sampling.greedy:
        return ["do_sample=False"]
    return [
        "do_sample=True",
        f"temperature={sampling.temperature!r}",
        f"top_p={sampling.top_p!r}",
        f"top_k={sampling.top_k}",
    ]


def code(value: object) -> str:
    """A value as Python writes it, in ASCII: nothing in a prompt can leave its quotes."""
    return ascii(value)


def version(text: str) -> str:
    """A version number and nothing else: a result may come from a file."""
    return "".join(char for char in text if char.isascii() and (char.isalnum() or char in ".+-"))[:40]


def model_switches(model: ModelFacts, given: str | None = None) -> list[str]:
    """What names the model on a command line; nothing for the default one.

    given   the model as somebody named it on this machine, for a command that stays here
    """
    named = given or model_id(model)
    return [] if named == DEFAULT_MODEL else ["--model", named]
