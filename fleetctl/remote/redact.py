"""Take secrets and prompts out of text before it reaches a disk, a terminal or an error message.

Standard library and Python 3.8 only: the same module runs on hosts. Every pattern is linear in the
length of the text, because the text is what a stranger could make a server print.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Callable

_MARK = "<redacted:"
_PLAIN = frozenset(("", "None", "null", "True", "False", "true", "false", "0", "1", "***", "..."))

# Names that hold a secret. A bare "token" is a word of this trade (eos_token, #new-token), so it
# counts only behind a word that makes it a credential.
_CREDENTIAL = (
    r"(?:api[-_]?key|apikey|passwd|password|passphrase|client[-_]secret|secret[-_]key|secret"
    r"|private[-_]key|access[-_]key|"
    r"(?:hf|hugging_?face|access|auth|bearer|refresh|id|session|api|bot|github|gitlab|wandb|slack"
    r"|security|registration)[-_]token)"
)
_KNOWN = re.compile(
    r"(?<![\w-])(?:hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|nvapi-[\w-]{16,}|xox[abeoprs]-[\w-]{8,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|AIza[\w-]{30,}|ya29\.[\w-]{16,}|dckr_pat_[\w-]{16,}|pypi-[\w-]{30,})(?![\w-])"
)
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)?")
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[^-]{0,20000}-----END [A-Z0-9 ]{0,40}KEY-----"
    r"|[A-Za-z0-9+/=\s\\]*)"
)
_USERINFO = re.compile(r"(?<=://)[^/\s:@'\"<]+:[^/\s@'\"]+(?=@)")
_QUERY = re.compile(
    r"(?<=[?&])((?:X-Amz-(?:Signature|Security-Token|Credential)|Signature|sig|access_token|token"
    r"|api_key|apikey|key)=)([^&\s'\"]+)",
    re.IGNORECASE,
)
_AUTH = re.compile(
    r"((?<![\w-])(?:proxy-)?authorization['\"]?[ \t]{0,4}[:=][ \t]{0,4}(?:b?['\"])?"
    r"(?:bearer |basic |token |digest )?)([^\s'\",]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"((?<![\w-])bearer[ \t]{1,4})([\w.~+/=-]{12,})", re.IGNORECASE)
_FLAG = re.compile(
    r"(?<![\w-])(--(?:[\w-]*-)?" + _CREDENTIAL + r"(?:=|['\"]?,?[ \t]{1,4}))(['\"]?)([^\s'\",\]]+)",
    re.IGNORECASE,
)
_FIELD = re.compile(
    r"(?<![\w-])((?:[\w-]*[-_])?" + _CREDENTIAL + r"['\"]?[ \t]{0,4}[:=][ \t]{0,4})"
    r"(?:([bru]?'[^'\n]*'|[bru]?\"[^\"\n]*\")|([^\s'\",;)}\]]+))",
    re.IGNORECASE,
)
_ENV = re.compile(
    r"(?<![\w-])([A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)['\"]?(?:=|: ?))"
    r"(?:('[^'\n]*'|\"[^\"\n]*\")|([^\s'\",;)}\]]+))"
)
# SGLang prints whole requests: in its request log, and with the batch when its watchdog fires.
_IDS = re.compile(r"\b((?:origin_)?(?:input|output|fill|prompt_token)_ids=\[)([\d, \-]{12,})")
_PROMPT = re.compile(
    r"\b((?:text|prompt|origin_input_text|input_text|messages)=)"
    r"('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
)
_REQUEST = re.compile(r"\b(?:Req|\w+ReqInput|\w+Request)\(")


# One of these stands in every text that a detector changes; most lines hold none.
_HINT = re.compile(
    r"key|passw|passphrase|secret|credential|authorization|bearer"
    r"|(?:hf|face|access|auth|refresh|id|session|api|bot|hub|lab|wandb|slack|ity|ation)[-_]token"
    r"|://[^/\s]*@|[?&](?:sig|Sig|key|token|X-Amz)|hf_|sk-|gh[pousr]_|github_pat|glpat-|nvapi-|xox|AKIA|ASIA"
    r"|AIza|ya29|dckr_|pypi-|eyJ|_ids=\[|(?:Req|Input|Request)\(",
    re.IGNORECASE,
)
_LOUD = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)['\"]?[=:]")


def may_hold(text: str) -> bool:
    """Return whether ``redact`` could change the text; False is certain, True is not."""
    return _HINT.search(text) is not None or _LOUD.search(text) is not None


def redact(text: str, key: bytes | None = None) -> str:
    """Return ``text`` with secrets and request bodies replaced by ``<redacted:kind>``.

    Args:
        text: any number of lines.
        key: when given, a mark carries a short keyed hash (``<redacted:kind:1f2e3d>``), so that equal
            values can be told from different ones without showing them.

    Doing it twice changes nothing more. Git hashes, paths of frames and numbers of the driver stay.
    """
    return _Redactor(key).apply(text)


class _Redactor:
    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def mark(self, kind: str, value: str) -> str:
        if self._key is None:
            return _MARK + kind + ">"
        digest = hmac.new(self._key, value.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        return _MARK + kind + ":" + digest[:6] + ">"

    def apply(self, text: str) -> str:
        if "PRIVATE KEY" in text:
            text = _PEM.sub(lambda m: self.mark("private-key", m.group(0)), text)
        if "://" in text:
            text = _USERINFO.sub(lambda m: self.mark("userinfo", m.group(0)), text)
            text = _QUERY.sub(self._second("query"), text)
        text = _AUTH.sub(self._second("authorization"), text)
        text = _BEARER.sub(self._second("authorization"), text)
        text = _FLAG.sub(self._flag, text)
        text = _FIELD.sub(self._named, text)
        text = _ENV.sub(self._named, text)
        text = _JWT.sub(lambda m: self.mark("jwt", m.group(0)), text)
        text = _KNOWN.sub(lambda m: self.mark("token", m.group(0)), text)
        return self._requests(text)

    def _second(self, kind: str) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            value = match.group(2)
            if value.startswith(_MARK) or value in _PLAIN:
                return match.group(0)
            return match.group(1) + self.mark(kind, value)

        return replace

    def _flag(self, match: re.Match[str]) -> str:
        head, quote, value = match.groups()
        if _keep(head, value) or value.startswith("--"):
            return match.group(0)
        return head + quote + self.mark("flag", value)

    def _named(self, match: re.Match[str]) -> str:
        head, quoted, bare = match.groups()
        if quoted is None:
            return match.group(0) if _keep(head, bare) else head + self.mark("value", bare)
        start = quoted.index(quoted[-1]) + 1
        inner = quoted[start:-1]
        if _keep(head, inner):
            return match.group(0)
        return head + quoted[:start] + self.mark("value", inner) + quoted[-1]

    def _requests(self, text: str) -> str:
        text = _IDS.sub(lambda m: m.group(1) + self.mark("prompt", m.group(2)), text)
        if not _REQUEST.search(text):
            return text
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if _REQUEST.search(line):
                lines[number] = _PROMPT.sub(self._prompt, line)
        return "\n".join(lines)

    def _prompt(self, match: re.Match[str]) -> str:
        head, quoted = match.groups()
        if _keep(head, quoted[1:-1]):
            return match.group(0)
        return head + quoted[0] + self.mark("prompt", quoted) + quoted[0]


def _keep(head: str, value: str) -> bool:
    """Return whether a value is no secret: empty, masked, a help text's metavar, or program text."""
    if value in _PLAIN or value.startswith((_MARK, "<", "$", "***")) or _MARK in value:
        return True
    if value.isupper() and re.match(r"[A-Z_]+\Z", value) and value.endswith(_METAVARS):
        return True
    name = re.split(r"[^\w-]", head.strip(" \t=:'\",-"))[-1]
    return bool(name) and value.rstrip(",)").endswith("." + name)


_METAVARS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS")
