"""Known, new, changed, revoked, hashed, vouched for: what a host key may be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import ConfigError, FleetError, RefusedError
from fleetctl.transport import connect, first_contact, hostkeys

Start = Callable[..., Any]
Launch = Callable[..., Path]


def reference(host: Any) -> str:
    with pytest.raises(FleetError) as caught:
        connect(host)
    return caught.value.reference


def file_with(server: Any, *lines: str) -> str:
    path = server.folder / "known"
    path.write_text("".join(line + "\n" for line in lines))
    return str(path)


def other_key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def test_a_machine_never_seen_is_host_key_unknown_and_says_what_to_do(sshd: Start) -> None:
    server = sshd()
    with pytest.raises(FleetError) as caught:
        connect(server.host(known_hosts=file_with(server)))
    assert caught.value.reference == "host-key-unknown"
    assert hostkeys.fingerprint(server.public.split()[1]) in caught.value.message
    assert "fleetctl hosts trust gpu-01" in caught.value.hint


def test_another_key_than_before_is_host_key_changed_and_shows_both(
    sshd: Start, tmp_path: Path
) -> None:
    server = sshd()
    old = other_key(tmp_path / "old")
    known = file_with(server, f"[127.0.0.1]:{server.port} {old}")
    with pytest.raises(FleetError) as caught:
        connect(server.host(known_hosts=known))
    assert caught.value.reference == "host-key-changed"
    text = "\n".join(caught.value.context)
    assert hostkeys.fingerprint(old.split()[1]) in text
    assert hostkeys.fingerprint(server.public.split()[1]) in text
    assert f"{known}:1" in text


def test_a_key_of_another_kind_alone_is_a_changed_key(sshd: Start, tmp_path: Path) -> None:
    server = sshd()
    path = tmp_path / "rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(path)], check=True)
    rsa = " ".join(path.with_suffix(".pub").read_text().split()[:2])
    known = file_with(server, f"[127.0.0.1]:{server.port} {rsa}")
    assert reference(server.host(known_hosts=known)) == "host-key-changed"


def test_a_revoked_key_is_refused_though_it_is_known_too(sshd: Start) -> None:
    server = sshd()
    known = file_with(
        server, f"[127.0.0.1]:{server.port} {server.public}", f"@revoked * {server.public}"
    )
    assert reference(server.host(known_hosts=known)) == "host-key-revoked"


@pytest.mark.parametrize("pattern", ["[127.0.0.*]:*", "x,[127.0.0.1]:{port}", "[127.0.0.?]:{port}"])
def test_names_may_be_lists_and_patterns(sshd: Start, pattern: str) -> None:
    server = sshd()
    known = file_with(server, f"{pattern.format(port=server.port)} {server.public}")
    connect(server.host(known_hosts=known)).close()
    assert server.logins() == 1
    beside = file_with(server, f"{pattern.format(port=server.port)}x {server.public}")
    assert reference(server.host(known_hosts=beside)) == "host-key-unknown"


def test_a_negated_pattern_takes_a_name_out(sshd: Start) -> None:
    server = sshd()
    known = file_with(server, f"*,![127.0.0.1]:{server.port} {server.public}")
    assert reference(server.host(known_hosts=known)) == "host-key-unknown"


def test_hashed_names_are_found(sshd: Start) -> None:
    server = sshd()
    known = file_with(server, f"[127.0.0.1]:{server.port} {server.public}")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    assert Path(known).read_text().startswith("|1|")
    connect(server.host(known_hosts=known)).close()


@pytest.mark.parametrize(
    ("principals", "validity", "expected"),
    [
        ("127.0.0.1", "-1m:+5m", None),
        ("other", "-1m:+5m", "host-key-unknown"),
        ("127.0.0.1", "-10m:-5m", "host-key-unknown"),
    ],
)
def test_an_authority_vouches_for_a_host_by_name_and_time(
    sshd: Start, tmp_path: Path, principals: str, validity: str, expected: str | None
) -> None:
    authority = other_key(tmp_path / "ca")
    other_key(tmp_path / "host")
    sign = ["ssh-keygen", "-q", "-s", str(tmp_path / "ca"), "-h", "-I", "x", "-n", principals]
    subprocess.run([*sign, "-V", validity, str(tmp_path / "host.pub")], check=True)
    server = sshd(f"HostCertificate {tmp_path}/host-cert.pub", tmp_path / "host")
    host = server.host(known_hosts=file_with(server, f"@cert-authority * {authority}"))
    if expected is None:
        connect(host).close()
    else:
        assert reference(host) == expected


def test_a_certificate_of_another_authority_does_not_count(sshd: Start, tmp_path: Path) -> None:
    other_key(tmp_path / "ca")
    trusted = other_key(tmp_path / "trusted")
    other_key(tmp_path / "host")
    sign = ["ssh-keygen", "-q", "-s", str(tmp_path / "ca"), "-h", "-I", "x", "-n", "127.0.0.1"]
    subprocess.run([*sign, str(tmp_path / "host.pub")], check=True)
    server = sshd(f"HostCertificate {tmp_path}/host-cert.pub", tmp_path / "host")
    host = server.host(known_hosts=file_with(server, f"@cert-authority * {trusted}"))
    assert reference(host) == "host-key-unknown"


def test_accept_new_records_a_new_key_but_no_changed_one(
    sshd: Start, own_home: Path, tmp_path: Path
) -> None:
    server = sshd()
    (own_home / ".ssh/config").write_text("Host *\n StrictHostKeyChecking accept-new\n")
    connect(server.host(known_hosts=None)).close()
    known = own_home / ".ssh/known_hosts"
    assert known.read_text() == f"[127.0.0.1]:{server.port} {server.public}\n"
    known.write_text(f"[127.0.0.1]:{server.port} {other_key(tmp_path / 'old')}\n")
    os.utime(known, ns=(1, 1))  # as if later: two writes may share a tick of the clock
    assert reference(server.host(known_hosts=None)) == "host-key-changed"


def test_trusting_writes_the_key_once_and_the_next_login_passes(
    sshd: Start, tmp_path: Path
) -> None:
    server = sshd()
    known = tmp_path / "new/known_hosts"
    host = server.host(known_hosts=str(known))
    shown = first_contact.look(host)
    assert (shown.state, shown.kind) == ("new", "ssh-ed25519")
    assert first_contact.believe(shown) == str(known)
    assert first_contact.look(host).state == "known"
    first_contact.believe(first_contact.look(host))
    assert known.read_text().count("\n") == 1
    assert known.stat().st_mode & 0o777 == 0o600
    connect(host).close()


def test_trusting_refuses_a_changed_key_and_leaves_the_file_alone(
    sshd: Start, tmp_path: Path
) -> None:
    server = sshd()
    known = file_with(server, f"[127.0.0.1]:{server.port} {other_key(tmp_path / 'old')}")
    before = Path(known).read_text()
    shown = first_contact.look(server.host(known_hosts=known))
    with pytest.raises(RefusedError) as caught:
        first_contact.believe(shown)
    assert caught.value.reference == "host-key-changed"
    assert len(caught.value.context) == 2
    assert Path(known).read_text() == before


def test_adding_keeps_a_link_a_mode_and_a_line_without_newline(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_bytes(b"# \xff note\na ssh-ed25519 AAAA")
    real.chmod(0o644)
    link = tmp_path / "link"
    link.symlink_to(real)
    hostkeys.add(str(link), "b ssh-ed25519 BBBB")
    assert real.read_bytes() == b"# \xff note\na ssh-ed25519 AAAA\nb ssh-ed25519 BBBB\n"
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.glob(".known_hosts-*"))


def test_a_known_hosts_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        hostkeys.add(str(tmp_path / "file/known_hosts"), "a b c")
    assert caught.value.reference == "known-hosts"


def test_a_fingerprint_is_ssh_keygen_s(tmp_path: Path) -> None:
    key = other_key(tmp_path / "k")
    said = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(tmp_path / "k.pub")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split()[1] == hostkeys.fingerprint(key.split()[1])


def test_several_programs_that_add_at_once_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    code = "import sys; from fleetctl.transport import hostkeys as k; w, p = sys.argv[1:]\n"
    code += "for n in range(25): k.add(p, f'{w}-{n} ssh-ed25519 AAAA')"
    started = [
        subprocess.Popen([sys.executable, "-c", code, who, str(path)]) for who in ("a", "b", "c")
    ]
    assert [process.wait(120) for process in started] == [0, 0, 0]
    assert len(set(path.read_text().splitlines())) == 75
