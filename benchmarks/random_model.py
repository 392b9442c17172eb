"""A model of a known shape with random weights: for speed and memory on a machine where the real weights cannot be had.

What it says means nothing; how long a step takes and what its cache weighs do not depend on the weights.

    python -m benchmarks.random_model SmolLM2-1.7B FOLDER [--dtype bfloat16]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kvdemo.planner import catalog
from kvdemo.planner.architecture import config_object


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=catalog.names())
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    arguments = parser.parse_args()
    make(arguments.name, arguments.folder, arguments.dtype)


def make(name: str, folder: Path, dtype: str) -> None:
    """Write config, weights and a tokenizer into `folder`; on an accelerator where there is one, which is faster."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config_object(catalog.config(name)), dtype=getattr(torch, dtype))
    model.save_pretrained(folder)
    tokenizer(model.config.get_text_config().vocab_size).save_pretrained(folder)


def tokenizer(vocab_size: int) -> Any:
    """One token per byte of text, and a made-up word for every further id that the model may say."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: index for index, letter in enumerate(letters)}
    vocab |= {f"w{index}": index for index in range(len(letters), vocab_size)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


if __name__ == "__main__":
    main()
