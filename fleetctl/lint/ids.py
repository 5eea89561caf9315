"""The ids of all findings of a lint; docs/howto/lint.md says what each means."""

from __future__ import annotations

IDS = frozenset({
    "abbreviated-flag", "ambiguous-flag", "cache-exclusive", "chunk-page", "context-too-long", "deprecated-env",
    "deprecated-flag", "dp-attention-divide", "dp-attention-idle", "dp-lm-head", "dp-nodes", "dp-twice",
    "ep-all-or-one", "ep-divide", "ep-overridden", "experts-divide", "flag-too-new", "gpus-exceeded",
    "gpus-idle",
    "graph-idle", "heads-divide", "layers-divide", "lora-sizes", "memory-kv", "memory-rest", "memory-weights",
    "missing-model", "no-experts", "nodes-divide", "nvls-multicast", "nvls-unchecked", "padding-compile",
    "pipeline-speculative", "quantization-differs", "refused-flag", "removed-flag", "repeated-flag",
    "secret-in-the-open",
    "speculative-alone", "speculative-dp-attention", "speculative-draft", "speculative-set", "speculative-topk",
    "tbo-backend", "tls-pair", "unknown-allow", "unknown-env", "unknown-flag",
    "wrong-choice", "wrong-count", "wrong-value",
})  # fmt: skip
