"""Frames of tracebacks in the spellings of Python, faulthandler, C++ and py-spy."""

from __future__ import annotations

import re

from fleetctl.model.triage import Frame

# Packages whose code is ours to read when a server breaks; the rest of site-packages is plumbing.
IN_APP = frozenset(
    (
        "sglang",
        "sgl_kernel",
        "sgl_jax",
        "sgl_model_gateway",
        "flashinfer",
        "deep_gemm",
        "deep_ep",
        "vllm",
        "mooncake",
        "nixl",
    )
)
_PYTHON = re.compile(
    r'File ["“](?P<file>[^"“”\n]{1,600})["”], line (?P<line>\d{1,9})(?:,? in (?P<function>.{1,200}))?'
)
_CPP = re.compile(
    r"(?:#\d{1,3}|frame #\d{1,3}:?) (?P<function>.{1,2000}?)(?: \+ 0x[0-9a-f]{1,16})?"
    r"(?: \(0x[0-9a-f]{1,16} in (?P<file>[^)]{1,400})\))?\s*\Z"
)
_PYSPY = re.compile(
    r"(?P<function>[\w.<>:~ ]{1,160}) \((?P<file>[^()]{1,300}):(?P<line>\d{1,9})\)\s*\Z"
)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_STDLIB = re.compile(r".*/lib/python\d+(?:\.\d+)?/")
_CHECKOUT = re.compile(
    r".*?/(?=(?:sglang|sgl_kernel|sgl_jax|flashinfer|deep_gemm|deep_ep|vllm|vllm_ascend|tilelang|aiter"
    r"|lmcache|torch_npu)/(?!python/))"
)
_GENERATED = re.compile(r".*/(?:torchinductor_[^/]{1,64}|torch_extensions|\.triton|triton)/.*")


def python(text: str) -> Frame | None:
    """Return the frame of a ``File "…", line n, in f`` line (also without ``in`` or commas), or None."""
    match = _PYTHON.search(text)
    if match is None:
        return None
    function = (match["function"] or "").strip()
    return build(match["file"], function, int(match["line"]))


def cpp(text: str) -> Frame | None:
    """Return the frame of a ``frame #n: symbol + 0x… (0x… in lib)`` line, or None."""
    match = _CPP.match(text.strip())
    if match is None:
        return None
    function = match["function"].split("(", 1)[0].strip()
    library = (match["file"] or "").rsplit("/", 1)[-1]
    return Frame(library, function[:200], match["file"] or "", None, in_app=False)


def pyspy(text: str) -> Frame | None:
    """Return the frame of a py-spy line ``    function (file.py:12)``, or None."""
    match = _PYSPY.match(text.strip())
    if match is None:
        return None
    return build(match["file"], match["function"].strip(), int(match["line"]))


def build(file: str, function: str, line: int | None) -> Frame:
    """Return a frame with the module that its file stands for and whether it is code of the server."""
    module, package, plumbing = _module(file)
    in_app = package in IN_APP or not plumbing
    return Frame(module, function, file, line, in_app=in_app)


def _module(file: str) -> tuple[str, str, bool]:
    """Return module, top package and whether the file belongs to Python or an installed package."""
    if file.startswith("<"):
        return file.strip("<>").replace("frozen ", ""), "", True
    if _GENERATED.match(file):
        return "generated", "generated", True
    plumbing = True
    path = _PACKAGES.sub("", file)
    if path == file:
        path = _CHECKOUT.sub("", file)
        plumbing = False
        if path == file and _STDLIB.match(file):
            path, plumbing = _STDLIB.sub("", file), True
        elif path == file:
            path = "/".join(file.split("/")[-2:]) if "/" in file else file
            plumbing = file.endswith((".pxi", ".pyx"))
    name = path.rsplit(".", 1)[0] if "." in path.rsplit("/", 1)[-1] else path
    module = name.strip("/").replace("/", ".").removesuffix(".__init__")
    return module, module.split(".", 1)[0], plumbing
