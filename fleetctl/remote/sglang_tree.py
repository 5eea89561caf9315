"""Finds an SGLang package in a folder, a wheel or a checkout: its version, a hash of where its flags are."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import zipfile
from typing import Iterator, Optional

from fleetctl.remote import static_python

INSIDE = (
    "",
    "sglang",
    "python/sglang",
    "lib/python3*/site-packages/sglang",
    "lib64/python3*/site-packages/sglang",
)
_VERSION = re.compile(
    r"""^(?:__version__|version)\s*(?::\s*str\s*)?=\s*(?:version\s*=\s*)?["']([^"']+)["']""", re.M
)
_METADATA = re.compile(r"^Version:\s*(\S+)", re.M)
# Everything that can change a spelling, a choice, a default or an environment variable's name.
HASHED = ("srt/server_args.py", "srt/environ.py", "srt/utils/common.py", "srt/utils.py")
HASHED_FOLDERS = ("srt/arg_groups", "srt/arg_groups/fields", "srt/parser", "srt/function_call")


def find(path: str) -> Optional[static_python.Tree]:
    """Return the package at a path: a wheel, a venv, site-packages, ``sglang/`` itself or a checkout."""
    path = os.path.abspath(path)
    if os.path.isfile(path):
        return static_python.Tree(path) if zipfile.is_zipfile(path) else None
    for inside in INSIDE:
        for root in sorted(glob.glob(os.path.join(glob.escape(path), inside))):
            if os.path.isfile(os.path.join(root, "srt", "server_args.py")):
                return static_python.Tree(root.rstrip("/"))
    return None


def version(tree: static_python.Tree) -> Optional[str]:
    """Return the version that the package's metadata states, or None (a checkout without a build)."""
    for name in _metadata(tree):
        match = _METADATA.search(name)
        if match:
            return match.group(1)
    for path in ("_version.py", "version.py"):
        match = _VERSION.search(tree.read(path) or "")
        if match:
            return match.group(1)
    return None


def _metadata(tree: static_python.Tree) -> Iterator[str]:
    if os.path.isfile(tree.root):
        with zipfile.ZipFile(tree.root) as wheel:
            for name in wheel.namelist():
                if re.fullmatch(r"sglang-[^/]+\.dist-info/METADATA", name):
                    yield wheel.read(name).decode("utf-8", "replace")
        return
    beside = os.path.dirname(tree.root)
    for path in sorted(
        glob.glob(os.path.join(glob.escape(beside), "sglang-*.dist-info", "METADATA"))
    ):
        with open(path, encoding="utf-8", errors="replace") as file:
            yield file.read()


def digest(tree: static_python.Tree) -> str:
    """Return a hash over the files that flags and variables are read from (16 hex digits)."""
    found = hashlib.sha256()
    paths = [p for p in tree.files((".py",)) if p in HASHED or os.path.dirname(p) in HASHED_FOLDERS]
    for path in sorted(paths):
        found.update(path.encode("utf-8") + b"\0" + (tree.read_bytes(path) or b"") + b"\0")
    return found.hexdigest()[:16]
