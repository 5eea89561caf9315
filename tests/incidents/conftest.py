"""The store under test: SQLite always, PostgreSQL where its server programs are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.incidents.store import Store, open_store

POSTGRES = next(
    (p for p in (*Path("/usr/lib/postgresql").glob("*/bin"), Path("/usr/local/bin")) if (p / "initdb").exists()), None
)  # fmt: skip


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a real PostgreSQL on a socket of its own and return its URL."""
    if POSTGRES is None:
        pytest.skip("PostgreSQL's server programs are not installed (apt-get install postgresql)")
    base = Path("/tmp") / f"fleetctl-pg-{os.getpid()}"
    base.mkdir(mode=0o777)
    owner: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(base, "nobody")
        owner = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]

    def run(*argv: str) -> None:
        command = [*owner, *argv]
        subprocess.run(
            command, check=True, cwd=base, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    try:
        run(
            str(POSTGRES / "initdb"),
            "-D",
            str(base / "data"),
            "-U",
            "fleetctl",
            "-A",
            "trust",
            "-N",
        )
        options = f"-k {base} -c listen_addresses= -c fsync=off"
        server = (str(POSTGRES / "pg_ctl"), "-D", str(base / "data"))
        run(*server, "-o", options, "-w", "-l", str(base / "log"), "start")
        yield f"postgresql+psycopg://fleetctl@/postgres?host={base}"
        run(*server, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    """Return an empty store of each kind."""
    if request.param == "sqlite":
        opened = open_store(tmp_path / "incidents.db")
    else:
        monkeypatch.setenv("FLEETCTL_STORE", request.getfixturevalue("postgres"))
        opened = open_store()
    yield opened
    if request.param == "postgresql":
        from fleetctl.incidents import tables

        tables.metadata.drop_all(opened._engine)
    opened.close()
