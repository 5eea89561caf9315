"""Keys, agents, certificates, passphrases, a second factor: asked once, never by fifty threads."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import paramiko
import pytest

from fleetctl.errors import ConfigError, FleetError
from fleetctl.model.fleet import Host
from fleetctl.transport import connect, hostkeys, prompts
from fleetctl.transport.deadline import Deadline

Start = Callable[..., Any]


def key_pair(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path


def fingerprint(key: Path) -> str:
    """Return a key's fingerprint as sshd writes it to its log."""
    return hostkeys.fingerprint(key.with_suffix(".pub").read_text().split()[1])


def allow(server: Any, *public: Path) -> None:
    (server.folder / "authorized_keys").write_text("".join(p.read_text() for p in public))


def failure(host: Host) -> FleetError:
    with pytest.raises(FleetError) as caught:
        connect(host)
    return caught.value


class Person:
    """Somebody at the terminal, who answers and counts the questions."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, question: str, echo: bool) -> str | None:
        self.asked.append(question)
        return next((a for part, a in self.answers.items() if part in question), None)


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Person:
    someone = Person({})
    monkeypatch.setattr(prompts, "_ask", someone)
    monkeypatch.setattr(prompts, "terminal", lambda: True)
    monkeypatch.setattr(prompts, "_answers", {})
    return someone


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A real ssh-agent; calling it adds keys."""
    path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    while not path.exists():
        assert process.poll() is None
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))

    def add(*keys: Path) -> None:
        for key in keys:
            subprocess.run(["ssh-add", "-q", str(key)], check=True, capture_output=True)

    yield add
    process.terminate()
    process.wait()


def test_a_key_that_is_not_let_in_is_auth_failed_and_says_what_was_tried(
    sshd: Start, tmp_path: Path
) -> None:
    wrong = key_pair(tmp_path / "wrong")
    error = failure(sshd().host(key=str(wrong)))
    assert error.reference == "auth-failed"
    assert str(wrong) in error.message


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_every_kind_of_key_logs_in(sshd: Start, tmp_path: Path, kind: str) -> None:
    server = sshd()
    key = key_pair(tmp_path / kind, kind=kind)
    allow(server, key.with_suffix(".pub"))
    connect(server.host(key=str(key))).close()
    assert f"ssh2: {kind.upper()} {fingerprint(key)}" in server.log


def test_a_missing_key_file_is_said(sshd: Start) -> None:
    error = failure(sshd().host(key="/nowhere/id"))
    assert error.reference == "auth-failed"
    assert "/nowhere/id (not there)" in error.message


def test_a_file_that_is_no_key_is_said(sshd: Start, tmp_path: Path) -> None:
    path = tmp_path / "id"
    path.write_text("hello\n")
    assert f"{path} (not a private key)" in failure(sshd().host(key=str(path))).message


def test_without_a_terminal_a_locked_key_is_said_and_nobody_is_asked(
    sshd: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "terminal", lambda: False)
    monkeypatch.setattr(prompts, "_answers", {})
    locked = key_pair(tmp_path / "locked", "word")
    error = failure(sshd().host(key=str(locked)))
    assert f"{locked} (locked by a passphrase)" in error.message
    assert "ssh-add" in error.hint


def test_a_passphrase_is_asked_once_for_all_threads(
    sshd: Start, tmp_path: Path, person: Person
) -> None:
    person.answers["Passphrase"] = "word"
    server = sshd()
    locked = key_pair(tmp_path / "locked", "word")
    allow(server, locked.with_suffix(".pub"))
    host = server.host(key=str(locked))
    with ThreadPoolExecutor(8) as pool:
        for made in list(pool.map(lambda _: connect(host, 20), range(8))):
            made.close()
    assert len(person.asked) == 1


def test_a_wrong_passphrase_is_asked_three_times(
    sshd: Start, tmp_path: Path, person: Person
) -> None:
    person.answers["Passphrase"] = "wrong"
    locked = key_pair(tmp_path / "locked", "word")
    assert failure(sshd().host(key=str(locked))).reference == "auth-failed"
    assert len(person.asked) == 3


def test_the_agent_s_keys_log_in(sshd: Start, tmp_path: Path, agent: Callable[..., None]) -> None:
    server = sshd()
    key = key_pair(tmp_path / "id")
    allow(server, key.with_suffix(".pub"))
    agent(key)
    host = server.host(key=None)
    with ThreadPoolExecutor(8) as pool:
        for made in list(pool.map(lambda _: connect(host, 20), range(8))):
            made.close()
    assert server.log.count(f"ssh2: ED25519 {fingerprint(key)}") >= 8
    assert server.logins() == 8


def test_the_agent_opens_a_locked_key_without_a_question(
    sshd: Start, tmp_path: Path, agent: Callable[..., None], person: Person
) -> None:
    server = sshd()
    key = key_pair(tmp_path / "id")
    agent(key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "word", "-f", str(key)], check=True)
    allow(server, key.with_suffix(".pub"))
    connect(server.host(key=str(key))).close()
    assert server.logins() == 1
    assert person.asked == []


def test_identities_only_keeps_the_agent_s_other_keys_out(
    sshd: Start, tmp_path: Path, own_home: Path, agent: Callable[..., None]
) -> None:
    server = sshd()
    good, other = key_pair(tmp_path / "good"), key_pair(tmp_path / "other")
    allow(server, good.with_suffix(".pub"))
    agent(good)
    (own_home / ".ssh/config").write_text("Host *\n IdentitiesOnly yes\n")
    error = failure(server.host(key=str(other)))
    assert "agent" not in error.message


def test_too_many_keys_of_an_agent_get_a_hint(
    sshd: Start, tmp_path: Path, agent: Callable[..., None]
) -> None:
    agent(*(key_pair(tmp_path / f"k{n}") for n in range(8)))
    error = failure(sshd().host(key=None))
    assert error.reference == "auth-failed"
    assert "IdentitiesOnly" in error.hint


@pytest.mark.parametrize("named", [False, True])
def test_a_certificate_of_the_person_logs_in(
    sshd: Start, tmp_path: Path, own_home: Path, named: bool
) -> None:
    authority, key = key_pair(tmp_path / "ca"), key_pair(tmp_path / "id")
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", "root", f"{key}.pub"],
        check=True,
    )
    server = sshd(f"TrustedUserCAKeys {authority}.pub")
    allow(server)
    if named:
        moved = tmp_path / "elsewhere.pub"
        (tmp_path / "id-cert.pub").rename(moved)
        (own_home / ".ssh/config").write_text(f"Host *\n CertificateFile {moved}\n")
    connect(server.host(key=str(key))).close()
    assert f"ED25519-CERT {fingerprint(key)} ID me" in server.log
    assert f"CA ED25519 {fingerprint(authority)}" in server.log


def test_ssh_config_says_where_and_who(sshd: Start, own_home: Path) -> None:
    server = sshd()
    (own_home / ".ssh/config").write_text("Include conf.d/*\nHost other\n User nobody\n")
    (own_home / ".ssh/conf.d").mkdir()
    (own_home / ".ssh/conf.d/one").write_text(
        f"Host gpu-*\n HostName 127.0.0.1\n Port {server.port}\n"
        f"Match originalhost gpu-01\n IdentityFile {server.key}\n User root\n"
        f" UserKnownHostsFile {server.trusted()}\n"
    )
    made = connect(Host(name="gpu-01", address="gpu-01"))
    assert made.exec("id -un").stdout == b"root\n"
    made.close()


def test_match_exec_is_run_and_its_status_decides(sshd: Start, own_home: Path) -> None:
    server = sshd()
    (own_home / ".ssh/config").write_text(
        f'Match exec "echo %n >>{own_home}/asked; test %n = gpu-02"\n User nobody\n'
        f'Match exec "test %n = gpu-01"\n HostName 127.0.0.1\n Port {server.port}\n'
        f" User root\n IdentityFile {server.key}\n UserKnownHostsFile {server.trusted()}\n"
    )
    made = connect(Host(name="gpu-01", address="gpu-01"))
    assert made.exec("id -un").stdout == b"root\n"
    made.close()
    assert (own_home / "asked").read_text().startswith("gpu-01\n")


def test_the_inventory_wins_over_ssh_config(sshd: Start, own_home: Path) -> None:
    server = sshd()
    (own_home / ".ssh/config").write_text("Host *\n User nobody\n Port 1\n ProxyJump nowhere\n")
    host = server.host(jump="bastion", via=server.host(name="bastion", jump="none"))
    made = connect(host)
    assert made.exec("id -un").stdout == b"root\n"
    made.close()
    assert server.logins() == 2  # the jump host's and the host's: here they are one machine
    assert "nobody" not in server.log


def test_an_ssh_config_that_cannot_be_read_is_a_configuration_fault(own_home: Path) -> None:
    (own_home / ".ssh/config").write_text("Host a\n gibberish\n")
    with pytest.raises(ConfigError) as caught:
        connect(Host(name="gpu-01", address="127.0.0.1"))
    assert caught.value.reference == "ssh-config"


class SecondFactor(paramiko.ServerInterface):
    """Stands in for a bastion whose sshd asks for a key, then for a one-time code (PAM)."""

    def get_allowed_auths(self, username: str) -> str:
        return "publickey,keyboard-interactive"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.common.AUTH_PARTIALLY_SUCCESSFUL

    def check_auth_interactive(self, username: str, submethods: str) -> Any:
        return paramiko.server.InteractiveQuery("", "", ("One-time \x1b[31mcode: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return (
            paramiko.common.AUTH_SUCCESSFUL
            if responses == ["123456"]
            else paramiko.common.AUTH_FAILED
        )


@pytest.fixture
def bastion(tmp_path: Path, login_key: Path) -> Iterator[Host]:
    listener = socket.create_server(("127.0.0.1", 0))
    host_key = paramiko.Ed25519Key.from_private_key_file(str(key_pair(tmp_path / "bastion")))
    held = []

    def serve() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(link)
            transport.add_server_key(host_key)
            transport.start_server(threading.Event(), SecondFactor())
            held.append(transport)

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]
    hostkeys.add(str(tmp_path / "kh"), f"[127.0.0.1]:{port} ssh-ed25519 {host_key.get_base64()}")
    yield Host(name="bastion", address="127.0.0.1", port=port, user="me",
               key=str(login_key), known_hosts=str(tmp_path / "kh"))  # fmt: skip
    listener.close()
    for transport in held:
        transport.close()


def test_a_second_factor_is_asked_for_and_not_kept(bastion: Host, person: Person) -> None:
    person.answers["code"] = "123456"
    for _ in range(2):
        connect(bastion, ask=True).close()
    assert len(person.asked) == 2


def test_a_wrong_second_factor_is_auth_failed(bastion: Host, person: Person) -> None:
    with pytest.raises(FleetError) as caught:
        connect(bastion, ask=True)
    assert caught.value.reference == "auth-failed"


def test_without_leave_to_ask_a_second_factor_is_named(bastion: Host, person: Person) -> None:
    error = failure(bastion)
    assert error.reference == "auth-failed"
    assert "keyboard-interactive" in error.hint
    assert person.asked == []


def test_threads_with_one_question_share_the_answer(person: Person) -> None:
    person.answers["?"] = "yes"
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: prompts.secret(("t",), "?", Deadline(1)), range(8)))
    assert answers == ["yes"] * 8
    assert person.asked == ["?"]


def test_a_server_s_question_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in prompts.visible("One-time \x1b[31mcode\r\n: ")


def test_the_answer_s_time_does_not_count(monkeypatch: pytest.MonkeyPatch, person: Person) -> None:
    deadline = Deadline(0.2)
    monkeypatch.setattr(prompts, "_ask", lambda *_: threading.Event().wait(0.3) and None)
    prompts.secret(("slow",), "?", deadline)
    assert not deadline.over()


def test_the_environment_of_the_tests_is_their_own() -> None:
    assert "pytest" in os.environ["HOME"]
