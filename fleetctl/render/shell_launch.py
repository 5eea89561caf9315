"""Finds the launch in a wrapper: ``bash -c "…"`` or a script of simple commands; names what it cannot know."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

SHELLS = ("sh", "bash", "dash", "zsh")
SEPARATORS = (";", "&&", "\n", "||", ";;")
QUIET = ("set", "echo", "true", ":", "umask", "date", "printf", "shopt")
# Programs that run the rest of their words; the number of own words that follow is found by options.
PREFIXES = (
    "exec",
    "nohup",
    "setsid",
    "command",
    "stdbuf",
    "nice",
    "ionice",
    "taskset",
    "numactl",
    "chrt",
    "time",
    "env",
)
_REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(\[@\])?(?::?-([^}]*))?\})")
_MASK = re.compile(r"<redacted(?::[^<>\s]*)?>")
_COMPUTED = re.compile(r"\$\(|`")
_LAUNCH = re.compile(r"sglang\.launch_server|(?:.*/)?sglang")
_PAIR = re.compile(r"\w+=.*", re.DOTALL)


@dataclass
class Launch:
    """What a wrapper starts. ``words`` is empty when no launch was found."""

    words: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)  # what the wrapper sets
    cwd: str | None = None
    bin: str | None = None  # of an activated venv
    nofile: int | None = None
    notes: list[str] = field(default_factory=list)


def is_launch(words: list[str]) -> bool:
    """Return whether the words start SGLang themselves."""
    return any(_LAUNCH.fullmatch(w) for w in words[:8])


def unwrapped(words: list[str]) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the words behind ``numactl …``, ``env A=b`` and the like, what was taken off, its variables."""
    taken: list[str] = []
    env: dict[str, str] = {}
    while words and words[0].rpartition("/")[2] in PREFIXES:
        name, rest = words[0].rpartition("/")[2], words[1:]
        own = [words[0]]
        while rest and (rest[0].startswith("-") or _own(name, own, rest[0])):
            own.append(rest[0])
            rest = rest[1:]
        if name == "env":
            pairs = [w for w in own[1:] if _PAIR.fullmatch(w)]
            env |= {n: v for n, _, v in (w.partition("=") for w in pairs)}
            own = [w for w in own if w not in pairs]
        if name != "exec" and (name != "env" or len(own) > 1):
            taken.append(" ".join(own))
        words = rest
    return words, taken, env


def _own(name: str, own: list[str], word: str) -> bool:
    """Return whether a word without a dash still belongs to the prefix: ``nice -n 5``, ``taskset -c 0-7``."""
    if name == "env":
        return bool(_PAIR.fullmatch(word)) or own[-1] in ("-u", "-C")
    return (
        len(own) > 1
        and "=" not in own[-1]
        and own[-1].startswith("-")
        and not word.startswith("/")
        and (bool(re.fullmatch(r"[\d,-]+|all", word)))
    )


def from_shell(text: str, env: Mapping[str, str]) -> Launch:
    """Return the launch in a script's text or in the argument of ``bash -c``."""
    found = Launch()
    known: dict[str, list[str]] = {k: [v] for k, v in env.items()}
    try:
        commands = _commands(text)
    except ValueError as error:
        found.notes.append(f"the shell text is not understood: {error}")
        return found
    for command in commands:
        _run(command, found, known)
        if found.words:
            break
    return found


def _commands(text: str) -> list[list[str]]:
    """Return the simple commands of a text, each as words with their references still in."""
    joined = _MASK.sub("\x02", re.sub(r"\\\n\s*", " ", text))  # its brackets are no redirection
    joined = re.sub(r"(?<=\s)\d(?=>)", "", joined)  # the number of a stream, not a word
    joined = re.sub(r"(?m)(?:^|(?<=\s))#.*$", "", joined)
    lines = re.sub(r"\(\s*\n|\n\s*(?=[^=\n]*\))", lambda m: m[0].replace("\n", " "), joined)
    lexer = shlex.shlex(_arrays(lines).replace("\n", " ; "), posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    for token in lexer:
        if token in SEPARATORS or set(token) <= {";"}:
            commands.append([])
        else:
            commands[-1].append(token)
    return [c for c in commands if c]


def _arrays(text: str) -> str:
    """Return the text with ``NAME=(a b)`` as one word that ``_run`` reads again."""
    return re.sub(
        r"(?m)(^|[;\s])(\w+)=\(([^()]*)\)",
        lambda m: f"{m[1]}{m[2]}=" + shlex.quote("\x01" + " ".join(m[3].split("\n"))),
        text,
    )


def _run(command: list[str], found: Launch, known: dict[str, list[str]]) -> None:
    """Follow one simple command."""
    if command[0] == "export" or re.fullmatch(r"\w+=.*", command[0], re.DOTALL):
        rest = _assign(
            command[1:] if command[0] == "export" else command, found, known, command[0] == "export"
        )
        if rest:
            _run(rest, found, known)
        return
    words = _expanded(_cut(command, found), known, found)
    words, taken, env = unwrapped(words)
    if not words:
        return
    found.notes += [f"`{t}` in front of the server is not carried over" for t in taken]
    found.env |= env
    if is_launch(words):
        found.words = words
    elif words[0] == "cd" and len(words) > 1:
        found.cwd = words[1]
    elif words[0] in ("source", ".") and len(words) > 1:
        _source(words[1], found)
    elif words[0] == "ulimit" and words[1:2] == ["-n"] and words[2:3] and words[2].isdigit():
        found.nofile = int(words[2])
    elif words[0] not in QUIET:
        found.notes.append(f"the wrapper also runs `{' '.join(words)[:80]}`")


def _assign(
    words: list[str], found: Launch, known: dict[str, list[str]], exported: bool
) -> list[str]:
    """Take ``A=b`` words; return what follows them."""
    while words and re.fullmatch(r"\w+=.*", words[0], re.DOTALL):
        name, _, value = words[0].partition("=")
        if value.startswith("\x01"):
            known[name] = _expanded(shlex.split(value[1:]), known, found)
        else:
            known[name] = [" ".join(_expanded([value], known, found)) if value else ""]
            if exported or len(words) > 1 or name in found.env:
                found.env[name] = known[name][0]
        words = words[1:]
    for name in words if exported else ():
        if name in known:
            found.env[name] = " ".join(known[name])
    return [] if exported else words


def _source(path: str, found: Launch) -> None:
    if path.endswith("/bin/activate"):
        found.bin = path[: -len("/activate")]
    else:
        found.notes.append(f"the wrapper reads {path}, which is not looked at")


def _cut(command: list[str], found: Launch) -> list[str]:
    """Return a command without redirections and pipes: the journal takes the output."""
    for number, token in enumerate(command):
        if token[0] in "<>|" or token in ("&", ">&", "&>", "&>>"):
            found.notes.append("output was redirected by the wrapper; the journal takes it")
            return command[:number]
    return command


def _expanded(words: list[str], known: Mapping[str, list[str]], found: Launch) -> list[str]:
    result: list[str] = []
    for word in words:
        if _COMPUTED.search(word):
            found.notes.append(f"`{word[:60]}` is computed by the shell")
            result.append(word)
            continue
        whole = _REFERENCE.fullmatch(word)
        if whole:
            values = _value(whole, known, found)
            result += values if whole[3] else [w for v in values for w in v.split()]
        else:
            result.append(_REFERENCE.sub(lambda m: " ".join(_value(m, known, found)), word))
    return [word.replace("\x02", "<redacted:value>") for word in result]


def _value(match: re.Match[str], known: Mapping[str, list[str]], found: Launch) -> list[str]:
    name = match[1] or match[2]
    if name in known and known[name] != [""]:
        return known[name]
    if match[4] is not None:
        return [match[4]]
    if name not in known and not name.isdigit():
        found.notes.append(f"${name} is not set where the wrapper reads it")
    return []
