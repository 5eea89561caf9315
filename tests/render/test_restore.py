"""An earlier launch comes back with its own texts, whatever the site renders today."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.config.secrets import Secrets
from fleetctl.errors import RefusedError
from fleetctl.model.fleet import Host, Profile, SecretRef, Service, Target
from fleetctl.model.revision import Revision
from fleetctl.render import render
from fleetctl.render.restore import body_of, restore

TARGET = Target(Host("b-01", "10.0.0.1"), Service())
PROFILE = Profile(
    "p", "/models/m", flags={"tp-size": "8"}, env={"A": "1"},
    secret_env={"HF_TOKEN": SecretRef("env", "HF")},
)  # fmt: skip


def kept(profile: Profile = PROFILE) -> Revision:
    old = render(profile, TARGET, secrets=Secrets({}, {"HF_TOKEN": "old-secret-1234"}))
    body = body_of(old)
    assert "old-secret" not in str(body)
    return Revision.from_json({"number": 3, "launch": "l"} | body)


def test_texts_are_the_revisions_own_and_secrets_are_those_of_now() -> None:
    today = render(
        replace(PROFILE, env={"A": "2"}),
        TARGET,
        secrets=Secrets({}, {"HF_TOKEN": "new-secret-1234"}),
    )
    back = restore(today, kept())
    texts = {f.path.rpartition("/")[2]: f.content for f in back.files}
    assert "A=1" in texts["environment"].replace('"', "")
    assert "new-secret-1234" in texts["secrets.env"]
    assert back.config.env["A"] == "1"
    assert [w for w in back.warnings if "environment" in w]


def test_the_same_again_has_no_warning() -> None:
    today = render(PROFILE, TARGET, secrets=Secrets({}, {"HF_TOKEN": "old-secret-1234"}))
    back = restore(today, kept())
    assert (back.files, back.unit_text, back.warnings) == (
        today.files, today.unit_text, today.warnings,
    )  # fmt: skip


def test_versions_are_those_of_now_and_a_difference_is_told() -> None:
    today = render(
        PROFILE, TARGET, secrets=Secrets({}, {"HF_TOKEN": "x" * 12}), versions={"sglang": "0.5.15"}
    )
    back = restore(today, kept())
    assert back.config.versions == {"sglang": "0.5.15"}
    assert any("0.5.15 is there now" in w for w in back.warnings)


def test_another_port_is_refused() -> None:
    moved = Target(TARGET.host, Service(port=31000))
    with pytest.raises(RefusedError, match="has port 30000"):
        restore(render(PROFILE, moved), kept())
