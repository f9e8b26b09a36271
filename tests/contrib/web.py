"""Web servers as child processes: the real thing, on a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import pytest
import uvicorn as uvicorn_

from aioredlock_ng.testing._server import ReservedPort
from tests.environments.interpreters import ROOT

START: Final = 60.0
"""Seconds for a server to take connections."""

STOP: Final = 10.0
"""Seconds for a server to end when it is asked to."""


@dataclass
class WebServer:
    """One child process that serves HTTP."""

    process: subprocess.Popen[bytes]
    port: int
    log: IO[bytes]

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        """Its output so far, to stdout and stderr."""
        return Path(self.log.name).read_text()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        self.process.send_signal(signal.SIGCONT)  # it may have been frozen by a test
        self.process.terminate()
        try:
            self.process.wait(STOP)
        except subprocess.TimeoutExpired:
            self.kill()


@contextlib.contextmanager
def web_server(*command: str, env: Mapping[str, str] | None = None) -> Iterator[WebServer]:
    """Run a command that serves HTTP until the end of the block.

    Args:
        command: its ``{port}`` is replaced by a free port of 127.0.0.1.
        env: variables beside those of this process.
    """
    port = ReservedPort()
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", **(env or {})}
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            [word.replace("{port}", str(port.number)) for word in command],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        server = WebServer(process, port.number, log)  # type: ignore[arg-type]
        try:
            _wait_until_it_answers(server)
            yield server
        finally:
            server.stop()
            port.release()


def uvicorn(app: str, *options: str, **more: Any) -> contextlib.AbstractContextManager[WebServer]:
    """Run uvicorn over an application, such as ``examples.fastapi_app:app``."""
    command = (sys.executable, "-m", "uvicorn", app, "--port", "{port}", "--no-access-log", *options)
    return web_server(*command, **more)


@contextlib.asynccontextmanager
async def in_process(app: Any) -> AsyncIterator[int]:
    """Serve an ASGI application by a uvicorn in this process, without its lifespan; gives the port."""
    config = uvicorn_.Config(app, port=0, log_level="critical", lifespan="off", proxy_headers=False)
    server = uvicorn_.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.001)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


def _wait_until_it_answers(server: WebServer) -> None:
    deadline = time.monotonic() + START
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
        except OSError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"no web server at port {server.port}:\n{server.output}")
            time.sleep(0.02)
        else:
            return
