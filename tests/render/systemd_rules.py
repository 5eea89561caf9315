"""systemd's own reading of what was written, twice: a small model of its rules, and its library.

The model follows extract_first_word(), specifier_printf() and replace_env_argv() of systemd 252, and
load_env_file(). Where libsystemd-shared is installed the same questions are put to it.
"""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path

ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
           "\\": "\\", '"': '"', "'": "'", "s": " "}  # fmt: skip


def directives(text: str) -> list[tuple[str, str, str]]:
    """Return (section, key, value) of a unit file; continued lines are joined, comments dropped."""
    section, found, pending = "", [], ""
    for raw in re.split(r"\r\n|[\n\r\0]", text):
        line = raw.strip(" \t")
        if not pending and (not line or line[0] in "#;"):
            continue
        if pending and line[:1] in ("#", ";"):
            continue
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        if pending.startswith("["):
            section = pending
        else:
            key, _, value = pending.partition("=")
            found.append((section, key.strip(), value.strip()))
        pending = ""
    return found


def words(text: str) -> list[str]:
    """Return the words of a command line after unquoting, specifiers and variables."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in " \t":
            at += 1
            continue
        word, at = _word(text, at)
        found.append(word.replace("%%", "%").replace("$$", "$"))
    return found


def _word(text: str, at: int) -> tuple[str, int]:
    quote, word = "", ""
    while at < len(text):
        char = text[at]
        if char == "\\":
            part, at = _escape(text, at + 1)
            word += part
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                word += char
        elif char in "\"'":
            quote = char
        elif char in " \t":
            break
        else:
            word += char
        at += 1
    assert not quote, f"unbalanced quotes in {text!r}"
    return word, at


def _escape(text: str, at: int) -> tuple[str, int]:
    if text[at] == "x":
        return chr(int(text[at + 1 : at + 3], 16)), at + 3
    return ESCAPES[text[at]], at + 1


def variables(text: str) -> dict[str, str]:
    """Return what an environment file sets."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if not line or line[0] in "#;":
            continue
        name, _, value = line.partition("=")
        if value.startswith('"'):
            assert value.endswith('"')
            value = re.sub(r'\\(["\\$`])', r"\1", value[1:-1])
        found[name] = value
    return found


# --- systemd itself ---


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return libsystemd-shared, or None where it is not installed."""
    for folder in ("/usr/lib/systemd", "/usr/lib/x86_64-linux-gnu/systemd", "/usr/lib64/systemd"):
        for path in sorted(Path(folder).glob("libsystemd-shared-*.so")):
            try:
                found = ctypes.CDLL(str(path))
                found.extract_first_word, found.load_env_file, found.replace_env_argv  # noqa: B018
            except (OSError, AttributeError):
                continue
            return found
    return None


@functools.cache
def _flags() -> int:
    """Return UNQUOTE | CUNESCAPE: their bits moved between versions, so they are found by trying."""
    unquote = next(b for b in range(12) if _first('"a b" c', 1 << b) == (1, "a b"))
    return next(
        1 << unquote | 1 << b
        for b in range(12)
        if _first(r"\x41", 1 << unquote | 1 << b) == (1, "A")
    )


def _first(text: str, flags: int) -> tuple[int, str]:
    found = library()
    assert found is not None
    rest, word = ctypes.c_char_p(text.encode()), ctypes.c_char_p()
    code = found.extract_first_word(ctypes.byref(rest), ctypes.byref(word), None, flags)
    return code, (word.value or b"").decode()


def real_words(text: str) -> list[str]:
    """Return the words that systemd's own extract_first_word() gives for a command line."""
    found = library()
    assert found is not None
    rest = ctypes.c_char_p(text.encode())
    result: list[str] = []
    while True:
        word = ctypes.c_char_p()
        code = found.extract_first_word(ctypes.byref(rest), ctypes.byref(word), None, _flags())
        assert code >= 0, f"systemd answers {code} for {text!r}"
        if code == 0:
            return result
        assert word.value is not None
        result.append(word.value.decode())


def real_argv(words_: list[str]) -> list[str]:
    """Return what systemd's own replace_env_argv() makes of the words, with no variables set."""
    found = library()
    assert found is not None
    array = (ctypes.c_char_p * (len(words_) + 1))(*[w.encode() for w in words_], None)
    none = (ctypes.c_char_p * 1)(None)
    found.replace_env_argv.restype = ctypes.POINTER(ctypes.c_char_p)
    answer = found.replace_env_argv(array, none)
    return _strv(answer)


def real_variables(path: Path) -> dict[str, str]:
    """Return what systemd's own load_env_file() reads."""
    found = library()
    assert found is not None
    answer = ctypes.POINTER(ctypes.c_char_p)()
    code = found.load_env_file(None, str(path).encode(), ctypes.byref(answer))
    assert code >= 0, f"systemd answers {code}"
    return dict(line.split("=", 1) for line in _strv(answer))


def _strv(array: object) -> list[str]:
    result: list[str] = []
    while array and array[len(result)] is not None:  # type: ignore[index]  # a C array of strings
        result.append(array[len(result)].decode())  # type: ignore[index]
    return result
