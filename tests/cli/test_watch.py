"""``aioredlock-ng watch``: it goes on whatever nodes do, and leaves the terminal as it was."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from aioredlock_ng.testing import LocalNodes
from aioredlock_ng.testing.local_nodes import initialise
from tests.cli.shown import Shown, showing
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask

WATCH = "from aioredlock_ng.__main__ import main; sys.exit(main(['watch', '--interval', '0.1']))"
WITHOUT_RICH = f"import sys; sys.modules['rich'] = None; {WATCH}"
WITH_RICH = f"import sys; {WATCH}"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def start() -> Iterator[Callable[..., Shown]]:
    """Return a function that starts the command over some URLs, with a pipe or a terminal."""
    with contextlib.ExitStack() as stack:

        def run(urls: list[str], code: str, *, rows: int | None = None, **environment: str) -> Shown:
            environment = {"REDLOCK_URLS": ",".join(urls), "PYTHONPATH": str(ROOT), **environment}
            command = [sys.executable, "-W", "error", "-c", code]
            return stack.enter_context(showing(command, environment, rows=rows))

        yield run


def then(watch: Shown, pattern: str) -> None:
    """Read until it has said something new."""
    watch.output = ""
    watch.until(pattern)


def fill(nodes: Nodes, number: int) -> None:
    """Put locks of another program on all nodes."""
    for url in nodes.urls:
        ask(url, "EVAL", f"for i = 1, {number} do redis.call('SET', 'redlock:lock ' .. i, 'v') end", 0)


def test_nodes_that_go_and_come_back_are_shown(nodes3: LocalNodes, start: Callable[..., Shown]) -> None:
    """Killed, frozen, all dead, back without memory, at work again: the picture follows."""
    fill(nodes3, 2)
    watch = start(nodes3.urls, WITH_RICH, rows=24)
    then(watch, r"nodes up: 3 of 3.*held locks: 2.*lock 2.*3/3")
    nodes3.kill(0)
    nodes3.pause(1)
    then(watch, r"nodes up: 1 of 3.*1 of 3 nodes answered, 2 are needed")
    nodes3.resume(1)
    then(watch, r"nodes up: 2 of 3.*lock 2.*2/3")
    nodes3.kill(1)
    nodes3.kill(2)
    then(watch, r"nodes up: 0 of 3.*held locks: 0.*0 of 3 nodes answered")
    nodes3.start()
    then(
        watch,
        r"nodes up: 0 of 3(.*quarantined.*no incarn){3}.*held locks: 0\b.*the first lock can be acquired",
    )
    initialise(nodes3.urls)
    then(watch, r"nodes up: 3 of 3.*held locks: 0\b")
    assert watch.finish(signal.SIGINT) == 0
    assert watch.output.rindex(SHOW) > watch.output.rfind(HIDE)


def test_the_cursor_comes_back(shared_nodes: Nodes, start: Callable[..., Shown]) -> None:
    """It is hidden while pictures are drawn, and shown again though the command is terminated."""
    watch = start(shared_nodes.urls, WITH_RICH, rows=24)
    then(watch, re.escape(HIDE) + r".*nodes up: 5 of 5")
    assert watch.finish(signal.SIGTERM) == 143
    assert watch.output.rindex(SHOW) > watch.output.rfind(HIDE)
    assert "Traceback" not in watch.output


def test_a_picture_is_never_higher_than_the_terminal(
    shared_nodes: Nodes, start: Callable[..., Shown]
) -> None:
    """Locks that do not fit are counted; names that are too long are cut, and harmless."""
    fill(shared_nodes, 45)
    for url in shared_nodes.urls:
        ask(url, "SET", "redlock:" + "a" * 500, "v")
        ask(url, "SET", b"redlock:a\x1b[2J\nevil", "v")
    watch = start(shared_nodes.urls, WITH_RICH, rows=15)
    then(watch, r"nodes up: 5 of 5.*… and \d+ more.*nodes up")
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
    assert watch.finish(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("code", "rows", "terminal"),
    [(WITH_RICH, None, "xterm"), (WITH_RICH, 24, "dumb"), (WITHOUT_RICH, 24, "xterm")],
    ids=["pipe", "dumb terminal", "without rich"],
)
def test_elsewhere_pictures_are_below_each_other(
    code: str, rows: int | None, terminal: str, shared_nodes: Nodes, start: Callable[..., Shown]
) -> None:
    """In a pipe, without rich, on a terminal that cannot draw: no control sequences; locks come and go."""
    watch = start(shared_nodes.urls, code, rows=rows, TERM=terminal)
    then(watch, r"held locks: 0\r?\n\r?\nnodes up: 5 of 5")
    fill(shared_nodes, 1)
    then(watch, r"held locks: 1\r?\nname\t.*\nlock 1\t.*\t5/5\r?\n\r?\n")
    assert watch.finish(signal.SIGINT) == 0
    assert "\x1b" not in watch.output


def test_one_server_twice_is_shown_and_watched_on(nodes3: LocalNodes, start: Callable[..., Shown]) -> None:
    """It may be another one tomorrow: a restart of the node list's owner is not needed to see that."""
    urls = [nodes3.urls[0], nodes3.urls[0].replace("127.0.0.1", "localhost"), nodes3.urls[1]]
    watch = start(urls, WITH_RICH)
    then(watch, r"nodes up: 3 of 3.*are the same server.*nodes up: 3 of 3.*are the same server")
    assert watch.finish(signal.SIGINT) == 0
