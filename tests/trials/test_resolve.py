"""What SGLang's resolver says before a launch: refused, equal to another, or needing a companion."""

from __future__ import annotations

from typing import Any, cast

from fleetctl.apply.session import Session
from fleetctl.engines.sglang.schema import load
from fleetctl.errors import RemoteError
from fleetctl.model.fleet import Host, Profile, Service, Target
from fleetctl.render import Rendered, render
from fleetctl.trials.resolve import Resolved, Resolver, companions, engine_sets

SCHEMA = load("0.5.12.post1")


def launch(port: int = 30000, **flags: Any) -> Rendered:
    named = {k.replace("_", "-"): v for k, v in flags.items()}
    target = Target(Host("h", "h"), Service("main-trial", port))
    return render(Profile("p", "/m", flags=named), target)


class Host0:
    """A session whose SGLang answers by a function of the words."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[list[str]] = []

    def call(self, verb: str, args: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert verb == "resolver.resolve_many"
        self.asked += args["cases"]
        return {"results": [self.answer(words) for words in args["cases"]]}


def resolver(answer: Any) -> tuple[Resolver, Host0]:
    host = Host0(answer)
    return Resolver(cast(Session, host), SCHEMA), host


def test_what_the_schema_refuses_is_never_asked_on_the_host() -> None:
    asks, host = resolver(lambda words: {"ok": True, "resolved": {}})
    (answer,) = asks.ask([launch(enable_nvls=True)])
    assert "enable-nvls" in answer.error
    assert not answer.own
    assert host.asked == []


def test_equal_resolutions_have_equal_hashes_whatever_the_port_and_are_asked_once() -> None:
    def answer(words: list[str]) -> dict[str, Any]:
        return {"ok": True, "resolved": {"tp": 8, "port": words[3]}, "env_changes": {}}

    asks, host = resolver(answer)
    one, other = asks.ask([launch(tp_size=8), launch(tp=8)])
    assert one.digest == other.digest
    assert one.own
    (again,) = asks.ask([launch(30007, tp_size=8)])
    assert again == one
    assert len(host.asked) == 2


def test_a_variable_that_the_engine_sets_makes_a_difference() -> None:
    def answer(words: list[str]) -> dict[str, Any]:
        on = "--enable-nccl-nvls" in words
        changes = {"NCCL_NVLS_ENABLE": [None, "1"]} if on else {}
        return {"ok": True, "resolved": {"tp": 8}, "env_changes": changes}

    asks, _ = resolver(answer)
    one, other = asks.ask([launch(), launch(enable_nccl_nvls=True)])
    assert one.digest != other.digest


def test_a_refusal_is_an_error_in_sglangs_own_words() -> None:
    error = {"type": "AssertionError", "message": "context\nep must divide tp", "where": ""}
    asks, _ = resolver(lambda words: {"ok": False, "error": error})
    (answer,) = asks.ask([launch(ep_size=3)])
    assert answer.error == "ep must divide tp"


def test_where_sglang_cannot_be_imported_the_schema_alone_decides() -> None:
    def broken(words: list[str]) -> dict[str, Any]:
        raise RemoteError("resolver-unavailable", "no module named sgl_kernel")

    asks, _ = resolver(broken)
    (answer,) = asks.ask([launch(tp_size=8)])
    assert (answer.error, answer.own) == ("", False)
    assert "sgl_kernel" in asks.missing


def test_a_switch_that_runs_with_exactly_one_other_is_its_follower() -> None:
    bad, good = Resolved("x", "refused", own=True), Resolved("y", own=True)
    alone = {"a": bad, "b": good, "c": bad}
    paired = {("a", "b"): good, ("a", "c"): bad, ("c", "a"): good, ("c", "b"): good}
    assert companions(alone, paired) == [("a", "b")]


def test_a_variable_that_a_flag_makes_the_engine_set_is_switched_with_the_flag() -> None:
    base = Resolved("0", own=True, sets=("NCCL_DEBUG",))
    alone = {
        "enable-symm-mem": Resolved("1", own=True, sets=("NCCL_CUMEM_ENABLE", "NCCL_DEBUG")),
        "env NCCL_CUMEM_ENABLE": Resolved("2", own=True, sets=("NCCL_DEBUG",)),
        "env NCCL_DEBUG": Resolved("3", own=True, sets=("NCCL_DEBUG",)),
    }
    assert engine_sets(alone, base) == [("env NCCL_CUMEM_ENABLE", "enable-symm-mem")]
