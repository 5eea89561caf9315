"""Flags that do not go together, or need each other, as SGLang's own checks say.

Each rule quotes the check it stands for (``file: words`` of 0.5.12.post1 or 0.5.23). A rule asks only for flags
that the profile's version has, so that it is silent where the check does not exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fleetctl.engines.sglang.schema import sort_key
from fleetctl.lint.finding import Finding, Severity
from fleetctl.lint.sizes import Sizes, UnclearError, clear, sizes_of
from fleetctl.lint.words import Words

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule looks at."""

    words: Words
    known: Sizes | None
    gpus: int | None
    multicast: bool | None

    @property
    def sizes(self) -> Sizes:
        """Return the parallel sizes. Raises UnclearError: a rule is then silent."""
        return clear(self.known)

    def has(self, spelling: str) -> bool:
        """Return whether the launch has that switch on or that value set."""
        return self.words.value(spelling) not in (None, False, "null", "none")

    def of(self, spelling: str) -> Any:
        """Return the value."""
        return self.words.value(spelling)

    def since(self, version: str) -> bool:
        """Return whether the schema is of that release or newer; an unknown version counts as newer."""
        own = self.words.schema.version
        return own is None or sort_key(own) >= sort_key(version)


Said = tuple[str, str, str]  # flag to blame, message, hint
Rule = Callable[[Case], Said | None]
RULES: list[tuple[str, Severity, Rule]] = []


def rule(identity: str, severity: Severity) -> Callable[[Rule], Rule]:
    """Register a rule."""

    def keep(function: Rule) -> Rule:
        RULES.append((identity, severity, function))
        return function

    return keep


def check(
    words: Words, *, gpus: int | None = None, multicast: bool | None = None
) -> Iterator[Finding]:
    """Yield findings about combinations (see ``lint_profile`` for what the arguments mean)."""
    case = Case(words, sizes_of(words), gpus, multicast)
    for identity, severity, function in RULES:
        with contextlib.suppress(UnclearError):
            if said := function(case):
                flag, message, hint = said
                where = words.where(words.owner_of(flag)) or words.where("model", "")
                yield Finding(identity, severity, message, flag=flag, where=where, hint=hint)


# --- sizes ---


@rule("gpus-exceeded", ERROR)
def _gpus(case: Case) -> Said | None:
    """base_gpu_id + ranks: a rank without a GPU dies with "invalid device ordinal"."""
    s = case.sizes
    there = None if case.gpus is None else case.gpus * max(1, s.nodes)
    if there is None or s.world <= there:
        return None
    sum_ = f"tp {s.tp} × pp {s.pp} × dp {s.replicas} = {s.world}"
    hint = f"make the product at most {there}, or give the service more GPUs"
    return "--tp-size", f"{sum_} GPUs are wanted, the service has {there}", hint


@rule("gpus-idle", INFO)
def _idle(case: Case) -> Said | None:
    s = case.sizes
    there = None if case.gpus is None else case.gpus * max(1, s.nodes)
    if there is None or s.world >= there:
        return None
    message = f"tp {s.tp} × pp {s.pp} × dp {s.replicas} = {s.world} of {there} GPUs are used"
    return (
        "--tp-size",
        message,
        "give the service the GPUs it uses, so that another can have the rest",
    )


@rule("nodes-divide", ERROR)
def _nodes(case: Case) -> Said | None:
    """check_server_args: tp_size must be divisible by number of nodes."""
    s = case.sizes
    if s.nodes < 2 or s.tp * s.pp % s.nodes == 0:
        return None
    return "--nnodes", f"tp {s.tp} × pp {s.pp} is not a multiple of {s.nodes} nodes", ""


@rule("dp-attention-divide", ERROR)
def _attention(case: Case) -> Said | None:
    """_handle_data_parallelism: assert tp_size % dp_size == 0."""
    s = case.sizes
    if s.attn_dp * s.attn_cp <= 1 or s.tp % (s.attn_dp * s.attn_cp) == 0:
        return None
    flag = "--attn-dp-size" if case.words.given("--attn-dp-size") else "--dp-size"
    message = f"tp {s.tp} is not a multiple of attention dp {s.attn_dp} × cp {s.attn_cp}"
    return flag, message, "DP attention splits the GPUs of tensor parallelism"


@rule("dp-attention-idle", WARNING)
def _attention_idle(case: Case) -> Said | None:
    """_handle_data_parallelism: if dp_size == 1: enable_dp_attention = False."""
    if case.of("--enable-dp-attention") is not True or case.words.number("--dp-size") > 1:
        return None
    if case.words.number("--attn-dp-size") > 1:
        return None
    return (
        "--enable-dp-attention",
        "DP attention does nothing with dp-size 1",
        "set dp-size to 2 or more",
    )


@rule("dp-twice", ERROR)
def _twice(case: Case) -> Said | None:
    """handle_data_parallelism: replicas combined with attention data parallelism are not supported."""
    dp, attn = case.words.number("--dp-size"), case.words.number("--attn-dp-size")
    if dp < 2 or attn < 2:
        return None
    return "--attn-dp-size", f"dp-size {dp} and attn-dp-size {attn} exclude each other", ""


@rule("dp-lm-head", ERROR)
def _lm_head(case: Case) -> Said | None:
    """_handle_data_parallelism: Please enable dp attention when setting enable_dp_lm_head."""
    if case.of("--enable-dp-lm-head") is not True or case.sizes.attn_dp > 1:
        return None
    new = "--attn-dp-size" in case.words.schema.flags
    if case.words.number("--dp-size") < 2 and not new:
        return None  # up to 0.5.21 both are switched off in silence when dp-size is 1
    hint = "add attn-dp-size" if new else "add enable-dp-attention: true"
    return "--enable-dp-lm-head", "enable-dp-lm-head wants DP attention", hint


@rule("dp-nodes", ERROR)
def _dp_nodes(case: Case) -> Said | None:
    """check_server_args: multi-node data parallel is not supported unless dp attention."""
    s = case.sizes
    if s.replicas < 2 or s.nodes < 2:
        return None
    return (
        "--dp-size",
        "data parallel replicas do not span nodes",
        "use DP attention, or one launch a node",
    )


@rule("ep-divide", ERROR)
def _experts(case: Case) -> Said | None:
    """initialize_model_parallel: moe_tp_size = tp // ep // moe_dp, and nobody looks at the rest."""
    s = case.sizes
    if s.ep * s.moe_dp <= 1 or s.tp % (s.ep * s.moe_dp) == 0:
        return None
    flag = "--ep-size" if case.words.given("--ep-size") else "--moe-dp-size"
    message = f"tp {s.tp} is not a multiple of ep {s.ep} × moe-dp {s.moe_dp}"
    return flag, message, "expert parallelism splits the GPUs of tensor parallelism"


@rule("ep-all-or-one", ERROR)
def _cutlass(case: Case) -> Said | None:
    """_handle_moe_kernel_config: the expert parallel size must be 1 or the same as the tensor parallel size."""
    s = case.sizes
    backend = case.of("--moe-runner-backend")
    if backend not in ("flashinfer_cutlass", "flashinfer_cutedsl") or s.ep in (1, s.tp):
        return None
    return "--ep-size", f"{backend} wants ep 1 or {s.tp} (tp), not {s.ep}", ""


@rule("ep-overridden", WARNING)
def _overridden(case: Case) -> Said | None:
    """_handle_a2a_moe: the expert parallel size is adjusted to be the same as the tensor parallel size."""
    backend, asked = case.of("--moe-a2a-backend"), case.words.number("--ep-size")
    if backend in (None, "none") or not case.words.given("--ep-size") or asked == case.sizes.tp:
        return None
    message = (
        f"moe-a2a-backend {backend} sets ep to tp ({case.sizes.tp}); ep-size {asked} does nothing"
    )
    return "--ep-size", message, f"write ep-size: {case.sizes.tp}"


# --- speculative decoding ---


@rule("speculative-set", ERROR)
def _speculative_set(case: Case) -> Said | None:
    """_handle_speculative_decoding: without num_steps, eagle_topk and num_draft_tokens must be unset too."""
    if str(case.of("--speculative-algorithm")).upper() not in (
        "EAGLE",
        "EAGLE3",
        "NEXTN",
        "STANDALONE",
    ):
        return None
    others = ("--speculative-eagle-topk", "--speculative-num-draft-tokens")
    given = [f for f in others if case.words.given(f)]
    if not given or case.words.given("--speculative-num-steps"):
        return None
    message = f"{given[0]} without --speculative-num-steps stops the start"
    return (
        given[0],
        message,
        "give all three of num-steps, eagle-topk and num-draft-tokens, or none",
    )


@rule("speculative-alone", WARNING)
def _speculative_alone(case: Case) -> Said | None:
    if case.has("--speculative-algorithm"):
        return None
    names = [u.spelling for u in case.words.parsed.uses if u.spelling.startswith("--speculative-")]
    if not names:
        return None
    return names[0], f"{names[0]} does nothing without --speculative-algorithm", ""


@rule("speculative-draft", ERROR)
def _draft(case: Case) -> Said | None:
    """DFLASH speculative decoding requires setting --speculative-draft-model-path."""
    algorithm = str(case.of("--speculative-algorithm")).upper()
    if algorithm != "DFLASH" or case.has("--speculative-draft-model-path"):
        return None
    return "--speculative-algorithm", f"{algorithm} wants speculative-draft-model-path", ""


@rule("speculative-dp-attention", ERROR)
def _speculative_dp(case: Case) -> Said | None:
    """Currently standalone / ngram speculative decoding does not support dp attention."""
    algorithm = str(case.of("--speculative-algorithm")).upper()
    if algorithm not in ("STANDALONE", "NGRAM") or case.sizes.attn_dp < 2:
        return None
    return "--speculative-algorithm", f"{algorithm} does not work with DP attention", ""


@rule("speculative-topk", ERROR)
def _topk(case: Case) -> Said | None:
    """trtllm_mha backend only supports topk = 1 for speculative decoding."""
    backends = ("--attention-backend", "--decode-attention-backend", "--prefill-attention-backend")
    topk = case.words.number("--speculative-eagle-topk", 0)
    if topk < 2 or "trtllm_mha" not in [case.of(b) for b in backends]:
        return None
    return "--speculative-eagle-topk", f"trtllm_mha takes eagle-topk 1 only, not {topk}", ""


# --- other pairs ---


@rule("pipeline-speculative", ERROR)
def _pipeline(case: Case) -> Said | None:
    """check_server_args: pipeline parallelism is not compatible with … speculative decoding."""
    if case.sizes.pp < 2 or not case.has("--speculative-algorithm"):
        return None
    if (
        str(case.of("--speculative-algorithm")).upper() == "EAGLE"
        and case.of("--disaggregation-mode") == "prefill"
    ):
        return None  # later releases allow it there
    return "--pp-size", "pipeline parallelism does not go with speculative decoding", ""


@rule("cache-exclusive", ERROR)
def _caches(case: Case) -> Said | None:
    """_handle_cache_compatibility: enable-hierarchical-cache and disable-radix-cache are mutually exclusive."""
    if (
        case.of("--enable-hierarchical-cache") is not True
        or case.of("--disable-radix-cache") is not True
    ):
        return None
    return (
        "--enable-hierarchical-cache",
        "enable-hierarchical-cache and disable-radix-cache exclude each other",
        "",
    )


@rule("tbo-backend", ERROR)
def _tbo(case: Case) -> Said | None:
    """When enabling two batch overlap, moe_a2a_backend cannot be 'none'."""
    if case.of("--enable-two-batch-overlap") is not True or case.of("--moe-a2a-backend") not in (
        None,
        "none",
    ):
        return None
    if case.sizes.attn_dp > 1 and case.since("0.5.15"):
        return None
    return (
        "--enable-two-batch-overlap",
        "two-batch overlap wants a moe-a2a-backend",
        "moe-a2a-backend: deepep, say",
    )


@rule("tls-pair", ERROR)
def _tls(case: Case) -> Said | None:
    """--ssl-keyfile requires --ssl-certfile to be specified as well, and the other way round."""
    for one, other in (("--ssl-keyfile", "--ssl-certfile"), ("--ssl-certfile", "--ssl-keyfile")):
        if case.has(one) and not case.has(other):
            return one, f"{one} wants {other} too", ""
    return None


@rule("padding-compile", ERROR)
def _padding(case: Case) -> Said | None:
    """--disable-cuda-graph-padding is incompatible with --enable-torch-compile (from 0.5.12)."""
    both = ("--disable-cuda-graph-padding", "--enable-torch-compile")
    if not case.since("0.5.12") or any(case.of(f) is not True for f in both):
        return None
    return "--disable-cuda-graph-padding", "it does not go with enable-torch-compile", ""


@rule("chunk-page", ERROR)
def _chunk(case: Case) -> Said | None:
    """check_server_args: chunked_prefill_size must be divisible by page_size."""
    chunk, page = (
        case.words.number("--chunked-prefill-size", 0),
        case.words.number("--page-size", 1),
    )
    if chunk <= 0 or page < 2 or case.of("--disaggregation-mode") == "decode":
        return None
    chunk //= max(1, case.sizes.attn_dp)
    if chunk % page == 0:
        return None
    return (
        "--chunked-prefill-size",
        f"chunked-prefill-size {chunk} is not a multiple of page-size {page}",
        "",
    )


@rule("lora-sizes", ERROR)
def _lora(case: Case) -> Said | None:
    """When no initial --lora-paths is provided, … both --max-lora-rank and --lora-target-modules."""
    if case.of("--enable-lora") is not True or case.words.given("--lora-paths"):
        return None
    missing = [f for f in ("--max-lora-rank", "--lora-target-modules") if not case.words.given(f)]
    if not missing:
        return None
    return (
        "--enable-lora",
        f"without lora-paths it wants {' and '.join(m[2:] for m in missing)}",
        "",
    )


@rule("graph-idle", WARNING)
def _graph(case: Case) -> Said | None:
    sizes = (
        "--cuda-graph-max-bs",
        "--cuda-graph-bs",
        "--cuda-graph-max-bs-decode",
        "--cuda-graph-bs-decode",
    )
    given = [f for f in sizes if case.words.given(f)]
    if case.of("--disable-cuda-graph") is not True or not given:
        return None
    return given[0], f"{given[0]} does nothing with disable-cuda-graph", ""


@rule("nvls-multicast", WARNING)
def _nvls(case: Case) -> Said | None:
    """engine._set_envs_and_config writes NCCL_NVLS_ENABLE=1; NCCL then asks the driver for multicast."""
    if case.of("--enable-nccl-nvls") is not True or case.multicast is not False:
        return None
    message = "enable-nccl-nvls wants NVLink multicast, which this host's driver does not offer"
    return "--enable-nccl-nvls", message, "`fleetctl doctor` says why; or take the flag away"


@rule("nvls-unchecked", INFO)
def _nvls_unchecked(case: Case) -> Said | None:
    if case.of("--enable-nccl-nvls") is not True or case.multicast is not None:
        return None
    message = "enable-nccl-nvls wants NVLink multicast on the host; nobody asked it"
    return "--enable-nccl-nvls", message, "`fleetctl lint --host HOST` asks it"
