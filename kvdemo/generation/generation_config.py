"""What a model's generation_config.json may ask of a run: whatever no run could do is refused once, before the first one."""

from __future__ import annotations

import copy
from collections.abc import Set
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.requests import SamplingParams
from kvdemo.models.loaded import LoadedModel

__all__ = ["refuse_generation_config"]

FILE = "generation_config.json"

# Each makes generate run another loop than the one that is measured here, or ask the hub for code; with the value for off.
OTHER_LOOPS = {
    "penalty_alpha": 0,
    "dola_layers": None,
    "prompt_lookup_num_tokens": None,
    "guidance_scale": 1,
    "token_healing": False,
}


def refuse_generation_config(loaded: LoadedModel, sampling: SamplingParams, ends: Set[int]) -> None:
    """InvalidRequest when the model's generation_config asks for something that cannot be streamed one by one, or holds a
    value that transformers refuses as soon as it runs; the field is named.

    sampling   of the run: its values win over the file's, and a greedy run reads none of them
    ends       ids of the tokens that end an answer; none at a fixed length
    """
    config = loaded.model.generation_config
    for name in ("num_beams", "num_return_sequences", "num_beam_groups"):
        value = getattr(config, name, None)
        if value is not None and value != 1:
            raise InvalidRequest(FILE, f"sets {name}={value}; answers are streamed one at a time: set it to 1")
    for name, off in OTHER_LOOPS.items():
        value = getattr(config, name, None)
        if value is not None and value != off:
            raise InvalidRequest(FILE, f"sets {name}={str(value)[:40]}; that is no plain decoding: take it out")
    try:
        _process(loaded.model, config, sampling, ends)
    except Exception as error:  # each processor has checks and words of its own
        field = _field_at_fault(loaded.model, config, sampling, ends)
        raise InvalidRequest(FILE, f"{field}transformers refuses it: {_in_one_line(error)}") from error


def _process(model: Any, config: Any, sampling: SamplingParams, ends: Set[int]) -> None:
    """Make the logits processors that generate would make of `config`, and use each of them once, on the CPU."""
    import torch
    from transformers import LogitsProcessorList

    trial = copy.copy(config)
    trial.do_sample, trial.temperature = not sampling.greedy, sampling.temperature
    trial.top_p, trial.top_k = sampling.top_p, sampling.top_k
    trial.max_length = 3  # so that the next token is the last, too
    trial._eos_token_tensor = torch.tensor(sorted(ends)) if ends else None
    ids = torch.zeros((1, 2), dtype=torch.long)
    # generate itself calls it: the one place that says which values become processors.
    processors: LogitsProcessorList = model._get_logits_processor(
        trial, input_ids_seq_length=2, encoder_input_ids=ids, device="cpu", model_kwargs={"attention_mask": ids + 1}
    )
    if processors:
        processors(ids, torch.zeros((1, model.config.get_text_config(decoder=True).vocab_size)))


def _field_at_fault(model: Any, config: Any, sampling: SamplingParams, ends: Set[int]) -> str:
    """ "sets NAME=VALUE; " of the first field that is refused alone; "" where several are needed for it."""
    from transformers import GenerationConfig

    for name in config.to_diff_dict():
        alone, value = GenerationConfig(), getattr(config, name, None)
        setattr(alone, name, value)
        try:
            _process(model, alone, sampling, ends)
        except Exception:
            return f"sets {name}={str(value)[:40]}; "
    return ""


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
