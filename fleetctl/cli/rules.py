"""``fleetctl rules``: the rules that triage goes by; their cases; and why a log got its answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli import rule_sets, show
from fleetctl.cli.app import new_app
from fleetctl.errors import ConfigError, Exit, UsageError

if TYPE_CHECKING:
    from fleetctl.triage.engine import Explained
    from fleetctl.triage.rule import Rules

app = new_app("The rules that triage goes by.")

More = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="DIR", help="Further rule packs (may be repeated)."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output.")]
Pack = Annotated[
    Path | None,
    typer.Argument(metavar="DIR", help="A folder of packs (default: the built-in ones)."),
]


@app.command("list")
def list_(
    label: Annotated[str, typer.Option(help="Only this label.")] = "",
    rules: More = None,
    as_json: Json = False,
) -> None:
    """List the rules: role, id, label and title."""
    for rule in rule_sets.chosen(rules).rules:
        if label and label != rule.label and label not in dict(rule.labels).values():
            continue
        if as_json:
            show.json_line(
                {
                    "id": rule.id,
                    "role": rule.role,
                    "label": rule.label,
                    "strength": rule.strength,
                    "title": rule.title,
                }
            )
        else:
            show.out(f"{rule.role:<13}{rule.id:<26}{rule.label:<24}{rule.title}")


@app.command()
def lint(folder: Pack = None, as_json: Json = False) -> int:
    """Check packs: known fields, linear-time expressions, sure literals, no rule that beats itself."""
    from fleetctl.triage import packs

    rules, places = packs.load(_folder(folder))
    known = _known(rules)
    faults = packs.lint(known)
    faults = [(name, why) for name, why in faults if name in places]
    for name, why in faults:
        if as_json:
            show.json_line({"rule": name, "file": str(places[name]), "message": why})
        else:
            show.out(f"{places[name]}: {why}")
    if not as_json:
        show.note(f"{len(rules.rules)} rules, {len(faults)} faults")
    return int(Exit.NEGATIVE if faults else Exit.OK)


@app.command("test")
def try_cases(folder: Pack = None, as_json: Json = False) -> int:
    """Run each rule on the logs beside it: those that must match and those that must not."""
    from fleetctl.triage import packs, rulecases

    rules, places = packs.load(_folder(folder))
    faults = list(rulecases.check(_known(rules), places))
    for fault in faults:
        if as_json:
            show.json_line({"rule": fault.rule, "file": str(fault.path), "message": fault.why})
        else:
            show.out(f"{fault.path}: {fault.rule}: {fault.why}")
    if not as_json:
        show.note(f"{len(rules.rules)} rules, {len(faults)} faults")
    return int(Exit.NEGATIVE if faults else Exit.OK)


@app.command()
def explain(
    path: Annotated[
        str, typer.Argument(metavar="LOG", help="A log, a bundle, or - for standard input.")
    ],
    rules: More = None,
    as_json: Json = False,
) -> int:
    """Show every rule that matched, its role, the candidates for the root, and why each one lost."""
    from fleetctl.evidence.source import UnreadableError
    from fleetctl.triage import Context, explain_path

    try:
        found = explain_path(path, Context(rules=rule_sets.chosen(rules)))
    except UnreadableError as error:
        raise ConfigError("unreadable", str(error), where=path) from error
    rows = _rows(found)
    for row in rows:
        if as_json:
            show.json_line(row)
        else:
            why = f"   lost: {row['lost']}" if row["lost"] else "   ROOT" if row["root"] else ""
            text = show.safe_line(str(row["text"]))[:90]
            show.out(f"{row['line']:>8}  {row['role']:<13}{row['rule']:<26}{text}{why}")
    if not as_json:
        triage = found.triage
        show.note(f"{triage.label}, {triage.phase}, {triage.verdict}, {triage.fingerprint}")
    return int(Exit.OK)


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(metavar="ID", help="The new rule's id, for instance kernels-fp4-shape.")
    ],
    source: Annotated[
        str,
        typer.Option("--from", metavar="INCIDENT|LOG", help="An incident's id, a bundle or a log."),
    ],
    folder: Annotated[
        Path, typer.Option("--into", metavar="DIR", help="The pack's folder.")
    ] = Path("rules/site"),
    label: Annotated[str, typer.Option(help="The label (default: what triage says now).")] = "",
) -> None:
    """Write a rule that matches an incident's root, with the root's lines as its first case."""
    from fleetctl.config.write import write_text_as_is
    from fleetctl.triage import drafts

    found = _explained(source)
    draft = drafts.draft(name, found, label or found.triage.label)
    files = draft.files(folder)
    there = next((path for path in files if path.exists()), None)
    if there is not None:
        raise UsageError("exists", "is there already; nothing was written", where=str(there))
    for path, text in files.items():
        show.out(str(write_text_as_is(path, text)))
    todo = f"narrow the expression, add a {name}/*.not.log"
    show.note(f"now {todo}, and run: fleetctl rules test {folder.parent}")


def _explained(source: str) -> Explained:
    """Return the triage of a log, or of the bundle of an incident."""
    from fleetctl.evidence.source import UnreadableError
    from fleetctl.triage import explain_path

    path = source
    if not Path(source).exists():
        from fleetctl.incidents.store import open_store

        store = open_store()
        try:
            path = store.occurrence(source).bundle or ""
        finally:
            store.close()
        if not path:
            raise UsageError(
                "no-bundle", "this incident has no bundle on this machine", where=source
            )
    try:
        return explain_path(path)
    except UnreadableError as error:
        raise ConfigError("unreadable", str(error), where=path) from error


def _rows(found: Explained) -> list[dict[str, object]]:
    root = found.answer.root
    lost = {(id(c.unit), c.rule.id): c.lost for c in found.answer.candidates}
    spoke = {id(c.unit): c.rule.id for c in found.answer.candidates}
    rows: list[dict[str, object]] = []
    for match in found.matches:
        unit, rule = match.unit, match.rule
        is_root = root is not None and root.unit is unit and root.rule.id == rule.id
        why = lost.get((id(unit), rule.id), "")
        if rule.role == "root" and not why and not is_root:
            other = spoke.get(id(unit))
            why = f"{other} knows this line better" if other else "ruled out by another rule here"
        rows.append(
            {
                "line": unit.line,
                "kind": unit.kind,
                "role": rule.role,
                "rule": rule.id,
                "text": unit.shown.split("\n")[0],
                "captured": match.captured,
                "root": is_root,
                "lost": why,
            }
        )
    return rows


def _folder(folder: Path | None) -> Path:
    if folder is not None:
        return rule_sets.named(folder)
    from importlib.resources import files

    return Path(str(files("fleetctl.triage"))) / "rules"


def _known(rules: Rules) -> Rules:
    """Return the built-in rules and these, since rules may name built-in ones."""
    from fleetctl.triage.rule import builtin

    return builtin().with_more(rules.rules, rules.digest)
