"""A random llama of two layers with a tokenizer of 512 tokens: small enough for any CPU, and made here.

There are no weights: it is meant for ``--load-format dummy``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 512
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{m.role}}\n{{m.content}}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters() -> list[str]:
    """Return the printable letter that stands for each byte in byte-level BPE (GPT-2's table)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain} | {b: chr(256 + n) for n, b in enumerate(others)}
    return [table[b] for b in range(256)]


def tokenizer() -> dict[str, Any]:
    """Return ``tokenizer.json``: all bytes, then pairs of letters until the vocabulary is full."""
    tokens = [*SPECIAL, *byte_letters()]
    letters = "etaoinshrdlucmfw"
    pairs = [(a, b) for a in letters for b in letters][: VOCABULARY - len(tokens)]
    vocabulary = {token: i for i, token in enumerate([*tokens, *(a + b for a, b in pairs)])}
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": s, "special": True} | special for i, s in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [f"{a} {b}" for a, b in pairs],
        },
    }


def files() -> dict[str, dict[str, Any]]:
    """Return every file of the model by name."""
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "hidden_act": "silu",
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 0},
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[0],
            "eos_token": SPECIAL[0],
            "pad_token": SPECIAL[0],
            "model_max_length": 2048,
            "chat_template": TEMPLATE,
        },
    }


def write(folder: Path) -> None:
    """Write the model into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
