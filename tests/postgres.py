"""A PostgreSQL server for tests: a process of our own that ends with us, in a folder of its own.

It takes connections on a Unix socket only.  Where no server is installed tests are skipped, and fail when
``REDLOCK_REQUIRE`` names ``postgres``.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.servers import required

# Seconds until it takes connections; it needs about one, with the making of the folder.
START_TIMEOUT: Final = 30.0

DEBIAN: Final = Path("/usr/lib/postgresql")  # where Debian keeps the programs, by version and off PATH

_INITDB: Final = ("--no-sync", "--auth=trust", "--username=test", "--encoding=UTF8", "--no-locale")
_POSTGRES: Final = ("-F", "-c", "listen_addresses=")  # no fsync, no TCP

# Runs a command until standard input closes, as it does when this process ends, however that comes about.
_END_WITH_US: Final = '"$@" & read -r _; kill -INT $!; wait $!'


def find_programs() -> Path | None:
    """Return the folder of `initdb` and `postgres`: PATH's, else the newest of Debian's."""
    on_path = [Path(found).parent] if (found := shutil.which("initdb")) else []
    debians = sorted(DEBIAN.glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True)
    for folder in (*on_path, *debians):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return None


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server with an empty database; yield its DSN."""
    programs = find_programs()
    if programs is None:
        give_up = pytest.fail if "postgres" in required() else pytest.skip
        give_up("postgres: neither on PATH nor where Debian keeps it")
    with tempfile.TemporaryDirectory(prefix="aioredlock-pg-", ignore_cleanup_errors=True) as folder:
        user = _harmless_user(folder)
        _run([programs / "initdb", *_INITDB, f"{folder}/data"], folder, user)
        with _running(
            [programs / "postgres", *_POSTGRES, "-D", f"{folder}/data", "-k", folder], folder, user
        ) as log:
            dsn = f"host={folder} user=test dbname=postgres"
            _wait_until_ready(dsn, log)
            yield dsn


def _harmless_user(folder: str) -> dict[str, Any]:
    """Return what makes a child process run as another user if we are root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    account = accounts.get("postgres") or accounts["nobody"]
    os.chown(folder, account.pw_uid, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _run(command: list[Any], folder: str, user: dict[str, Any]) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=START_TIMEOUT, check=False, **user
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def _running(command: list[Any], folder: str, user: dict[str, Any]) -> Iterator[Path]:
    log = Path(folder, "log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _END_WITH_US, "sh", *command],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the tests, which then end it
            **user,
        )
    try:
        yield log
    finally:
        process.communicate()  # closes its input


def _wait_until_ready(dsn: str, log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        else:
            return
