"""From two launches to switches: spellings, defaults, groups, suspicion; and back to a profile."""

from __future__ import annotations

import pytest

from fleetctl.bisect import space as spaces
from fleetctl.bisect.priors import shipped
from fleetctl.bisect.space import Space, Switch, build, compose, place
from fleetctl.engines.sglang.schema import load
from fleetctl.errors import UsageError
from fleetctl.model.fleet import Profile, SecretRef
from fleetctl.model.launch import LaunchConfig

SCHEMA = load("0.5.12.post1")


def config(name: str = "p", **fields: object) -> LaunchConfig:
    return LaunchConfig(profile=name, model="m", **fields)  # type: ignore[arg-type]


def names(space: Space) -> list[str]:
    return [s.name for s in space.switches]


def test_spellings_types_and_defaults_are_no_differences() -> None:
    good = config(flags={"tp": "8", "mem-fraction-static": "0.85", "port": "1"})
    bad = config(flags={"tp-size": 8, "mem-fraction-static": 0.850, "log-level": "info", "ep": "2"})
    found = build(good, bad, SCHEMA)
    assert names(found) == ["ep"]
    assert [a.name for a in found.equal] == ["log-level"]


def test_profiles_that_launch_the_same_are_refused_and_other_code_is_named() -> None:
    with pytest.raises(UsageError, match="launch the same thing") as refused:
        build(config(versions={"sglang": "0.5.10"}), config(versions={"sglang": "0.5.12"}), SCHEMA)
    assert refused.value.reference == "equal-profiles"
    assert "0.5.10" in refused.value.hint
    both = build(
        config(versions={"torch": "2.8"}), config(versions={"torch": "2.9"}, flags={"ep": 2})
    )
    assert [str(a) for a in both.fixed] == ["version torch: 2.8 → 2.9"]


def test_what_goes_together_is_one_switch_only_where_its_leader_differs_too() -> None:
    good = config(flags={})
    bad = config(
        flags={
            "speculative-algorithm": "EAGLE", "speculative-num-steps": 3,
            "enable-nccl-nvls": True, "hicache-ratio": 3,
        },
        env={"NCCL_NVLS_ENABLE": "1", "NCCL_DEBUG": "INFO", "PATH": "/x"},
    )  # fmt: skip
    found = {s.name: [p.name for p in s.parts] for s in build(good, bad, SCHEMA).switches}
    assert found == {
        "speculative-*": ["speculative-algorithm", "speculative-num-steps"],
        "enable-nccl-nvls": ["enable-nccl-nvls", "NCCL_NVLS_ENABLE"],
        "hicache-ratio": ["hicache-ratio"],
        "env NCCL_DEBUG": ["NCCL_DEBUG"],
    }
    fine = spaces.split(build(good, bad, SCHEMA), ["speculative-*"])
    assert names(fine) == ["speculative-algorithm", "speculative-num-steps"]


def test_the_crashes_label_moves_suspicion_between_families() -> None:
    flags = {"max-running-requests": 9, "cuda-graph-max-bs": 9, "log-level-http": "error"}
    plain = build(config(), config(flags=flags), SCHEMA)
    oom = build(config(), config(flags=flags), SCHEMA, label="cuda-oom-serving")
    assert names(plain)[0] == "cuda-graph-max-bs"
    assert names(oom)[0] == "max-running-requests"
    assert names(plain)[-1] == names(oom)[-1] == "log-level-http"
    assert spaces.reweigh(plain, "cuda-oom-serving").switches[1].weight > plain.switches[1].weight


def test_every_rule_of_the_labels_names_a_family() -> None:
    rules = shipped()
    known = {f.name for f in rules.families}
    assert all(set(boosts) <= known for boosts in rules.labels.values())
    assert all(f.weight > 0 for f in rules.families)


GOOD = Profile(
    "good", "m", flags={"tp": "8", "ep-size": "1"}, env={"A": "1"},
    secret_flags={"api-key": SecretRef("env", "ONE")}, unit={"timeout_stop": 60},
)  # fmt: skip
BAD = Profile(
    "bad", "m2", flags={"tp-size": "4", "expert-parallel-size": "8"}, env={"A": "2", "B": "3"},
    secret_flags={"api-key": SecretRef("env", "TWO")}, unit={}, python="/other/bin/python",
)  # fmt: skip


def switch(kind: str, name: str) -> Switch:
    from fleetctl.model.launch import Atom

    return Switch(name, (Atom(kind, name, None, None),))


def test_a_trial_is_the_good_profile_with_some_of_the_bad_ones_values() -> None:
    some = [
        switch("flag", "expert-parallel-size"),
        switch("env", "B"),
        switch("unit", "timeout_stop"),
    ]
    made = compose(GOOD, BAD, some, SCHEMA)
    assert made.flags == {"tp": "8", "expert-parallel-size": "8"}
    assert made.env == {"A": "1", "B": "3"}
    assert made.unit == {}
    assert made.secret_flags == GOOD.secret_flags
    every = [
        *some, switch("flag", "tensor-parallel-size"), switch("env", "A"), switch("flag", "api-key"),
        switch("model", "model"), switch("unit", "python"),
    ]  # fmt: skip
    whole = compose(GOOD, BAD, every, SCHEMA)
    assert (whole.flags, whole.env, whole.model) == (BAD.flags, BAD.env, BAD.model)
    assert (whole.secret_flags, whole.python, whole.name) == (BAD.secret_flags, BAD.python, "good")


def test_an_earlier_launch_is_placed_between_the_ends_or_nowhere() -> None:
    good = config(flags={"ep-size": 1, "port": 1})
    bad = config(flags={"ep-size": 8, "page-size": 64, "port": 2})
    found = build(good, bad, SCHEMA)
    ep = names(found).index("ep-size")
    assert place(found, good, config(flags={"ep-size": 1}), SCHEMA) == 0
    assert place(found, good, config(flags={"ep-size": "8"}), SCHEMA) == 1 << ep
    assert place(found, good, bad, SCHEMA) == 3
    assert place(found, good, config(flags={"ep-size": 4}), SCHEMA) is None
    assert place(found, good, config(flags={"ep-size": 8, "dtype": "half"}), SCHEMA) is None


def test_switches_that_cannot_run_apart_are_joined() -> None:
    found = build(config(), config(flags={"ep-size": 8, "page-size": 64, "dtype": "half"}), SCHEMA)
    joined = spaces.join(found, [("page-size", "dtype")])
    assert sorted(names(joined)) == ["dtype", "ep-size"]
    assert len(spaces.without(joined, ["ep-size"]).switches) == 1


def test_a_patch_is_a_switch_where_a_trial_can_have_either_side_and_is_told_where_not() -> None:
    good = config(patches={"kept": "k" * 64, "lost": "o" * 64, "other": "1" * 64})
    bad = config(flags={"ep": 2}, patches={"new": "n" * 64, "kept": "k" * 64, "other": "2" * 64})
    can = {"kept": "k" * 64, "new": "n" * 64, "other": "2" * 64}
    found = build(good, bad, SCHEMA, patches=can)
    assert names(found) == ["ep", "patch new"]
    assert [str(a) for a in found.fixed] == [
        "patch -lost", "patch other: 111111111111 → 222222222222",
    ]  # fmt: skip
    assert [str(a) for a in build(good, bad, SCHEMA).fixed][1] == "patch +new=nnnnnnnnnnnn"


def test_composing_adds_and_takes_patches_and_an_earlier_launch_is_placed_by_them() -> None:
    patches = {"a": "1" * 64, "b": "2" * 64}
    good, bad = config(patches={"a": "1" * 64}), config(patches={"b": "2" * 64})
    space = build(good, bad, SCHEMA, patches=patches)
    assert names(space) == ["patch a", "patch b"]
    ends = (Profile("g", "m", patches=("a",)), Profile("b", "m", patches=("b",)))
    made = [compose(*ends, [s], SCHEMA).patches for s in space.switches]
    assert made == [(), ("a", "b")]
    assert place(space, good, config(patches=patches), SCHEMA) == 0b10
    assert place(space, good, config(patches={"a": "1" * 64, "c": "3" * 64}), SCHEMA) is None
    assert place(space, good, config(patches={"a": "9" * 64}), SCHEMA) is None
