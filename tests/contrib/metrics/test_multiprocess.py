"""Several workers, of which any one answers for all: a real gunicorn, with two uvicorn workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.behaviour.test_sync_workers import skip_unless_there_are_workers
from tests.behaviour.tools import PATIENCE
from tests.environments.interpreters import ROOT
from tests.servers import free_port

APP = """
import os
from contextlib import asynccontextmanager
from fastapi import FastAPI, Response
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from aioredlock_ng import LockManager
from aioredlock_ng.contrib.prometheus import PrometheusHooks

manager = LockManager.from_env(hooks=[PrometheusHooks()], holder="web")

@asynccontextmanager
async def lifespan(app):
    async with manager, manager.semaphore("workers", permits=8, ttl=5):
        yield

app = FastAPI(lifespan=lifespan)
@app.get("/metrics")
async def metrics():
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    return Response(generate_latest(registry))
"""

CONFIGURATION = """
from prometheus_client import multiprocess

def child_exit(server, worker):
    multiprocess.mark_process_dead(worker.pid)
"""


def read(port: int) -> dict[str, float]:
    """Return what a scrape finds; nothing while no worker answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


@pytest.mark.process
@pytest.mark.timeout(150)
@pytest.mark.parametrize("preload", [False, True], ids=["", "preload"])
def test_one_worker_answers_for_all(
    make_nodes: Callable[..., LocalNodes], tmp_path: Path, *, preload: bool
) -> None:
    """Held permits are added up, the margin is the least; a node that was killed is seen within seconds."""
    skip_unless_there_are_workers()
    nodes, port, log = make_nodes(3), free_port(), tmp_path / "log"
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "gunicorn.conf.py").write_text(CONFIGURATION)
    (tmp_path / "metrics").mkdir()
    variables = os.environ | {
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics"),
        "REDLOCK_URLS": ",".join(nodes.urls),
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", "gunicorn", "-w", "2", "-k", "uvicorn.workers.UvicornWorker"]
    command += [*(["--preload"] if preload else []), "-b", f"127.0.0.1:{port}", "app:app"]

    def comes(name: str, value: float) -> None:
        deadline = time.monotonic() + PATIENCE
        while (found := read(port).get(name)) != value:
            assert time.monotonic() < deadline, (name, found, log.read_text())
            time.sleep(0.2)

    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=file, stderr=file)
    try:
        comes('redlock_held{kind="semaphore",label="workers"}', 2.0)
        comes("redlock_quorum_margin", 1.0)
        nodes.kill(0)
        comes("redlock_quorum_margin", 0.0)
        comes(f'redlock_node_up{{node="{nodes.urls[0]}"}}', 0.0)
        assert read(port)[f'redlock_node_up{{node="{nodes.urls[1]}"}}'] == 1.0
    finally:
        server.terminate()
        server.wait(60)
