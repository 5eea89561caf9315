"""Guards: what speaks against a plan. A refusal is data; the option that overrides it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fleetctl.model.facts import HostFacts
from fleetctl.model.fleet import Host
from fleetctl.model.plan import Holder, Refusal, Step, WriteFile
from fleetctl.render.launch import MARK, Rendered

ROOM = 16 * 1024 * 1024  # bytes that must stay free: a full disk stops systemd and the journal too

# What an option allows. The command line has the options of these names.
STOP_OTHERS = "--stop-others"
SHARE_GPUS = "--share-gpus"
KEEP_PATCHES = "--keep-patches"
TAKE_OVER = "--take-over"
YES_PROTECTED = "--yes-protected"


@dataclass(frozen=True, slots=True)
class Case:
    """What a guard looks at."""

    facts: HostFacts
    host: Host
    allow: frozenset[str]
    holders: tuple[Holder, ...] = ()
    steps: tuple[Step, ...] = ()
    interrupts: bool = False
    rendered: Rendered | None = None

    def refusal(self, reference: str, message: str, hint: str = "") -> Refusal:
        """Return a refusal that stands for this host and service."""
        return Refusal(reference, message, hint, f"{self.facts.host}/{self.facts.service}")


Guard = Callable[[Case], Iterator[Refusal]]


def no_root(case: Case) -> Iterator[Refusal]:
    """Refuse where the agent may not write to /etc."""
    if not case.facts.root:
        yield case.refusal(
            "not-root",
            "the agent does not run as root there",
            "set `become: sudo` in the inventory",
        )


def no_systemd(case: Case) -> Iterator[Refusal]:
    """Refuse where systemd is not what runs the host."""
    if case.facts.systemd is None:
        yield case.refusal("no-systemd", "systemd does not run that host")


def masked(case: Case) -> Iterator[Refusal]:
    """Refuse for a unit that somebody has masked."""
    if case.facts.unit.load_state == "masked":
        name = case.facts.unit.name
        yield case.refusal(
            "unit-masked", f"{name} is masked", f"somebody forbade it; `systemctl unmask {name}`"
        )


def no_sglang(case: Case) -> Iterator[Refusal]:
    """Refuse where the profile's interpreter has no SGLang."""
    interpreter = case.facts.interpreter
    if not interpreter.exists:
        yield case.refusal(
            "no-interpreter",
            f"{interpreter.path} is not there",
            "set `sglang: {python: …}` in the profile to the interpreter that has SGLang",
        )
    elif interpreter.sglang is None:
        why = f": {interpreter.error}" if interpreter.error else ""
        yield case.refusal("no-sglang", f"{interpreter.path} has no sglang{why}")


def foreign_unit(case: Case) -> Iterator[Refusal]:
    """Refuse to write over a unit file that fleetctl did not write."""
    assert case.rendered is not None
    there = case.facts.file(case.rendered.unit_path)
    written = (there.content or "").startswith(MARK)
    if there.exists and not written and TAKE_OVER not in case.allow:
        yield case.refusal(
            "foreign-unit",
            f"{there.path} was not written by fleetctl",
            f"{TAKE_OVER} replaces it; the diff shows what is lost",
        )


def too_few_gpus(case: Case) -> Iterator[Refusal]:
    """Refuse for GPUs that the driver does not list."""
    assert case.rendered is not None
    wanted = case.rendered.target.service.gpus
    there = {g.index for g in case.facts.gpus}
    if wanted and there and (missing := sorted(set(wanted) - there)):
        yield case.refusal(
            "no-such-gpu",
            f"GPU {', '.join(map(str, missing))} of the service is not there; the driver lists {len(there)}",
            "see gpus: in hosts.yaml; a GPU that fell off the bus shows in the kernel log",
        )


def held(case: Case) -> Iterator[Refusal]:
    """Refuse while something else holds the GPUs or the port."""
    for holder in case.holders:
        if holder.unit and STOP_OTHERS in case.allow:
            continue
        if holder.unit and holder.port is not None:
            what = "gpus-held" if holder.gpus else "port-held"
            yield case.refusal(what, holder.describe(), f"{STOP_OTHERS} stops it first")
        elif holder.unit:
            if SHARE_GPUS not in case.allow:
                hint = f"{STOP_OTHERS} stops it first, {SHARE_GPUS} leaves it there"
                yield case.refusal("gpus-held", holder.describe(), hint)
        elif holder.port is not None:
            yield case.refusal(
                "port-held", holder.describe(), "end it by hand, or use another port"
            )
        elif SHARE_GPUS not in case.allow:
            yield case.refusal(
                "gpus-held", holder.describe(), f"end it by hand, or leave it with {SHARE_GPUS}"
            )


def patched(case: Case) -> Iterator[Refusal]:
    """Refuse while patches are active that the profile does not ask for."""
    assert case.rendered is not None
    extra = sorted(set(case.facts.patches) - set(case.rendered.profile.patches))
    if extra and KEEP_PATCHES not in case.allow:
        yield case.refusal(
            "patch-active",
            f"active there: {', '.join(extra)}",
            f"`fleetctl patch revert {case.facts.host}/{case.facts.service}`, or {KEEP_PATCHES}",
        )


def no_room(case: Case) -> Iterator[Refusal]:
    """Refuse where the files would not fit."""
    size = sum(len(s.content.encode()) for s in case.steps if isinstance(s, WriteFile))
    if not size:
        return
    for folder, free in sorted(case.facts.free.items()):
        if free < size + ROOM:
            yield case.refusal(
                "disk-low",
                f"{folder} has {free // 1024} KiB left",
                "make room first: `journalctl --vacuum-size=1G` is a start",
            )


def protected(case: Case) -> Iterator[Refusal]:
    """Refuse to take a protected host's serving unit down unless its name was given."""
    named = f"{YES_PROTECTED}={case.host.name}"
    if case.host.protected and case.interrupts and named not in case.allow:
        yield case.refusal(
            "protected-host",
            f"{case.host.name} is protected, and a serving unit would go down",
            f"type its name when asked, or give {YES_PROTECTED} {case.host.name}",
        )


DEPLOY: tuple[Guard, ...] = (
    no_root,
    no_systemd,
    masked,
    no_sglang,
    foreign_unit,
    too_few_gpus,
    held,
    patched,
    no_room,
    protected,
)
STOP: tuple[Guard, ...] = (no_root, no_systemd, protected)


def check(guards: tuple[Guard, ...], case: Case) -> tuple[Refusal, ...]:
    """Return every refusal, in the order of the guards."""
    return tuple(refusal for guard in guards for refusal in guard(case))
