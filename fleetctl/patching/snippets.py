"""Snippets: Jinja with declared names only, and the two lines of code that fleetctl itself writes.

The code that is written here runs inside SGLang: it is one expression on one line, imports what it
needs in place, and prints one line with a single write.
"""

from __future__ import annotations

import ast
import io
import tokenize

from fleetctl.errors import ConfigError, FleetError
from fleetctl.patching.model import Patch, Rendered, Target, Value, digest_of
from fleetctl.remote import instrument

_WRITE = (
    '__import__("os").write(2, ("fleetctl-patch {name} v1 " + __import__("json").dumps('
    '{fields}, default=repr) + "\\n").encode())'
)
_COMMON = (
    '"pid": __import__("os").getpid(), "process": open("/proc/self/cmdline", "rb").read(200)'
    '.split(b"\\0")[0].decode("utf-8", "replace")'
)


def emit(patch: str, event: str, fields: str) -> str:
    """Return the expression that prints a marker; ``fields`` is the source of a mapping."""
    merged = f'dict({fields}, **{{"event": {event!r}, {_COMMON}}})'
    return _WRITE.format(name=patch, fields=merged)


def beacon(patch: str, digest: str) -> str:
    """Return the line for the end of a module: it says in which process the patched file was loaded."""
    fields = (
        f'{{"event": "loaded", "digest": "{digest[:12]}", "module": __name__, '
        f'"file": globals().get("__file__"), {_COMMON}}}'
    )
    return _WRITE.format(name=patch, fields=fields)


def fill(text: str, patch: str, values: dict[str, Value], where: str) -> str:
    """Return a snippet with its names filled in. Raises ConfigError ``bad-snippet``."""
    import jinja2

    environment = jinja2.Environment(  # noqa: S701  Python source, not HTML
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["py"] = repr
    try:
        template = environment.from_string(text)
        return template.render(**values, emit=lambda event, fields: emit(patch, event, fields))
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError("bad-snippet", str(error), where=f"{where}:{error.lineno}") from error
    except jinja2.UndefinedError as error:
        raise ConfigError(
            "bad-snippet",
            str(error),
            where=where,
            hint="names come from [parameters.NAME] and the target's variables",
        ) from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError("bad-snippet", str(error), where=where) from error


def values_of(patch: Patch, given: dict[str, str]) -> dict[str, Value]:
    """Return every parameter's value. Raises ConfigError: unknown-parameter, wrong-parameter."""
    for name in given:
        if patch.parameter(name) is None:
            known = ", ".join(p.name for p in patch.parameters)
            raise ConfigError(
                "unknown-parameter",
                f"{patch.name} has no parameter {name!r}",
                hint=f"it has {known}" if known else "it has none",
            )
    found: dict[str, Value] = {}
    for parameter in patch.parameters:
        value = parameter.default
        if parameter.name in given:
            value = _typed(patch.name, parameter.name, given[parameter.name], value)
        number = value if isinstance(value, int | float) else None
        low, high = parameter.minimum, parameter.maximum
        if (
            (parameter.choices and value not in parameter.choices)
            or (number is not None and low is not None and number < low)
            or (number is not None and high is not None and number > high)
        ):
            raise ConfigError(
                "wrong-parameter",
                f"{parameter.name}={value} is outside what {patch.name} allows",
                hint=f"choices: {', '.join(map(str, parameter.choices))}"
                if parameter.choices
                else f"between {low} and {high}",
            )
        found[parameter.name] = value
    return found


def _typed(patch: str, name: str, text: str, default: Value) -> Value:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text]
        return type(default)(text)
    except (KeyError, ValueError) as error:
        raise ConfigError(
            "wrong-parameter",
            f"{name} of {patch}: {type(default).__name__} is wanted, not {text!r}",
        ) from error


def render(patch: Patch, version: str, given: dict[str, str] | None = None) -> Rendered:
    """Return what a patch does on one version of SGLang, with its parameters filled in.

    Raises ConfigError for a parameter or snippet that is wrong.
    """
    values = values_of(patch, given or {})
    edits = []
    optional = set()
    for target in patch.targets:
        if not allows(target.sglang, version):
            continue
        edits.append((target.module, target.symbol, block_of(patch, target, values)))
        if target.optional:
            optional.add((target.module, target.symbol))
    diffs = [d for d in patch.diffs if allows(d.sglang, version)]
    environment = tuple(
        (name, fill(text, patch.name, values, f"{patch.folder / 'patch.toml'}"))
        for name, text in patch.environment
    )
    texts = tuple(d.text for d in diffs)
    digest = digest_of(tuple(edits), texts, environment)
    return Rendered(
        name=patch.name,
        edits=tuple(edits),
        optional=frozenset(optional),
        beacon=beacon(patch.name, digest) if edits or diffs else "",
        diffs=texts,
        bases=tuple(pair for d in diffs for pair in d.base),
        environment=environment,
        parameters=values,
    )


def allows(specifier: str, version: str) -> bool:
    """Return whether a version is meant; an empty specifier means all, a pre-release counts."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return not specifier or SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:
        return False


def block_of(patch: Patch, target: Target, values: dict[str, Value]) -> str:
    """Return the code for one target, checked. Raises ConfigError ``bad-snippet``."""
    where = str(patch.folder / target.block_file)
    code = fill(target.block, patch.name, values | dict(target.variables), where)
    faults = faults_of(code, target)
    if faults:
        raise ConfigError("bad-snippet", "; ".join(faults), where=where)
    return code


def faults_of(code: str, target: Target) -> list[str]:
    """Return what is wrong with a block: it must not change what the function is or does."""
    try:
        instrument.statements(code)
    except instrument.InstrumentError as error:
        return [error.message]
    body = "\n".join("    " + line for line in code.split("\n"))
    function = ast.parse(f"async def _():\n{body}\n    pass").body[0]
    return [*_text_faults(code), *_scope_faults(function, target)]


def _text_faults(code: str) -> list[str]:
    faults = [] if code.isascii() else ["only ASCII is allowed"]
    strings = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))
    source = "if True:\n" + "\n".join("    " + line for line in code.split("\n")) + "\n"
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return faults + [
        f"line {t.start[0] - 1}: text over several lines would be indented anew"
        for t in tokens
        if t.type in strings and t.start[0] != t.end[0]
    ]


def _scope_faults(function: ast.AST, target: Target) -> list[str]:
    faults = []
    stack = list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        name = ""
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.AsyncWith):
            faults.append(f"line {node.lineno - 1}: would change what kind of function this is")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            name = node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.ExceptHandler | ast.alias):
            name = (getattr(node, "asname", None) or node.name or "").split(".")[0]
        if name and not name.startswith("_fc_") and name not in target.rebinds:
            faults.append(
                f"line {getattr(node, 'lineno', 1) - 1}: {name!r} could be a name of the function; "
                "start it with _fc_"
            )
        if not isinstance(node, _OWN_NAMES):
            stack += list(ast.iter_child_nodes(node))
    return faults


_OWN_NAMES = (  # their names are not those of the function
    ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


def as_fault(error: instrument.InstrumentError, where: str) -> FleetError:
    """Return a fault of the instrumentation as one for a person."""
    return ConfigError(error.reference, error.message, where=where)
