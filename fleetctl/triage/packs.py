"""Read rule packs (folders of TOML) and write the compiled module that the command line loads."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from fleetctl.errors import ConfigError
from fleetctl.triage import literals
from fleetctl.triage.patterns import refusals
from fleetctl.triage.rule import CRASH, MEANINGS, ROLES, STRENGTHS, Pattern, Rule, RuleAdvice, Rules

_KNOWN = {f.name for f in fields(Rule)} - {"id"}
_LISTS = {
    "any",
    "all",
    "none",
    "type",
    "frames",
    "frames_none",
    "innermost",
    "phases",
    "beats",
    "explains",
    "needs",
    "fingerprint",
}
_PATTERNS = ("any", "all", "none", "frames", "frames_none", "innermost")
_FLAGS = {"notable", "async_frames"}
_CHOICES = {
    "role": ROLES,
    "strength": STRENGTHS,
    "means": MEANINGS,
    "crash": CRASH,
    "on": ("exception", "line", "head", "any"),
    "origin": ("app", "kernel", "systemd", "unit", "any"),
}


def load(folder: Path) -> tuple[Rules, dict[str, Path]]:
    """Return the rules below a folder and the file of each.

    Raises:
        ConfigError: a file is no TOML, or a rule is not what docs/reference/rules.md describes.
    """
    rules: list[Rule] = []
    places: dict[str, Path] = {}
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*/*.toml")) + sorted(folder.glob("*.toml")):
        if path.name == "pack.toml":
            continue
        raw = path.read_bytes()
        digest.update(path.name.encode() + b"\0" + raw)
        rule = parse(raw.decode("utf-8"), path)
        if rule.id in places:
            raise _wrong(path, f"the id {rule.id} is taken by {places[rule.id]}")
        rules.append(rule)
        places[rule.id] = path
    return Rules(tuple(rules), digest.hexdigest()[:16]), places


def parse(text: str, path: Path) -> Rule:
    """Return the rule of one TOML file; its id is the file's name without ``.toml``."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(path, str(error)) from error
    unknown = sorted(set(values) - _KNOWN)
    if unknown:
        raise _wrong(path, f"no such field: {', '.join(unknown)}")
    return _rule(values, path)


def _rule(values: dict[str, Any], path: Path) -> Rule:
    built: dict[str, Any] = {"id": path.stem}
    built |= {key: _value(key, value, path) for key, value in values.items()}
    for key, allowed in _CHOICES.items():
        if key in built and built[key] not in allowed:
            choices = ", ".join(a or "(empty)" for a in allowed)
            raise _wrong(path, f"{key} is one of {choices}")
    for key in ("title", "role", "any"):
        if not built.get(key):
            raise _wrong(path, f"{key} is missing")
    if built["role"] == "root" and not built.get("label"):
        raise _wrong(path, "a root rule needs a label")
    return Rule(**built)


def _value(key: str, value: Any, path: Path) -> Any:
    if key == "advice":
        return tuple(_advice(v, path) for v in value)
    if key == "any":
        return tuple(Pattern(v, literals.required(v)) for v in _strings(key, value, path))
    if key == "labels":
        return tuple((str(k), str(v)) for k, v in value.items())
    if key in _LISTS:
        return _strings(key, value, path)
    if key in _FLAGS:
        return bool(value)
    if not isinstance(value, str):
        raise _wrong(path, f"{key} must be a string")
    return value


def _advice(value: Any, path: Path) -> RuleAdvice:
    try:
        return RuleAdvice(**value)
    except TypeError as error:
        raise _wrong(path, f"advice has action, why, command, disruptive: {error}") from error


def _strings(key: str, value: Any, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise _wrong(path, f"{key} must be a list of strings")
    return tuple(value)


def _wrong(path: Path, message: str) -> ConfigError:
    return ConfigError(
        "bad-rule",
        message,
        where=str(path),
        hint="fleetctl rules lint shows all; docs/reference/rules.md",
    )


def lint(rules: Rules) -> list[tuple[str, str]]:
    """Return (rule id, complaint) for everything that would make a rule slow, dead or circular."""
    names = {r.id for r in rules.rules}
    found: list[tuple[str, str]] = []
    for rule in rules.rules:
        for key in _PATTERNS:
            for pattern in getattr(rule, key):
                regex = pattern.regex if isinstance(pattern, Pattern) else pattern
                found += [
                    (rule.id, f"{key}: {why}: {regex}")
                    for why in (*refusals(regex), *literals.complaints(regex))
                ]
        found += [
            (rule.id, f"any: no literal of {literals.MINIMUM} characters is sure: {p.regex}")
            for p in rule.any
            if not p.literals
        ]
        found += [
            (rule.id, f"{key} names no rule: {n}")
            for key in ("beats", "explains", "needs")
            for n in getattr(rule, key)
            if n not in names
        ]
        if rule.role == "root" and not rule.advice:
            found.append((rule.id, "a root rule says what to do next: no advice"))
    found += [(name, "beats itself in a circle") for name in _circles(rules)]
    return found


def _circles(rules: Rules) -> list[str]:
    beats = {r.id: r.beats for r in rules.rules}
    return [name for name in beats if name in _beaten(name, beats)]


def _beaten(start: str, beats: dict[str, tuple[str, ...]]) -> set[str]:
    """Return all rules that one beats, itself or through others."""
    seen: set[str] = set()
    ahead = list(beats.get(start, ()))
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += beats.get(name, ())
    return seen


def compiled(rules: Rules) -> str:
    """Return the text of the module ``fleetctl/triage/compiled.py`` for the built-in rules."""
    rows = ",\n".join(f"    {_row(rule)!r}" for rule in rules.rules)
    return (
        '"""The built-in rules as plain data. Written by ``python -m fleetctl.triage``; do not edit."""\n\n'
        "# fmt: off\nfrom __future__ import annotations\n\nfrom typing import Any\n\n"
        f'DIGEST = "{rules.digest}"\nRULES: tuple[dict[str, Any], ...] = (\n{rows},\n)\n'
    )


def _row(rule: Rule) -> dict[str, Any]:
    empty = Rule("", "", "")
    row: dict[str, Any] = {}
    for key in (f.name for f in fields(Rule)):
        value = getattr(rule, key)
        if key in ("id", "title", "role") or value != getattr(empty, key):
            row[key] = value
    row["any"] = tuple((p.regex, p.literals) for p in rule.any)
    row["advice"] = tuple((a.action, a.why, a.command, a.disruptive) for a in rule.advice)
    return row
