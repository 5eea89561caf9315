"""What is sent to a host: the modules that a verb needs, and no more than Python itself would import."""

from __future__ import annotations

import ast
import importlib.resources

import pytest

from fleetctl.errors import RemoteError
from fleetctl.model.fleet import Host
from fleetctl.transport.agent import Agent
from fleetctl.transport.local import LocalConnection
from fleetctl.transport.payload import needed_by, source_of

HERE = Host(name="here", address="localhost", transport="local")
MODULES = sorted(
    path.name.removesuffix(".py")
    for path in importlib.resources.files("fleetctl.remote").iterdir()
    if path.name.endswith(".py") and path.name != "__init__.py"
)


def parsed(module: str) -> set[str]:
    """The modules of the package that one imports anywhere, by Python's own parser."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source_of(module))):
        if isinstance(node, ast.ImportFrom) and node.module == "fleetctl.remote":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "fleetctl.remote."
        ):
            found.add(str(node.module).split(".")[2])
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_import_of_a_module_travels_with_it(module: str) -> None:
    needed = needed_by(module)
    assert needed == {module}.union(*(needed_by(m) for m in parsed(module)))


def test_several_verbs_answer_in_one_request() -> None:
    verbs = {"unit.show": {"units": []}, "model_folder.read": {"path": "/nowhere"}}
    with Agent(LocalConnection(HERE), ("several", "unit", "model_folder")) as agent:
        said = agent.call("several.run", {"verbs": verbs})
        assert list(said) == list(verbs)
        assert said["model_folder.read"]["exists"] is False


def test_a_fault_among_several_verbs_is_the_fault_of_the_request() -> None:
    verbs = {"model_folder.read": {"path": "/nowhere"}, "model_folder.write": {}}
    with (
        Agent(LocalConnection(HERE), ("several", "model_folder")) as agent,
        pytest.raises(RemoteError) as caught,
    ):
        agent.call("several.run", {"verbs": verbs})
    assert caught.value.reference == "unknown-verb"
