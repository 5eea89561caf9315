"""Patches under a real systemd: what a unit sees, what its neighbour sees, and the way back.

The service is a stand-in with a package called sglang; the real one is in test_patch_loop.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from fleetctl.errors import RemoteError
from fleetctl.lab.box import Box
from fleetctl.model.fleet import Service, Target
from fleetctl.patching import catalog, hosts
from fleetctl.patching.hosts import Link, Wish
from fleetctl.patching.model import AtExpiry, Patch, Rung

FILE = "/opt/mini/sglang/srt/copying.py"
SETUP = r"""
mkdir -p /opt/mini/sglang/srt /opt/mini/sglang-0.5.12.post1.dist-info
touch /opt/mini/sglang/__init__.py /opt/mini/sglang/srt/__init__.py
printf 'Name: sglang\nVersion: 0.5.12.post1\n' > /opt/mini/sglang-0.5.12.post1.dist-info/METADATA
echo sglang > /opt/mini/sglang-0.5.12.post1.dist-info/RECORD
cat > /opt/mini/sglang/srt/copying.py <<'END'
def _grouped_foreach_copy_(dsts, srcs):
    return len(srcs)
END
cat > /opt/mini/serve.py <<'END'
import time
from sglang.srt.copying import _grouped_foreach_copy_
print("copied", _grouped_foreach_copy_([1, 2], [1, None]), flush=True)
time.sleep(86400)
END
for service in main other; do
cat > /etc/systemd/system/sglang-$service.service <<'END'
[Service]
Environment=PYTHONPATH=/opt/mini
ExecStart=@/usr/bin/python3 sglang::scheduler_TP0 -m serve
END
done
systemctl daemon-reload
systemctl start sglang-main sglang-other
"""


class Host:
    def __init__(self, box: Box) -> None:
        self.box = box
        self.link = self.service("main")
        self.patch: Patch = catalog.find("none-in-foreach-copy", None)

    def service(self, name: str) -> Link:
        return hosts.link(Target(self.box.target(), Service(name)))

    def push(self, patch: Patch | None = None, *, restart: bool = True, **options: object) -> None:
        wish = Wish("test", restart=restart)
        hosts.push(self.link.call, self.link.target, patch or self.patch, wish, **options)  # type: ignore[arg-type]

    def revert(self, restart: bool = True) -> None:
        hosts.revert(self.link.call, self.link.target, [], Wish("test", restart=restart))

    def state(self, name: str = "main") -> str:
        """Return the state once the rank has loaded the module, or after 10 s."""
        end = time.monotonic() + 10
        with self.service(name) as link:
            while True:
                found = hosts.status(link.call, link.target)
                state = ",".join(f"{p['name']} {p['state']}" for p in found)
                if "applied" not in state or time.monotonic() > end:
                    return state

    def said(self, name: str = "main") -> str:
        show = f"systemctl show sglang-{name} -p InvocationID --value"
        self.box.console("sleep 0.3; journalctl --sync")
        return self.box.console(f"journalctl -o cat _SYSTEMD_INVOCATION_ID=$({show})")

    def sees(self, name: str = "main") -> str:
        """Return the hash of the file as the service's process sees it."""
        pid = f"$(systemctl show sglang-{name} -p MainPID --value)"
        return self.box.console(f"sha256sum /proc/{pid}/root{FILE}").split()[0]

    def sha(self, path: str = FILE) -> str:
        return self.box.console(f"sha256sum {path}").split()[0]


@pytest.fixture(scope="module")
def shared(lab_name: str) -> Box:
    from tests.lab.conftest import start

    return start("patch-units=bare")


@pytest.fixture
def host(shared: Box) -> Iterator[Host]:
    shared.clean()
    shared.console("umount /var/lib/fleetctl 2>/dev/null; rm -rf /opt/mini; true")
    shared.console(SETUP)
    found = Host(shared)
    yield found
    found.link.close()
    shared.clean()


def test_an_overlay_is_for_one_unit_and_leaves_the_file_alone(host: Host) -> None:
    original = host.sha()
    host.push()
    assert host.state() == "none-in-foreach-copy active"
    assert '"message": "pair 1 of 2, src None' in host.said()
    assert host.sees() != original
    assert host.sha() == original
    assert host.sees("other") == original
    host.box.console("systemctl restart sglang-other")
    assert host.sees("other") == original
    assert "fleetctl-patch" not in host.said("other")
    host.revert()
    assert host.sees() == original
    assert "fleetctl-patch" not in host.said()
    assert "Drop-In" not in host.box.console("systemctl status sglang-main || true")


def test_a_process_keeps_what_it_loaded_until_a_restart(host: Host) -> None:
    host.push(restart=False)
    found = hosts.status(host.link.call, host.link.target)
    assert found[0]["state"] == "applied-not-active"
    assert "TP0" in found[0]["why_state"]
    assert "before the push" in found[0]["why_state"]
    host.box.console("systemctl restart sglang-main")
    assert host.state() == "none-in-foreach-copy active"


@pytest.mark.parametrize("mode", ["TIMESTAMP", "CHECKED_HASH", "UNCHECKED_HASH"])
@pytest.mark.parametrize("rung", [Rung.OVERLAY, Rung.EDIT])
def test_cached_bytecode_never_hides_the_patch_nor_outlives_it(
    host: Host, mode: str, rung: Rung
) -> None:
    program = f"import py_compile as p; print(p.compile('{FILE}', invalidation_mode=p.PycInvalidationMode.{mode}))"
    cached = host.box.console(f'python3 -c "{program}"').strip()
    before = host.sha(cached)
    if rung is Rung.EDIT:
        host.box.console("systemctl stop sglang-other; rm /etc/systemd/system/sglang-other.service")
        host.box.console("systemctl daemon-reload")
    host.push(rung=rung)
    assert host.state() == "none-in-foreach-copy active"
    if rung is Rung.OVERLAY:
        assert host.sha(cached) == before, "the shared bytecode was not written to"
    host.revert()
    assert "fleetctl-patch" not in host.said()
    assert "copied 2" in host.said()


def test_an_edit_is_refused_while_the_neighbour_uses_the_same_python(host: Host) -> None:
    with pytest.raises(RemoteError) as caught:
        host.push(rung=Rung.EDIT)
    assert caught.value.reference == "edit-refused"
    assert "sglang-other.service" in caught.value.message


def test_variables_reach_every_process(host: Host) -> None:
    host.push(catalog.find("kernel-api-log", None))
    assert host.state() == "kernel-api-log active"
    env = host.box.console("cat /proc/$(systemctl show sglang-main -p MainPID --value)/environ")
    assert "SGLANG_KERNEL_API_LOGLEVEL=3" in env.split("\0")


def test_the_timer_takes_an_expired_patch_out(host: Host) -> None:
    host.push(expire=3.0, at_expiry=AtExpiry.REVERT)
    assert host.state() == "none-in-foreach-copy active"
    end = time.monotonic() + 30
    while host.state() and time.monotonic() < end:
        time.sleep(0.5)
    assert host.state() == ""
    last = hosts.history(host.link.call, host.link.target)[-1]
    assert (last["event"], last["by"]) == ("revert", "fleetctl timer")
    host.box.console("systemctl restart sglang-main")
    assert "fleetctl-patch" not in host.said()
    assert "fleetctl-patches" not in host.box.console("systemctl list-timers --all")


def test_a_full_disk_changes_nothing(host: Host) -> None:
    original = host.sha()
    host.box.console(
        "mkdir -p /var/lib/fleetctl && mount -t tmpfs -o size=8k tmpfs /var/lib/fleetctl"
    )
    try:
        with pytest.raises(RemoteError) as caught:
            host.push()
        assert caught.value.reference == "disk-full"
    finally:
        host.box.console("umount /var/lib/fleetctl")
    assert host.sha() == original
    assert host.state() == ""
    assert (
        host.box.console("ls /etc/systemd/system/sglang-main.service.d 2>/dev/null || true") == ""
    )
    host.push()
    assert host.state() == "none-in-foreach-copy active"


def test_a_package_upgraded_under_an_overlay_is_told(host: Host) -> None:
    host.push()
    host.box.console(f"printf 'def _grouped_foreach_copy_(dsts, srcs):\\n    return 7\\n' > {FILE}")
    assert host.state() == "none-in-foreach-copy orphaned"
    host.box.console("systemctl restart sglang-main")
    assert "copied 7" in host.said(), "no old file is laid over a new package"
    look = host.box.console("journalctl -o cat -u fleetctl-overlay-main -n 20")
    assert "(orphaned): none-in-foreach-copy" in look
    assert host.state() == "none-in-foreach-copy orphaned"
    host.push(restart=True)
    assert host.state() == "none-in-foreach-copy active", (
        "pushed again, it is made from the new one"
    )
    assert '"message": "pair 1 of 2, src None' in host.said()
    host.revert()
    assert "copied 7" in host.said()


def test_a_file_that_an_upgrade_took_away_is_not_put_there_by_systemd(host: Host) -> None:
    host.push()
    new = "/opt/mini/sglang/srt/moved.py"
    host.box.console(
        f"mv {FILE} {new}; sed -i 's/srt.copying/srt.moved/' /opt/mini/serve.py; "
        "systemctl restart sglang-main"
    )
    assert "copied 2" in host.said()
    assert host.box.console(f"ls {FILE} 2>/dev/null || true") == ""
    assert host.state() == "none-in-foreach-copy orphaned"
    host.push(restart=True)
    assert host.state() == "none-in-foreach-copy active"
    host.revert()
    assert host.box.console("ls /etc/systemd/system | grep fleetctl- || true") == ""


def test_two_people_at_once(host: Host) -> None:
    import threading

    ends: list[object] = []

    def go(name: str) -> None:
        with host.service("main") as link:
            try:
                ends.append(
                    hosts.push(link.call, link.target, catalog.find(name, None), Wish(name))
                )
            except RemoteError as error:
                ends.append(error.reference)

    names = ("none-in-foreach-copy", "kernel-api-log")
    threads = [threading.Thread(target=go, args=(n,)) for n in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [e for e in ends if e == "locked"]
    assert len(hosts.status(host.link.call, host.link.target)) == 2 - len(refused)
    again: Callable[[str], None] = go
    for name in names:
        again(name)
    assert len(hosts.status(host.link.call, host.link.target)) == 2
