"""Real Celery workers whose tasks share a lock, or may not; `tests/recipes` runs the default pool."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.behaviour.tools import keys
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask, required, until

TASKS = """
import os, redis
from celery import Celery
from aioredlock_ng.sync import SyncLockManager

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.broker_connection_retry_on_startup = True
store = redis.Redis.from_url(os.environ["BROKER"])
made = {}

def manager():
    if os.getpid() not in made:  # one for each process, after the fork
        made[os.getpid()] = SyncLockManager.from_env()
    return made[os.getpid()]

@app.task(soft_time_limit=60)
def add():
    with manager().lock("total", ttl=5, blocking_timeout=40) as lease:
        seen = int(store.get("total") or 0)
        lease.check()
        store.set("total", seen + 1)
        return lease.fence
"""

JOBS = 12


def skip_unless_there_are_workers() -> None:
    """Skip the test, or fail it where ``REDLOCK_REQUIRE`` names ``workers``."""
    missing = [name for name in ("celery", "gevent") if importlib.util.find_spec(name) is None]
    if missing and "workers" in required():
        pytest.fail(f"no {', '.join(missing)} (REDLOCK_REQUIRE names workers)", pytrace=False)
    if missing:
        pytest.skip(f"no {', '.join(missing)}: pip install --group workers")


@pytest.mark.process
@pytest.mark.timeout(180)
@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_tasks_take_turns(shared_nodes: Nodes, pool: str, tmp_path: Path) -> None:
    """No addition is lost and no lease is left; gevent's patches are refused by each task, in words."""
    skip_unless_there_are_workers()
    (tmp_path / "tasks.py").write_text(TASKS)
    variables = os.environ | {
        "BROKER": shared_nodes.urls[0] + "/3",
        "REDLOCK_URLS": ",".join(shared_nodes.urls),
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
    }
    send = f"import json, tasks; jobs = [tasks.add.delay() for _ in range({JOBS})]"
    send += "; print(json.dumps([str(job.get(timeout=60, propagate=False)) for job in jobs]))"
    options = f"-m celery -A tasks worker -P {pool} -c 4 -l warning"
    command = [sys.executable, *options.split()]
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=log, stderr=log)
        try:
            sent = subprocess.run(
                [sys.executable, "-c", send],
                cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
        finally:
            worker.terminate()
            worker.wait(60)
    log_text = (tmp_path / "log").read_text()
    assert sent.returncode == 0, sent.stderr + log_text
    total = int(ask(shared_nodes.urls[0] + "/3", "GET", "total") or 0)
    if pool == "gevent":
        assert total == 0
        assert sent.stdout.count("gevent has patched them") == JOBS, sent.stdout + log_text
    else:
        assert total == JOBS, log_text
        assert len(set(sent.stdout.split(","))) == JOBS, "each had a fence of its own"
    until(lambda: keys(shared_nodes.urls) == {}, "no lease is left")
