"""The sizes of a launch: how tensor, data, expert and pipeline parallelism share the GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.lint.words import Words


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


def sizes_of(words: Words) -> Sizes:
    """Return the sizes that a command line asks for.

    Up to 0.5.21 ``--enable-dp-attention`` turns ``--dp-size`` into attention DP; from 0.5.22 on
    ``--attn-dp-size`` says it, and the old pair still works.
    """
    dp = words.number("--dp-size")
    attn_dp = words.number("--attn-dp-size")
    if words.value("--enable-dp-attention") is True and dp > 1:
        dp, attn_dp = 1, dp
    tp = words.number("--tp-size")
    ep = words.number("--ep-size")
    if words.value("--moe-a2a-backend") not in (None, "none"):
        ep = tp  # every all-to-all backend makes SGLang set it so
    return Sizes(
        tp=tp,
        pp=words.number("--pp-size"),
        replicas=dp,
        attn_dp=attn_dp,
        ep=ep,
        moe_dp=words.number("--moe-dp-size"),
        attn_cp=words.number("--attn-cp-size"),
        nodes=words.number("--nnodes"),
    )
