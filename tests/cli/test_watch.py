"""``aioredlock-ng watch``: it goes on whatever nodes do, and leaves the terminal as it was."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes
from aioredlock_ng.testing._fresh import initialise
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask

DEADLINE = 60.0
"""Seconds for something to be shown."""

WATCH = "from aioredlock_ng.__main__ import main; sys.exit(main(['watch', '--interval', '0.1']))"
WITHOUT_RICH = f"import sys; sys.modules['rich'] = None; {WATCH}"
WITH_RICH = f"import sys; {WATCH}"
HIDE, SHOW, BOLD = "\x1b[?25l", "\x1b[?25h", "\x1b[1m"


@dataclass
class Watch:
    """A running command, and what it has said."""

    process: subprocess.Popen[bytes]
    read_end: int
    output: str = ""

    def read(self) -> bool:
        """Read a little more of its output; False at its end."""
        readable, _, _ = select.select([self.read_end], [], [], DEADLINE)
        assert readable, self.output
        try:
            data = os.read(self.read_end, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # how Linux says that the terminal has no holder any more
                raise
            return False
        self.output += data.decode(errors="replace")
        return bool(data)

    def until(self, pattern: str) -> None:
        """Read until it has said something new."""
        self.output = ""
        deadline = time.monotonic() + DEADLINE
        while not re.search(pattern, self.output, re.DOTALL):
            assert time.monotonic() < deadline, self.output[-3000:]
            assert self.read(), self.output[-3000:]

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, read to the end, and return the exit code."""
        self.process.send_signal(number)
        while self.read():
            pass
        return self.process.wait(DEADLINE)


@pytest.fixture
def start() -> Iterator[Callable[..., Watch]]:
    """Return a function that starts the command over some URLs, with a pipe or a terminal."""
    with contextlib.ExitStack() as stack:

        def run(urls: list[str], code: str, *, rows: int | None = None, **environment: str) -> Watch:
            read_end, write_end = os.pipe() if rows is None else pty.openpty()
            if rows is not None:
                fcntl.ioctl(write_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
            stack.callback(os.close, read_end)
            environment = {"REDLOCK_URLS": ",".join(urls), "PYTHONPATH": str(ROOT), **environment}
            inherited = {
                name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
            }
            process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", code],
                env=inherited | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | environment,
                stdin=subprocess.DEVNULL if rows is None else write_end,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
            )
            os.close(write_end)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return Watch(process, read_end)

        yield run


def fill(nodes: Nodes, number: int) -> None:
    """Put locks of another program on all nodes."""
    for url in nodes.urls:
        ask(url, "EVAL", f"for i = 1, {number} do redis.call('SET', 'redlock:lock ' .. i, 'v') end", 0)


@pytest.mark.heavy
@pytest.mark.quick
async def test_in_a_pipe_it_shows_one_picture_after_the_other(
    shared_nodes: Nodes, start: Callable[..., Watch]
) -> None:
    """Parted by empty lines; locks come and go; Ctrl-C is the ordinary end."""
    watch = start(shared_nodes.urls, WITH_RICH)
    watch.until(r"^nodes up: .*held locks: 0\n")
    async with LockManager(shared_nodes.urls, holder="me") as manager:
        async with manager.lock("a"):
            watch.until(
                r"\n\nnodes up: 5 of 5, 2 may fail\n(  redis.*\n)+"
                r"held locks: 1\n  name .*\n  a +mutex +me .* 5/5\n\n"
            )
        watch.until(r"held locks: 0\n")
    assert watch.end() == 0
    assert "\x1b" not in watch.output
    assert "Traceback" not in watch.output


@pytest.mark.parametrize("code", [WITH_RICH, WITHOUT_RICH], ids=["rich", "plain"])
def test_nodes_that_go_and_come_back_are_shown(
    code: str, nodes3: LocalNodes, start: Callable[..., Watch]
) -> None:
    """Killed, frozen, all dead, back without memory, at work again: the picture follows."""
    fill(nodes3, 2)
    watch = start(nodes3.urls, code, rows=24)
    watch.until(r"nodes up: 3 of 3.*held locks: 2.*lock 2.*3/3")
    nodes3.kill(0)
    nodes3.pause(1)
    watch.until(r"nodes up: 1 of 3.*1 of 3 nodes answered, 2 are needed")
    nodes3.resume(1)
    watch.until(r"nodes up: 2 of 3.*lock 2.*2/3")
    nodes3.kill(1)
    nodes3.kill(2)
    watch.until(r"nodes up: 0 of 3.*held locks: 0.*0 of 3 nodes answered")
    nodes3.start()
    watch.until(
        r"nodes up: 0 of 3(.*quarantined .*no sentinel){3}.*held locks: 0\b.*the first lock can be acquired"
    )
    initialise(nodes3.urls)
    watch.until(r"nodes up: 3 of 3.*held locks: 0\b")
    assert watch.end() == 0
    assert watch.output.rindex(SHOW) > watch.output.rfind(HIDE)


@pytest.mark.parametrize("code", [WITH_RICH, WITHOUT_RICH], ids=["rich", "plain"])
@pytest.mark.parametrize(("number", "code_wanted"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_cursor_comes_back(
    number: signal.Signals, code_wanted: int, code: str, shared_nodes: Nodes, start: Callable[..., Watch]
) -> None:
    """It is hidden while pictures are drawn, which rich makes bold, and shown again however it is ended."""
    watch = start(shared_nodes.urls, code, rows=24)
    watch.until(re.escape(HIDE) + r".*nodes up: 5 of 5")
    assert (BOLD in watch.output) is (code is WITH_RICH)
    assert watch.end(number) == code_wanted
    assert watch.output.rindex(SHOW) > watch.output.rfind(HIDE)
    assert "Traceback" not in watch.output
    assert watch.output.endswith("\n") or watch.output.endswith(SHOW)


@pytest.mark.parametrize("code", [WITH_RICH, WITHOUT_RICH], ids=["rich", "plain"])
def test_a_picture_is_never_higher_than_the_terminal(
    code: str, shared_nodes: Nodes, start: Callable[..., Watch]
) -> None:
    """What does not fit is counted; names that are too long are cut, and harmless."""
    fill(shared_nodes, 45)
    for url in shared_nodes.urls:
        ask(url, "SET", "redlock:" + "a" * 500, "v")
        ask(url, "SET", b"redlock:a\x1b[2J\nevil", "v")
    watch = start(shared_nodes.urls, code, rows=15)
    watch.until(r"nodes up: 5 of 5.*… and \d+ more.*nodes up")
    pictures = re.split(r"(?=nodes up: )", watch.output)[1:-1]
    for picture in pictures:
        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", picture).replace("\r", "").strip("\n").split("\n")
        assert len(lines) <= 15, lines
        assert max(map(len, lines)) <= 80
        (more,) = [int(number) for line in lines for number in re.findall(r"… and (\d+) more", line)]
        assert more + sum("5/5" in line for line in lines) == 47
    assert "\x1b[2J\nevil" not in watch.output
    assert r"'a\x1b[2J\nevil'" in watch.output
    assert "aaaa…" in watch.output
    assert watch.end() == 0


def test_a_terminal_that_cannot_draw_gets_pictures_below_each_other(
    shared_nodes: Nodes, start: Callable[..., Watch]
) -> None:
    """TERM=dumb: no control sequences at all."""
    watch = start(shared_nodes.urls, WITH_RICH, rows=24, TERM="dumb")
    watch.until(r"nodes up: 5 of 5.*\r\n\r\nnodes up: 5 of 5")
    assert watch.end() == 0
    assert "\x1b" not in watch.output


def test_one_server_twice_is_shown_and_watched_on(nodes3: LocalNodes, start: Callable[..., Watch]) -> None:
    """It may be another one tomorrow: a restart of the node list's owner is not needed to see that."""
    urls = [nodes3.urls[0], nodes3.urls[0].replace("127.0.0.1", "localhost"), nodes3.urls[1]]
    watch = start(urls, WITH_RICH)
    watch.until(r"nodes up: 3 of 3.*are one server.*nodes up: 3 of 3.*are one server")
    assert watch.end() == 0
