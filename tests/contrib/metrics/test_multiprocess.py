"""Several workers, of which any one answers for all: a real gunicorn, with two uvicorn workers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
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
from aioredlock_ng.contrib.fastapi import locks_router
from aioredlock_ng.contrib.prometheus import PrometheusHooks

manager = LockManager.from_env(hooks=[PrometheusHooks()], holder="web")

@asynccontextmanager
async def lifespan(app):
    async with manager, manager.semaphore("workers", permits=8, ttl=5):
        yield

app = FastAPI(lifespan=lifespan)
app.include_router(locks_router(manager, token="correct horse battery staple"), prefix="/locks")

@app.middleware("http")
async def name_the_worker(request, call_next):
    response = await call_next(request)
    response.headers["X-Worker"] = str(os.getpid())
    return response

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


@contextlib.contextmanager
def two_workers(folder: Path, nodes: LocalNodes, *options: str) -> Iterator[tuple[int, Path]]:
    """Serve `APP` with two workers; gives the port and the log."""
    skip_unless_there_are_workers()
    port, log = free_port(), folder / "log"
    (folder / "app.py").write_text(APP)
    (folder / "gunicorn.conf.py").write_text(CONFIGURATION)
    (folder / "metrics").mkdir()
    variables = os.environ | {
        "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics"),
        "REDLOCK_URLS": ",".join(nodes.urls),
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", "gunicorn", "-w", "2", "-k", "uvicorn.workers.UvicornWorker"]
    command += [*options, "-b", f"127.0.0.1:{port}", "app:app"]
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=folder, env=variables, stdout=file, stderr=file)
    try:
        yield port, log
    finally:
        server.terminate()
        server.wait(60)


@pytest.mark.process
@pytest.mark.timeout(150)
@pytest.mark.parametrize("preload", [False, True], ids=["", "preload"])
def test_one_worker_answers_for_all(
    make_nodes: Callable[..., LocalNodes], tmp_path: Path, *, preload: bool
) -> None:
    """Held permits are added up, the margin is the least; a node that was killed is seen within seconds."""
    nodes = make_nodes(3)
    with two_workers(tmp_path, nodes, *(["--preload"] if preload else [])) as (port, log):

        def comes(name: str, value: float) -> None:
            deadline = time.monotonic() + PATIENCE
            while (found := read(port).get(name)) != value:
                assert time.monotonic() < deadline, (name, found, log.read_text())
                time.sleep(0.2)

        comes('redlock_held{kind="semaphore",label="workers"}', 2.0)
        comes("redlock_quorum_margin", 1.0)
        nodes.kill(0)
        comes("redlock_quorum_margin", 0.0)
        comes(f'redlock_node_up{{node="{nodes.urls[0]}"}}', 0.0)
        assert read(port)[f'redlock_node_up{{node="{nodes.urls[1]}"}}'] == 1.0


@pytest.mark.process
@pytest.mark.timeout(150)
def test_each_worker_knows_who_has_signed_in(make_nodes: Callable[..., LocalNodes], tmp_path: Path) -> None:
    """The page's token was given to one of them; whichever answers next shows the page."""
    with two_workers(tmp_path, make_nodes(3)) as (port, log):
        page, deadline = f"http://127.0.0.1:{port}/locks", time.monotonic() + PATIENCE
        while not read(port):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        body = json.dumps({"token": "correct horse battery staple"}).encode()
        headers = {"Content-Type": "application/json"}
        sign_in = urllib.request.Request(f"{page}/sign-in", body, headers)  # noqa: S310
        with urllib.request.urlopen(sign_in) as answer:  # noqa: S310
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        answered_by, tries = set(), 0
        while len(answered_by) < 2 or tries < 10:
            request = urllib.request.Request(f"{page}/session", headers={"Cookie": cookie})  # noqa: S310
            with urllib.request.urlopen(request) as answer:  # noqa: S310 (a connection of its own)
                assert json.load(answer)["signed_in"] is True
                answered_by.add(answer.headers["X-Worker"])
            tries += 1
            assert time.monotonic() < deadline, answered_by
