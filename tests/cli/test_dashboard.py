"""``aioredlock-ng dashboard``: options that it refuses, and that it serves until a signal."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cli.runs import Cli
from tests.environments.interpreters import ROOT
from tests.servers import Nodes

DASHBOARD = (sys.executable, "-m", "aioredlock_ng", "dashboard")
NODES = "redis://127.0.0.1:1"
MAX_CONNECTIONS = 256
IDLE_TIME = 15.0
TOKEN = "correct horse battery staple"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """Write a token that its owner alone can read."""
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def running(urls: Sequence[str], *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start it on a free port; gives where it says that it serves."""
    command = [*DASHBOARD, "--nodes", ",".join(urls), "--bind", "127.0.0.1:0", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def get(url: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    """Ask for a page."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:  # noqa: S310
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def post(url: str, body: dict[str, str]) -> int:
    """Send what the page would, and return the status."""
    return get(url, json.dumps(body).encode(), **{"Content-Type": "application/json"})[0]


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_it_serves_until_a_signal(number: signal.Signals, code: int, shared_nodes: Nodes) -> None:
    """It says where, answers by names of this machine alone, and ends with a stream open."""
    with running(shared_nodes.urls) as (process, url):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        assert b"<!doctype html>" in get(url)[1]
        assert json.loads(get(f"{url}session")[1])["needs_token"] is False
        assert get(url, Host="evil.example")[0] == 421
        with urllib.request.urlopen(f"{url}events") as stream:  # noqa: S310
            assert stream.readline() == b"event: state\n"
            process.send_signal(number)
            assert process.wait(60) == code
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.process
def test_half_sent_requests_neither_stay_nor_fill_the_log(shared_nodes: Nodes) -> None:
    """Connections beyond the limit are closed at once, the others after a while; then it serves again."""
    with running(shared_nodes.urls) as (process, url), contextlib.ExitStack() as stack:
        port = int(url.rstrip("/").rpartition(":")[2])
        began, ended = time.monotonic(), []
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(MAX_CONNECTIONS + 100)
        ]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for connection in reversed(connections):  # the last ones had no room
            connection.settimeout(IDLE_TIME + 60)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
            ended.append(time.monotonic() - began)
        assert sum(seconds < IDLE_TIME for seconds in ended) == 100
        assert b"<!doctype html>" in get(url)[1]
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
    (line,) = log.splitlines()
    full = f"WARNING dashboard: {MAX_CONNECTIONS} connections are open; further ones are closed at once"
    assert full in line


@pytest.mark.process
def test_on_every_address_it_asks_for_a_token(token_file: Path, shared_nodes: Nodes) -> None:
    """It is known by the machine's name, and an answer without the page is as safe as the page.

    Wrong tokens are logged without their text.
    """
    arguments = ["--bind", "0.0.0.0:0", "--token-file", str(token_file), "--allow-release"]
    with running(shared_nodes.urls, *arguments) as (process, url):
        assert url.startswith(f"http://{socket.gethostname()}:")
        port = url.rstrip("/").rpartition(":")[2]
        page = f"http://127.0.0.1:{port}/"
        assert get(page, Host=f"{socket.gethostname()}:{port}")[0] == 200
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{page}no/such/page")  # noqa: S310
        with caught.value as error:
            assert (error.code, error.headers["X-Frame-Options"]) == (404, "DENY")
        session = {"signed_in": False, "needs_token": True, "may_release": True}
        assert json.loads(get(f"{page}session")[1]) == session
        assert post(f"{page}sign-in", {"token": "wrong token, a long one"}) == 401
        assert post(f"{page}sign-in", {"token": TOKEN}) == 204
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
    assert "WARNING dashboard: a wrong token from 127.0.0.1" in log
    assert TOKEN not in log
    assert "a long one" not in log


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"correct horse battery staple", 0o640, "others can read"),
        (b"correct horse battery staple", 0o604, "chmod 600"),
        (b"short", 0o600, "a token needs at least 16 characters, got 5"),
        (b"", 0o600, "got 0"),
        (b"two lines\nof a long file", 0o600, "not one line of text"),
        (b"x" * 5000, 0o600, "not one line of text"),
        (b"\xe4" * 24, 0o600, "not one line of text"),
    ],
)
def test_a_bad_token_is_refused(content: bytes, mode: int, why: str, tmp_path: Path, cli: Cli) -> None:
    """Without telling what it is."""
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(mode)
    code, _, said = cli("dashboard", "--nodes", NODES, "--token-file", str(path))
    assert (code, why in said) == (2, True)
    assert not content or content.decode(errors="replace") not in said.replace(str(path), "")


def test_a_port_that_is_taken_is_a_usage_error(cli: Cli) -> None:
    """And no traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = cli("dashboard", "--nodes", NODES, "--bind", f"127.0.0.1:{port}")
    assert (code, f"cannot listen on 127.0.0.1:{port}" in err) == (2, True)


@pytest.mark.process
def test_without_aiohttp_it_says_what_to_install() -> None:
    """It is an extra."""
    code = (
        "import sys; sys.modules['aiohttp'] = None; from aioredlock_ng.__main__ import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "dashboard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "dashboard needs aiohttp: pip install 'aioredlock_ng[dashboard]'" in done.stderr
