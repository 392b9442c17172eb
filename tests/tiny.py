"""A tiny seeded model built in code: a byte-level tokenizer (256 bytes, then end and padding) and four Llama layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvdemo.models.loaded import LoadedModel

PROMPT = "The quick brown fox"  # 19 tokens
EOS_ID = 256
PAD_ID = 257
WORD, WORD_ID = "\u2581word", 258
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def tiny_tokenizer(
    chat_template: str | dict[str, str] | None = CHAT_TEMPLATE, merges: Sequence[tuple[str, str]] = ()
) -> Any:
    """One token per UTF-8 byte, ids 0 to 255 equal to the byte; two characters that are merged are one token (256 ...)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = _byte_alphabet()
    vocab = {alphabet[byte]: byte for byte in range(256)}
    vocab |= {one + other: 256 + at for at, (one, other) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")
    if chat_template is not None:
        fast.chat_template = chat_template
    return fast


def byte_fallback_tokenizer() -> Any:
    """The other kind, as converted from SentencePiece: <0x00> to <0xFF> are ids 0 to 255, 258 is " word", 259 "a"."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {"<end>": EOS_ID, "<pad>": PAD_ID, WORD: WORD_ID, "a": WORD_ID + 1}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")
    fast.chat_template = CHAT_TEMPLATE
    return fast


def tiny_model(seed: int = 0, **changes: Any) -> Any:
    """A Llama with 4 layers, 4 heads, 2 KV heads of 16, float32, 1,024 positions; `changes` go to its config."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    fields: dict[str, Any] = {
        "vocab_size": 258,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "initializer_range": 0.3,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "bos_token_id": None,
        **changes,
    }
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**fields)).eval()


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, spare = {byte: chr(byte) for byte in printable}, 256
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(spare)
            spare += 1
    return [letters[byte] for byte in range(256)]


def tiny_loaded(model: Any = None, tokenizer: Any = None, **changes: Any) -> LoadedModel:
    """A LoadedModel around the tiny model, with a thread of its own; close it with `.thread.close()`."""
    from kvdemo.facts.model import ModelFacts
    from kvdemo.models.continuing import continues
    from kvdemo.models.loaded import ForwardGate, LoadedModel
    from kvdemo.models.thread import ModelThread

    model = tiny_model(**changes) if model is None else model
    config = model.config
    facts = ModelFacts(
        name="tiny",
        source="built in code",
        model_type=config.model_type,
        num_parameters=model.num_parameters(),
        weight_bytes=sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        dtype=str(model.dtype).removeprefix("torch."),
        device="cpu",
        context_limit=config.max_position_embeddings,
        cache_bytes_per_token=2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4,
        vocab_size=config.vocab_size,
        has_chat_template=True,
        attention="sdpa",
    )
    return LoadedModel(
        model=model,
        tokenizer=tiny_tokenizer() if tokenizer is None else tokenizer,
        facts=facts,
        thread=ModelThread("tiny-model"),
        gate=ForwardGate(model),
        continues=continues(model),
    )


def tiny_speaker(prompt_tokens: int, answer: Sequence[int], **changes: Any) -> Any:
    """The tiny model with its logits overruled: after `prompt_tokens` it says the ids of `answer`, then the end token.

    A stand-in for a model that happens to say just this; forwards, caches and generate are the real ones.
    """
    import torch

    model = tiny_model(**changes)
    forward = model.forward

    def overruled(*args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("cache")
        before = 0 if cache is None else int(cache.get_seq_length())
        outputs = forward(*args, **kwargs)
        said = before + kwargs["input_ids"].shape[1] - prompt_tokens
        outputs.logits = torch.zeros_like(outputs.logits)
        outputs.logits[:, -1, answer[said] if said < len(answer) else EOS_ID] = 1.0
        return outputs

    model.forward = overruled
    return model
