"""A person's own judgement of a trial that serves: wrong output, slow answers."""

from __future__ import annotations

import os
import subprocess

from fleetctl.bisect.model import Outcome
from fleetctl.trials.classify import Judged
from fleetctl.trials.host import TrialHost

SKIP = 125
SECONDS = 1800.0


def checked(command: str, host: TrialHost) -> Judged:
    """Run ``--check`` here against the trial: status 0 is good, 125 skips, anything else is bad.

    It is told HOST, ADDRESS, PORT and SERVICE, as the drain commands are, and URL, all of the trial.
    """
    service = host.trial.service
    address = host.target.host.address
    env = os.environ | {
        "HOST": host.name,
        "ADDRESS": address,
        "PORT": str(service.port),
        "SERVICE": service.name,
        "URL": f"http://{address}:{service.port}",
    }
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command], env=env, capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Judged(Outcome.INVALID, "serving", note=f"the check gave no end in {SECONDS:g} s")
    if done.returncode == 0:
        return Judged(Outcome.PASS, "serving")
    if done.returncode == SKIP:
        return Judged(Outcome.INVALID, "serving", note="the check said skip")
    said = (done.stdout or done.stderr).strip().splitlines()
    note = said[-1][:200] if said else f"status {done.returncode}"
    return Judged(Outcome.SAME, "serving", "the check fails", "check", "check", note)
