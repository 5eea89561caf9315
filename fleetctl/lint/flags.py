"""What is wrong with single flags: names, values, deprecations, repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fleetctl.engines.sglang import history
from fleetctl.engines.sglang.argv import Kind, Problem, Use
from fleetctl.engines.sglang.schema import Schema
from fleetctl.lint.finding import Finding, Severity
from fleetctl.lint.sizes import COUNTED, SHARES
from fleetctl.lint.words import Words

IDS = {
    Kind.AMBIGUOUS: "ambiguous-flag",
    Kind.COUNT: "wrong-count",
    Kind.VALUE: "wrong-value",
    Kind.CHOICE: "wrong-choice",
    Kind.REMOVED: "refused-flag",
}
WANTED = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "json.loads": "JSON",
    "json_list_type": "a JSON list",
    "human_readable_int": "a whole number, as in 8192, 8k or 8Ki",
}


def check(words: Words) -> Iterator[Finding]:
    """Yield the findings of single flags."""
    for problem in words.parsed.problems:
        if problem.kind in IDS:
            yield _fault(words, problem)
    yield from _unknown(words)
    for use in words.parsed.uses:
        yield from _used(words, use)
    yield from _repeated(words)
    yield from _sizes(words)


def _fault(words: Words, problem: Problem) -> Finding:
    owner = words.owner[problem.index]
    if problem.kind is Kind.AMBIGUOUS and history.flag(problem.flag):
        return unknown_flag(words.schema, problem.flag, words.where(owner))
    return Finding(
        IDS[problem.kind],
        Severity.ERROR,
        _short(problem, words),
        flag=problem.flag,
        where=words.where(owner),
        hint=_advice(problem, words.schema),
    )


def _short(problem: Problem, words: Words) -> str:
    """Return argparse's words without the list of choices (the hint has it)."""
    text = problem.message.removeprefix("argument ")
    text = text.partition(" (choose from ")[0] if problem.kind is Kind.CHOICE else text
    if problem.kind is Kind.AMBIGUOUS:
        text = (
            f"{problem.flag} is the beginning of {len(words.schema.prefixed(problem.flag))} flags"
        )
    return f"{text} (sglang {words.schema.version})"


def _advice(problem: Problem, schema: Schema) -> str:
    flag = schema.flags.get(problem.flag)
    if problem.kind is Kind.AMBIGUOUS:
        return f"write one of {', '.join(schema.prefixed(problem.flag)[:8])}"
    if flag is None:
        return ""
    if problem.kind is Kind.CHOICE:
        return f"choose from {', '.join(str(c) for c in flag.choices or ())}"
    if problem.kind is Kind.REMOVED:
        return f"use {flag.replacement} instead" if flag.replacement else ""
    if flag.switch:
        return "it is a switch: write true"
    wanted = WANTED.get(flag.type or "str", flag.type)
    return f"it wants {wanted}" + (", one or more" if flag.many else "")


def _unknown(words: Words) -> Iterator[Finding]:
    told: set[str] = set()
    for index, word in words.parsed.extras:
        owner = words.owner[index]
        name = f"--{owner}"
        if owner in told:
            continue
        if word.split("=", 1)[0] != name:
            yield _left_over(words, name, word, words.where(owner))
        else:
            yield unknown_flag(words.schema, name, words.where(owner))
        told.add(owner)


def _left_over(words: Words, name: str, word: str, where: str) -> Finding:
    use = next((u for u in words.parsed.uses if f"--{words.owner[u.index]}" == name), None)
    switch = use is not None and use.flag.switch
    takes = "takes no value" if switch else "takes one value"
    message = f"{name} {takes}, {word!r} is left over (sglang {words.schema.version})"
    hint = "it is a switch: write true" if switch else "write one value instead of a list"
    return Finding("wrong-count", Severity.ERROR, message, name, where, hint)


def unknown_flag(schema: Schema, name: str, where: str = "") -> Finding:
    """Return the finding for a name that this version does not know, by what other releases know.

    A fork may have flags that no release has: there it is a warning.
    """
    version = schema.version or "this version"
    severity = Severity.WARNING if schema.origin in ("host", "file") else Severity.ERROR
    life = history.flag(name)
    near = schema.nearest(name)
    hint = f"did you mean {near[0]}?" if near else "`fleetctl flags list` shows what there is"
    identity, message = "unknown-flag", f"{name} is not a flag of sglang {version}"
    if life is not None and schema.version:
        came, gone = life.came_after(schema.version), life.gone_before(schema.version)
        if gone:
            identity = "removed-flag"
            message = f"{name} is gone: sglang {gone} was the last to have it, this is {version}"
            new = successor(schema, name)
            hint = f"use {new} instead" if new else "it has no successor that SGLang names"
        elif came:
            identity = "flag-too-new"
            message = f"{name} came with sglang {came}, this is {version}"
            hint = "take it away, or launch it where that version is installed"
    return Finding(identity, severity, message, flag=name, where=where, hint=hint)


def successor(schema: Schema, name: str) -> str | None:
    """Return what SGLang names in place of a flag, following it up to a name this version knows."""
    seen = {name}
    life = history.flag(name)
    while life is not None and life.use and life.use not in seen:
        seen.add(life.use)
        bare = life.use.split("=")[0].split(" ")[0]
        if bare in schema.flags or not bare.startswith("--") or "{" in bare:
            return life.use
        name = bare
        life = history.flag(name)
    return None


def _used(words: Words, use: Use) -> Iterator[Finding]:
    owner = words.owner[use.index]
    written = f"--{owner}" if owner != "model" else use.spelling
    if written != use.spelling and history.flag(written):
        gone = unknown_flag(words.schema, written, words.where(owner))
        message = f"{gone.message}; argparse takes it for {use.spelling} in silence"
        yield replace(gone, severity=Severity.ERROR, message=message)
    elif written != use.spelling:
        yield Finding(
            "abbreviated-flag",
            Severity.WARNING,
            f"{written} works only as the beginning of {use.spelling}",
            flag=written,
            where=words.where(owner),
            hint=f"write {use.spelling[2:]}: a later version may have another flag that begins so",
        )
    if use.flag.deprecated:
        new = use.flag.replacement
        yield Finding(
            "deprecated-flag",
            Severity.WARNING,
            f"{use.spelling} is deprecated in sglang {words.schema.version}",
            flag=use.spelling,
            where=words.where(owner),
            hint=f"use {new} instead" if new else use.flag.help,
        )


def _repeated(words: Words) -> Iterator[Finding]:
    first: dict[str, Use] = {}
    for use in words.parsed.uses:
        before = first.setdefault(use.flag.dest, use)
        if before is not use and not use.flag.action.startswith("append"):
            owner = words.owner[use.index]
            yield Finding(
                "repeated-flag",
                Severity.WARNING,
                f"--{owner} and --{words.owner[before.index]} set the same thing; "
                f"SGLang takes the last, --{owner}",
                flag=use.spelling,
                where=words.where(owner),
                hint=f"take one away; the other stands at {words.where(words.owner[before.index])}",
            )


def _sizes(words: Words) -> Iterator[Finding]:
    """Tell of parallel sizes below 1 and of shares beyond 1: argparse takes them, no launch has them."""
    for spelling in SHARES:
        share = words.value(spelling)
        if isinstance(share, float) and not 0 < share <= 1:
            message = f"{spelling} is {share:g}; a share above 0 and of at most 1 is wanted"
            where = words.where(words.owner_of(spelling))
            yield Finding(
                "wrong-value", Severity.ERROR, message, spelling, where, "0.8 is four fifths"
            )
    for spelling in COUNTED:
        size = words.number(spelling)
        if size < 1 and words.given(spelling):
            message = f"{spelling} is {size}; a count of at least 1 is wanted"
            where = words.where(words.owner_of(spelling))
            yield Finding(
                "wrong-value", Severity.ERROR, message, spelling, where, "1 is without it"
            )
