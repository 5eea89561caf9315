"""The model's config.json against the sizes of a launch, and what its weights leave of the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.lint.finding import Finding, Severity
from fleetctl.lint.sizes import Sizes, sizes_of
from fleetctl.lint.words import Words

GIB = 1024**3
KV_BYTES = {"fp8_e5m2": 1.0, "fp8_e4m3": 1.0, "fp4_e2m1": 0.5, "bf16": 2.0, "bfloat16": 2.0}
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model folder. ``weights`` is the size of its weight files in bytes, None unknown."""

    config: Mapping[str, Any]
    weights: int | None = None
    path: str = ""

    def of(self, name: str) -> Any:
        """Return a value of config.json; models with several parts keep the text part's in text_config."""
        inner = self.config.get("text_config") or self.config.get("llm_config")
        return self.config.get(name, inner.get(name) if isinstance(inner, Mapping) else None)

    def number(self, *names: str) -> int:
        """Return the first whole number of these names, 0 for none."""
        for name in names:
            value = self.of(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return max(0, value)
        return 0


def check(words: Words, model: ModelFacts, *, gpu_memory: int | None = None) -> Iterator[Finding]:
    """Yield findings about the model's sizes. ``gpu_memory``: bytes of the smallest GPU of the service."""
    sizes = sizes_of(words)
    if sizes is None:
        return
    for flag, identity, severity, message, hint in (
        *_heads(model, sizes),
        *_experts(words, model, sizes),
        *_length(words, model),
        *_quantization(words, model),
        *_memory(words, model, sizes, gpu_memory),
        *_rest(words, sizes, gpu_memory),
    ):
        where = words.where(words.owner_of(flag)) or words.where("model", "") or _model_place(words)
        yield Finding(identity, severity, message, flag=flag, where=where, hint=hint)


def _model_place(words: Words) -> str:
    origin = words.profile.origins.get("model")
    return origin.where if origin else ""


Row = tuple[str, str, Severity, str, str]


def _heads(model: ModelFacts, sizes: Sizes) -> Iterator[Row]:
    heads = model.number("num_attention_heads")
    if heads and heads % sizes.attn_tp:
        how = f"tp {sizes.tp}"
        if sizes.attn_tp != sizes.tp:
            how += f" / attention dp {sizes.attn_dp} × cp {sizes.attn_cp} = {sizes.attn_tp}"
        message = f"{heads} attention heads cannot be spread over {how}"
        hint = f"a divisor of {heads} is wanted: {', '.join(map(str, _divisors(heads)))}"
        yield "--tp-size", "heads-divide", Severity.ERROR, message, hint
    layers = model.number("num_hidden_layers")
    if layers and sizes.pp > layers:
        message = f"pipeline of {sizes.pp} stages for {layers} layers"
        yield "--pp-size", "layers-divide", Severity.ERROR, message, ""


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, min(number, 64) + 1) if number % n == 0]


def _experts(words: Words, model: ModelFacts, sizes: Sizes) -> Iterator[Row]:
    experts = model.number(*EXPERTS)
    if not experts:
        if words.number("--ep-size") > 1:
            message = f"ep-size {words.number('--ep-size')} for a model without experts"
            yield "--ep-size", "no-experts", Severity.WARNING, message, "it changes nothing"
        return
    spare = words.number("--ep-num-redundant-experts", 0)
    if (experts + spare) % sizes.ep:
        what = f"{experts} experts" + (f" + {spare} redundant" if spare else "")
        message = f"{what} cannot be spread evenly over ep {sizes.ep}"
        hint = f"with ep {sizes.ep}: ep-num-redundant-experts {-experts % sizes.ep}, or another ep-size"
        yield "--ep-size", "experts-divide", Severity.ERROR, message, hint


def _length(words: Words, model: ModelFacts) -> Iterator[Row]:
    asked, most = words.number("--context-length", 0), model.number("max_position_embeddings")
    if (
        asked
        and most
        and asked > most
        and words.profile.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN") not in ("1", "true")
    ):
        message = f"context-length {asked} is more than the model's {most}"
        hint = "SGLang refuses it unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
        yield "--context-length", "context-too-long", Severity.ERROR, message, hint


def _quantization(words: Words, model: ModelFacts) -> Iterator[Row]:
    told = model.of("quantization_config")
    own = told.get("quant_method") if isinstance(told, Mapping) else None
    asked = words.value("--quantization")
    if own and asked and asked not in (own, str(own).replace("-", "_")):
        message = f"quantization {asked}, and the model's config.json says {own}"
        hint = "take the flag away: SGLang reads the method from the model"
        yield "--quantization", "quantization-differs", Severity.WARNING, message, hint


def kv_bytes(words: Words, model: ModelFacts, sizes: Sizes) -> float | None:
    """Return the KV cache's bytes per token on one GPU; None when config.json does not say enough.

    Two values (key, value) of head_dim for each KV head of each layer; a latent (MLA) cache holds
    kv_lora_rank + qk_rope_head_dim once, on every GPU.
    """
    layers = model.number("num_hidden_layers")
    kind = str(words.value("--kv-cache-dtype") or "auto")
    width = KV_BYTES.get(kind, 2.0)  # auto: the model's own type, 16 bits for all that are served
    if not layers:
        return None
    layers = -(-layers // sizes.pp)
    rank = model.number("kv_lora_rank")
    if rank:
        return layers * (rank + model.number("qk_rope_head_dim")) * width
    heads = model.number("num_attention_heads")
    pairs = model.number("num_key_value_heads") or heads
    size = model.number("head_dim") or (model.number("hidden_size") // heads if heads else 0)
    if not (pairs and size):
        return None
    return layers * 2 * max(1, -(-pairs // sizes.attn_tp)) * size * width


def _memory(words: Words, model: ModelFacts, sizes: Sizes, gpu: int | None) -> Iterator[Row]:
    fraction = words.value("--mem-fraction-static")
    if not gpu or not model.weights:
        return
    each = model.weights / (sizes.tp * sizes.pp)
    shown = f"weights {_gib(model.weights)} / (tp {sizes.tp} × pp {sizes.pp}) = {_gib(each)} a GPU"
    limit = gpu * fraction if isinstance(fraction, float) else float(gpu)
    share = f"{_gib(gpu)} × {fraction}" if isinstance(fraction, float) else "all of it"
    if each >= limit:
        message = f"{shown}; static memory is {share} = {_gib(limit)}: the weights alone do not fit"
        yield (
            "--mem-fraction-static",
            "memory-weights",
            Severity.WARNING,
            message,
            "more GPUs, or fewer bits",
        )
        return
    token = kv_bytes(words, model, sizes)
    if token is None or not isinstance(fraction, float):
        return
    tokens = int((limit - each) / token)
    wanted = words.number("--context-length", 0) or model.number("max_position_embeddings")
    if wanted and tokens < wanted:
        message = (
            f"{shown}; static memory {share} = {_gib(limit)} leaves {_gib(limit - each)} for the KV cache, "
            f"at {token / 1024:.1f} KiB a token {tokens} tokens, less than one request of {wanted}"
        )
        hint = "raise mem-fraction-static, lower context-length, or use an 8-bit kv-cache-dtype"
        yield "--mem-fraction-static", "memory-kv", Severity.WARNING, message, hint


def _rest(words: Words, sizes: Sizes, gpu: int | None) -> Iterator[Row]:
    """Compare what mem-fraction-static leaves with what SGLang keeps for activations and graphs by itself.

    Its own estimate in MiB (``_handle_gpu_memory_settings`` of 0.5.12.post1, ``memory_hook`` of 0.5.23):
    512 + max(chunked prefill, 2048) × 1.5 + largest graph batch × 2 + tp × pp / 8 × 1024; parts that depend on
    the model are left out, so this is the least.
    """
    fraction = words.value("--mem-fraction-static")
    if not gpu or not isinstance(fraction, float) or not 0 < fraction < 1:
        return
    chunk = max(words.number("--chunked-prefill-size", 2048), 2048)
    largest = words.number("--cuda-graph-max-bs-decode", 0) or words.number(
        "--cuda-graph-max-bs", 0
    )
    largest = 0 if words.value("--disable-cuda-graph") is True else largest
    share = sizes.tp * sizes.pp / 8 * 1024
    least = (512 + chunk * 1.5 + largest * 2 + share) * 1024**2
    rest = gpu * (1 - fraction)
    if rest < least:
        message = (
            f"mem-fraction-static {fraction} leaves {_gib(rest)} of {_gib(gpu)} for activations and graphs; "
            f"SGLang's own estimate is at least 512 + {chunk} × 1.5 + {largest} × 2 + {share:.0f} MiB "
            f"= {_gib(least)}"
        )
        hint = f"at most {1 - least / gpu:.2f}, or smaller chunked-prefill-size and graph batches"
        yield "--mem-fraction-static", "memory-rest", Severity.WARNING, message, hint


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
