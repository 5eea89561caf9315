"""Requests that are sent after ready, as people write them down."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.apply.wish import Wish, read_requests
from fleetctl.errors import UsageError
from fleetctl.model.fleet import Profile


def written(folder: Path, text: str) -> Path:
    path = folder / "request.json"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('{"text": "hello"}', ["/generate"]),
        ('{"messages": []}', ["/v1/chat/completions"]),
        ('{"model": "m", "prompt": "x"}', ["/v1/completions"]),
        ('[{"text": "a"}, {"messages": []}]', ["/generate", "/v1/chat/completions"]),
        ('{"text": "a"}\n\n{"prompt": "b"}\n', ["/generate", "/v1/completions"]),
        ('{"path": "/own", "body": {"text": "a"}, "timeout": 3}', ["/own"]),
        ('{"body": {"messages": []}}', ["/v1/chat/completions"]),
    ],
)
def test_each_way_of_writing_requests(tmp_path: Path, text: str, paths: list[str]) -> None:
    assert [r["path"] for r in read_requests(written(tmp_path, text))] == paths


@pytest.mark.parametrize(
    ("text", "place"),
    [("", ""), ("[]", ""), ("[1]", ""), ('{"a": 1}\n{oops\n', ":2"), ("nope", ":1")],
)
def test_what_is_no_request_is_told_with_its_line(tmp_path: Path, text: str, place: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_requests(path)
    assert caught.value.reference == "bad-request"
    assert caught.value.where == f"{path}{place}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_requests(tmp_path / "nothing")


def test_only_limits_that_were_asked_for_reach_the_host() -> None:
    profile = Profile("p", "/m")
    assert Wish(profile).limits() == {}
    assert Wish(profile, timeout=60.0, stall=5.0).limits() == {"timeout": 60.0, "quiet": 5.0}
