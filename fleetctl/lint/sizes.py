"""The sizes of a launch: how tensor, data, expert and pipeline parallelism share the GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.engines.sglang.argv import Kind
from fleetctl.lint.words import Words

COUNTED = (
    "--tp-size", "--pp-size", "--dp-size", "--attn-dp-size", "--ep-size", "--moe-dp-size", "--attn-cp-size",
    "--nnodes",
)  # fmt: skip

# Of a GPU's memory: more than all of it is not there.
SHARES = ("--mem-fraction-static",)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Parallel sizes. ``attn_dp`` shares the GPUs of tensor parallelism, ``replicas`` multiply them."""

    tp: int
    pp: int
    replicas: int
    attn_dp: int
    ep: int
    moe_dp: int
    attn_cp: int
    nodes: int

    @property
    def world(self) -> int:
        """Return the GPUs of the whole launch: attention DP runs inside the TP group."""
        return self.tp * self.pp * self.replicas

    @property
    def attn_tp(self) -> int:
        """Return over how many GPUs one attention layer's heads are spread."""
        return max(1, self.tp // max(1, self.attn_dp * self.attn_cp))


class UnclearError(Exception):
    """A size was given a value that is none: what stands in its place would be invented."""


def clear(sizes: Sizes | None) -> Sizes:
    """Return the sizes. Raises UnclearError where there are none."""
    if sizes is None:
        raise UnclearError
    return sizes


def _unclear(words: Words) -> bool:
    flags = words.schema.flags
    counted = {flags[s].dest for s in COUNTED if s in flags}
    wrong = (flags.get(p.flag) for p in words.parsed.problems if p.kind in (Kind.VALUE, Kind.COUNT))
    return any(flag is not None and flag.dest in counted for flag in wrong)


def sizes_of(words: Words) -> Sizes | None:
    """Return the sizes that a command line asks for; what is below 1 (``flags`` tells of it) counts as 1.

    None where one has a value that is no number: nothing can be said of sums with it.

    Up to 0.5.21 ``--enable-dp-attention`` turns ``--dp-size`` into attention DP; from 0.5.22 on
    ``--attn-dp-size`` says it, and the old pair still works.
    """
    if _unclear(words):
        return None
    dp = _size(words, "--dp-size")
    attn_dp = _size(words, "--attn-dp-size")
    if words.value("--enable-dp-attention") is True and dp > 1:
        dp, attn_dp = 1, dp
    tp = _size(words, "--tp-size")
    ep = _size(words, "--ep-size")
    if words.value("--moe-a2a-backend") not in (None, "none"):
        ep = tp  # every all-to-all backend makes SGLang set it so
    return Sizes(
        tp=tp,
        pp=_size(words, "--pp-size"),
        replicas=dp,
        attn_dp=attn_dp,
        ep=ep,
        moe_dp=_size(words, "--moe-dp-size"),
        attn_cp=_size(words, "--attn-cp-size"),
        nodes=_size(words, "--nnodes"),
    )


def _size(words: Words, spelling: str) -> int:
    return max(1, words.number(spelling))
