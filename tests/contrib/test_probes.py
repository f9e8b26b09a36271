"""The probes of the example applications: ready while a majority could grant a lock, alive all the while."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import httpx
import pytest

from aioredlock_ng._settings.options import DEFAULT_QUARANTINE, QUARANTINE_VARIABLE
from aioredlock_ng.testing import LocalNodes
from aioredlock_ng.testing.local_nodes import initialise
from tests.contrib.web import web_server

PATIENCE = 30.0
"""Seconds for a manager to notice what has become of its nodes; a heartbeat takes half a second."""

PYTHON = (sys.executable, "-W", "error")
EXAMPLES = {
    "fastapi": ("env", "PORT={port}", *PYTHON, "examples/fastapi_app.py"),
    "aiohttp": (*PYTHON, "examples/aiohttp_app.py", "{port}"),
}


def ready(client: httpx.Client, when: Callable[[httpx.Response], bool]) -> httpx.Response:
    """Ask whether it is ready until the answer is as wanted; whatever it is, the application is alive."""
    deadline = time.monotonic() + PATIENCE
    while not when(answer := client.get("/readyz")):
        assert answer.status_code in (200, 503), answer.text
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.02)
    assert (client.get("/livez").status_code, client.get("/livez").json()) == (200, {"status": "alive"})
    return answer


@pytest.mark.parametrize("framework", ["fastapi", pytest.param("aiohttp", marks=pytest.mark.process)])
def test_readiness_follows_the_nodes(
    framework: str, nodes3: LocalNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ready without a majority, and why; in a quarantine, and how long yet; ready when that is over."""
    monkeypatch.delenv(QUARANTINE_VARIABLE)  # as users have it
    with (
        web_server(*EXAMPLES[framework], env={"REDLOCK_URLS": ",".join(nodes3.urls)}) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        assert ready(client, lambda answer: answer.status_code == 200).json() == {"status": "ready"}

        nodes3.kill(0)
        nodes3.kill(1)
        down = ready(client, lambda answer: "down" in answer.text and nodes3.urls[1] in answer.text)
        assert (down.status_code, down.headers["Retry-After"]) == (503, "5")
        assert f"{nodes3.urls[0]} is down: " in down.json()["detail"]
        assert nodes3.urls[2] not in down.json()["detail"]

        nodes3.start()  # they have forgotten everything
        waiting = ready(client, lambda answer: int(answer.headers.get("Retry-After", 0)) > 5)
        assert waiting.status_code == 503
        assert int(waiting.headers["Retry-After"]) <= DEFAULT_QUARANTINE * 1.01 + 1
        assert "is quarantined: restart quarantine: no vote for another " in waiting.json()["detail"]

        initialise(nodes3.urls)
        ready(client, lambda answer: answer.status_code == 200)
        server.stop()
        assert "Traceback" not in server.output
