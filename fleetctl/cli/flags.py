"""``fleetctl flags``: what SGLang can be told, which release knows it, and what it then changes."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fleetctl.cli import complete, show
from fleetctl.cli.app import new_app
from fleetctl.errors import Exit, UsageError

if TYPE_CHECKING:
    from fleetctl.engines.sglang.schema import Flag, Schema
    from fleetctl.fleet.flag_effect import Effect
    from fleetctl.lint.migrate import Change


class HostOrVerb(TyperGroup):
    """``flags b300-01`` means ``flags host b300-01``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put ``host`` in front of what is no verb."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from fleetctl.config.names import selectors

            if args[0] in selectors() or (len(args[0]) > 2 and not self._near(args[0])):
                args = ["host", *args]
        return super().resolve_command(ctx, args)

    def _near(self, word: str) -> bool:
        return bool(difflib.get_close_matches(word, self.commands, cutoff=0.7))


app = new_app("SGLang's flags: `flags HOST` reads what a host has installed.", cls=HostOrVerb)
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Sglang = Annotated[
    str,
    typer.Option("--sglang", metavar="VERSION|FILE", help="Release, wheel, tree or schema file [newest]."),
]  # fmt: skip


@app.callback()
def group() -> None:
    """SGLang's flags: `flags HOST` reads what a host has installed."""


def _named(text: str) -> Schema:
    from fleetctl.cli.lint import _fetch
    from fleetctl.config import flagsets

    return flagsets.named(text, _fetch) if text else flagsets.newest()


@app.command("list")
def list_(
    pattern: Annotated[str, typer.Argument(metavar="[TEXT]", help="In the name or the help.")] = "",
    sglang: Sglang = "",
    deprecated: Annotated[bool, typer.Option("--deprecated", help="Only these.")] = False,
    as_json: Json = False,
) -> None:
    """List the flags of a release."""
    _list(_named(sglang), pattern, deprecated=deprecated, as_json=as_json)


def _list(schema: Schema, pattern: str, *, deprecated: bool, as_json: bool) -> None:
    wanted = pattern.lower().replace("_", "-")
    flags = [
        f
        for f in schema.all
        if (not deprecated or f.deprecated)
        and (not wanted or any(wanted in n for n in f.names) or pattern.lower() in f.help.lower())
    ]
    if as_json:
        show.json_line(
            schema.to_json() | {"flags": [f.to_json() for f in flags], "origin": schema.origin}
        )
        return
    for flag in flags:
        old = "  (deprecated)" if flag.deprecated else ""
        show.out(f"{', '.join(flag.names)}{_shape(flag)}{old}")
        if pattern and flag.help:
            show.out(f"    {flag.help}")
    show.note(
        f"{len(flags)} of {len(schema.all)} flags of sglang {schema.version or schema.digest}"
    )


def _shape(flag: Flag) -> str:
    if flag.switch:
        return ""
    kind = "|".join(map(str, flag.choices)) if flag.choices else flag.type or "text"
    kind = kind if len(kind) <= 60 else kind[:57] + "…"
    return f" {kind}" + ("..." if flag.many else "")


@app.command("show", context_settings={"ignore_unknown_options": True})
def show_(
    name: Annotated[str, typer.Argument(metavar="NAME")], sglang: Sglang = "", as_json: Json = False
) -> int:
    """Show one flag: spellings, type, choices, default, help, and which releases have it."""
    from fleetctl.engines.sglang import history

    schema = _named(sglang)
    name = name.partition("=")[0].strip()
    if not name.strip("-"):
        raise UsageError(
            "unknown-flag", "the name of a flag is wanted", hint="`fleetctl flags list` has all"
        )
    flag = schema.find(name)
    spelling = "--" + name.lstrip("-").replace("_", "-")
    begun = schema.prefixed(spelling)
    if flag is None and len(begun) == 1:
        show.note(f"{spelling} is not a flag; argparse takes it for {begun[0]}")
        flag, spelling = schema.flags[begun[0]], begun[0]
    life = history.flag(spelling)
    if flag is None and life is None:
        near = schema.nearest(name, 3)
        raise UsageError(
            "unknown-flag",
            f"{spelling} is not a flag of sglang {schema.version}, nor of another release",
            hint=f"did you mean {', '.join(near)}?"
            if near
            else "`fleetctl flags list TEXT` looks for a word",
        )
    body = flag.to_json() if flag else {"names": [spelling]}
    releases = [list(s) for s in life.spans] if life else []
    if as_json:
        show.json_line({"schema": "fleetctl.flag/1", "sglang": schema.version, "known": flag is not None,
                        "releases": releases, "successor": life.use if life else None} | body)  # fmt: skip
        return int(Exit.OK if flag else Exit.NEGATIVE)
    if flag is None:
        show.out(f"{spelling}: not in sglang {schema.version}")
    else:
        _show_flag(flag, schema)
    if life:
        show.out(f"  releases     {life}")
        if life.use:
            show.out(f"  replaced by  {life.use}")
    return int(Exit.OK if flag else Exit.NEGATIVE)


def _show_flag(flag: Flag, schema: Schema) -> None:
    show.out(f"{', '.join(flag.names)}  (sglang {schema.version or schema.digest})")
    if flag.help:
        show.out(f"  {flag.help}")
    rows = {
        "takes": "nothing: a switch" if flag.switch else _shape(flag).strip(),
        "default": flag.default,
        "choices": ", ".join(map(str, flag.choices)) if flag.choices else None,
        "stored as": flag.dest,
        "deprecated": "yes" if flag.deprecated else None,
        "stops with": flag.fatal,
        "defined at": f"sglang/{flag.file}:{flag.line}",
    }
    for label, value in rows.items():
        if value is not None:
            show.out(f"  {label:11}  {value}")
    for key, text in flag.unresolved.items():
        show.out(f"  {key:11}  known only to the running program: {text}")


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="VERSION|FILE")],
    new: Annotated[str, typer.Argument(metavar="VERSION|FILE")],
    as_json: Json = False,
) -> int:
    """Show what came, went and changed between two releases. Exit 1 when something did."""
    from fleetctl.engines.sglang.compare import compare

    change = compare(_named(old), _named(new))
    if as_json:
        show.json_line(
            {"schema": "fleetctl.flag-diff/1", "from": old, "to": new} | change.to_json()
        )
        return int(Exit.NEGATIVE if change else Exit.OK)
    for name in change.removed:
        show.out(f"- {name}")
    for name in change.added:
        show.out(f"+ {name}")
    for name, key, before, after in change.changed:
        show.out(f"~ {name}: {key} {before} → {after}")
    counts = f"{len(change.added)} new spellings, {len(change.removed)} gone, {len(change.changed)} changes"
    show.note(f"{counts} from {old} to {new}")
    return int(Exit.NEGATIVE if change else Exit.OK)


@app.command()
def migrate(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE|FILE", autocompletion=complete.profiles)
    ],
    to: Annotated[str, typer.Option("--to", metavar="VERSION|FILE", help="The release to go to.")],
    write: Annotated[bool, typer.Option("--write", help="Change the files.")] = False,
    as_json: Json = False,
) -> int:
    """Show what a profile must change for another release, as a diff of its files.

    Exit 1 while something is left that only a person can decide.
    """
    from fleetctl.config import lintable
    from fleetctl.lint.migrate import plan, rewritten

    read = lintable.profile(profile)
    schema = _named(to)
    changes = plan(read, schema)
    texts = lintable.texts([read])
    left: list[Change] = [c for c in changes if c.where.rsplit(":", 2)[0] not in texts]
    new_texts = {}
    for path, text in texts.items():
        here = [c for c in changes if c.where.rsplit(":", 2)[0] == path]
        new_texts[path], rest = rewritten(text, here)
        left += rest
    if as_json:
        show.json_line({"schema": "fleetctl.migration/1", "profile": read.name, "to": schema.version,
                        "changes": [c.to_json() for c in changes], "left": [c.flag for c in left],
                        "written": write})  # fmt: skip
    else:
        _print_migration(changes, left, texts, new_texts)
    if write:
        from fleetctl.config.write import write_text

        for path, text in new_texts.items():
            if text != texts[path]:
                if b"\r\n" in Path(path).read_bytes():
                    text = text.replace("\n", "\r\n")
                show.note(f"wrote {write_text(Path(path), text)}")
    return int(Exit.NEGATIVE if left else Exit.OK)


def _print_migration(
    changes: list[Change], left: list[Change], old: dict[str, str], new: dict[str, str]
) -> None:
    for path in sorted(old):
        lines = difflib.unified_diff(
            old[path].splitlines(), new[path].splitlines(), path, path, lineterm="", n=1
        )
        for line in lines:
            show.out(line)
    for change in changes:
        show.note(f"{change.where}: {change.flag}: {change.why}")
    for change in left:
        show.note(
            f"by hand: {change.where}: {change.flag}: {change.by_hand or 'its line is not plain'}"
        )
    if not changes:
        show.note("nothing to change")


@app.command()
def fetch(
    version: Annotated[str, typer.Argument(metavar="VERSION")], as_json: Json = False
) -> None:
    """Read the flags of a release that is not shipped from its wheel (fetched with pip) and keep them."""
    schema = _named(version)
    if as_json:
        show.json_line(schema.to_json())
    else:
        show.out(f"sglang {schema.version}: {len(schema.all)} flags, {len(schema.flags)} spellings")


@app.command("host")
def host_(
    host: Annotated[str, typer.Argument(metavar="HOST", autocompletion=complete.hosts)],
    pattern: Annotated[str, typer.Argument(metavar="[TEXT]")] = "",
    python: Annotated[str, typer.Option(metavar="PATH", help="SGLang's interpreter there.")] = "",
    profile: Annotated[str, typer.Option("--profile", "-p", autocompletion=complete.profiles,
                                         help="Take the interpreter from it.")] = "",
    deprecated: Annotated[bool, typer.Option("--deprecated", help="Only these.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Read the flags of what a host has installed, release or fork, without running it."""
    from fleetctl.config.site import load_site
    from fleetctl.fleet.hostlint import host_schema, one_target
    from fleetctl.model.fleet import Profile

    base = load_site().profile(profile) if profile else Profile("", "")
    schema = host_schema(one_target(host), python or base.python)
    show.note(f"{host}: sglang {schema.version}, {_kind(schema)}")
    _list(schema, pattern, deprecated=deprecated, as_json=as_json)


def _kind(schema: Schema) -> str:
    return (
        "the release as published"
        if schema.origin == "shipped"
        else f"not a shipped release ({schema.digest})"
    )


@app.command()
def effect(
    host: Annotated[str, typer.Argument(metavar="HOST[/SERVICE]", autocompletion=complete.hosts)],
    sets: Annotated[list[str] | None, typer.Argument(
        metavar="[FLAG[=VALUE]]...", help="Added or changed; -FLAG, after --, takes one away.")] = None,
    without: Annotated[list[str] | None, typer.Option(
        "--unset", metavar="FLAG", help="Take a flag away (repeatable).")] = None,
    profile: Annotated[str, typer.Option("--profile", "-p", autocompletion=complete.profiles,
                                         help="On top of this [the last launch].")] = "",
    as_json: Json = False,
) -> int:  # fmt: skip
    """Ask SGLang's own resolver on a host what flags change besides themselves. No GPU is used.

    Exit 1 when SGLang refuses the launch with them.
    """
    from fleetctl.config.overrides import value_of
    from fleetctl.config.site import load_site
    from fleetctl.fleet.flag_effect import effect as ask

    given: dict[str, Any] = {}
    unsets = [name.lstrip("-") for name in without or ()]
    for text in sets or ():
        name, equals, value = text.partition("=")
        if not name.strip("-"):
            raise UsageError("bad-flag", f"{text!r}: FLAG=VALUE, FLAG or -FLAG is wanted")
        if name.startswith("-"):
            unsets.append(name.lstrip("-"))
        else:
            given[name] = _value(value_of(value)) if equals else True
    if not given and not unsets:
        raise UsageError("no-flag", "name a flag to set, or --unset FLAG")
    show.note("importing SGLang there takes 5 to 30 s")
    found = ask(host, given, unsets, load_site().profile(profile) if profile else None)
    if as_json:
        show.json_line(found.to_json())
    else:
        _print_effect(found)
    return int(Exit.NEGATIVE if found.error else Exit.OK)


def _value(value: Any) -> Any:
    from fleetctl.config.nodes import as_json

    if isinstance(value, list):
        return tuple(str(v) for v in value)
    return as_json(value) if isinstance(value, dict) else str(value)


def _print_effect(found: Effect) -> None:
    show.out(f"{found.target}: sglang {found.sglang}, against {found.against}")
    if found.error:
        place = f" ({found.error['where']})" if found.error.get("where") else ""
        show.out(f"  refused  {found.error['type']}: {found.error['message']}{place}")
    for label, table in (("asked", found.asked), ("follows", found.follows), ("env", found.env)):
        for name, (before, after) in table.items():
            show.out(f"  {label:8} {name}: {_text(before)} → {_text(after)}")
    if not (found.follows or found.env or found.error):
        show.out("  nothing else changes")
    for line in found.said:
        show.out(f"  it says  {line}")
    if found.engine:
        show.note(f"the engine's own variables were not looked at: {found.engine}")


def _text(value: Any) -> str:
    return "unset" if value is None else str(value)
