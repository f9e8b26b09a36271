"""``aioredlock-ng release``: it shows what it would delete, asks, and deletes that and nothing else."""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import LocalNodes
from tests.cli.runs import Cli, environment
from tests.cli.shown import showing
from tests.servers import Nodes, ask, with_rights

OWNER = "0" * 40
SINCE = "1763629200123"


class Terminal(io.StringIO):
    """A terminal at which an answer is typed, and where meanwhile something may happen."""

    def __init__(self, answer: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(answer)
        self._meanwhile = meanwhile

    def isatty(self) -> bool:
        """It is one."""
        return True

    def readline(self, *arguments: int) -> str:  # type: ignore[override]
        """Type the answer."""
        self._meanwhile()
        return super().readline(*arguments)


def hold(nodes: Nodes, name: str, holder: str = "billing-7", *, on: Sequence[int] = range(5)) -> None:
    """Have a holder that never comes back."""
    for number in on:
        ask(nodes.urls[number], "SET", f"redlock:{name}", f"{OWNER}:{SINCE}:{holder}")


def left(nodes: Nodes, name: str) -> int:
    """Return how many nodes have the lock."""
    return sum(ask(url, "EXISTS", f"redlock:{name}") for url in nodes.urls)


Release = Callable[..., tuple[object, str, str]]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Release:
    """Return a function that runs the command, at a terminal or not."""

    def run(urls: Sequence[str], *words: str, stdin: io.StringIO | None = None) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "stdin", stdin)
        return cli("release", *words, "--nodes", ",".join(urls), "--node-timeout", "0.5")

    return run


EVIL = "evil\x1b[2J"


@pytest.mark.parametrize("answer", ["y\n", "Yes\n", " YES \n"])
def test_it_shows_the_holder_asks_and_deletes(answer: str, shared_nodes: Nodes, release: Release) -> None:
    """Other locks stay; whatever names and labels are made of comes out escaped."""
    hold(shared_nodes, EVIL, "me\x1b]0;title\x07\r\n")
    hold(shared_nodes, "other")
    code, out, err = release(shared_nodes.urls, EVIL, stdin=Terminal(answer))
    name, me = ascii(EVIL), ascii("me\x1b]0;title\x07\r\n")
    assert (code, out) == (0, f"lock {name}, held by {me}: deleted on 5 of 5 nodes\n")
    shown, _, question = err.rpartition("\n")
    assert all(word in shown for word in (name, me, "2025-11-20", "5/5"))
    assert question.endswith("[y/N] ")
    assert not {character for character in out + err if not character.isprintable()} - {"\n", "\t"}
    assert (left(shared_nodes, EVIL), left(shared_nodes, "other")) == (0, 5)


def interrupt() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("stdin", "code", "ends"),
    [
        *(
            (Terminal(answer), 1, "aioredlock-ng release: nothing was changed\n")
            for answer in ("\n", "", "n\n", "no\n", "yo\n", "nyes\n")
        ),
        (Terminal("y\n", interrupt), 130, "[y/N] "),
        (None, 2, "--yes\n"),
        (io.StringIO("y\n"), 2, "--yes\n"),
    ],
)
def test_without_a_yes_it_is_left_alone(
    stdin: io.StringIO | None, code: int, ends: str, shared_nodes: Nodes, release: Release
) -> None:
    """No, nothing, the end of the input, Ctrl-C; without a terminal `--yes` is needed, and said to be."""
    hold(shared_nodes, "stuck")
    done, out, err = release(shared_nodes.urls, "stuck", stdin=stdin)
    assert (done, out) == (code, "")
    assert err.endswith(ends) or (code == 2 and "no terminal" in err and "--yes" in err)
    assert left(shared_nodes, "stuck") == 5


def test_yes_asks_nothing(shared_nodes: Nodes, release: Release) -> None:
    """Also what only one node has, whatever it is; a free lock is said to be free, and not asked for."""
    hold(shared_nodes, "stuck")
    code, out, err = release(shared_nodes.urls, "stuck", "--yes")
    assert (code, out, err) == (0, "lock stuck, held by billing-7: deleted on 5 of 5 nodes\n", "")
    ask(shared_nodes.urls[0], "RPUSH", "redlock:stuck", "no lock")
    code, out, err = release(shared_nodes.urls, "stuck", "-y")
    assert (code, out, err) == (0, "lock stuck: deleted on 5 of 5 nodes\n", "")
    assert left(shared_nodes, "stuck") == 0
    code, out, err = release(shared_nodes.urls, "free", stdin=Terminal("n\n"))
    assert (code, out, err) == (0, "lock free is free\n", "")


@pytest.mark.parametrize("becomes", ["free", "another's"])
def test_a_lock_that_changes_hands_before_the_answer_is_left_alone(
    becomes: str, shared_nodes: Nodes, release: Release
) -> None:
    """The agreement is to the end of one holder's lock, not of the next one's."""
    hold(shared_nodes, "stuck")

    def meanwhile() -> None:
        for url in shared_nodes.urls:
            ask(url, "DEL", "redlock:stuck")
            if becomes == "another's":
                ask(url, "SET", "redlock:stuck", f"{OWNER}:{SINCE}:another")

    code, out, err = release(shared_nodes.urls, "stuck", stdin=Terminal("y\n", meanwhile))
    free = becomes == "free"
    assert (code, out) == ((0, "lock stuck is free\n") if free else (1, ""))
    assert ("changed hands meanwhile: nothing was changed" in err) is not free
    assert left(shared_nodes, "stuck") == (0 if free else 5)


def read(nodes: Nodes, name: str, *holders: str, left: int = 60) -> None:
    """Have readers that never come back; each later one stays a second longer."""
    script = """
        for i, owner in ipairs(ARGV) do
            redis.call('ZADD', KEYS[1], (redis.call('TIME')[1] + %d + i) * 1000, owner)
        end
        redis.call('EXPIRE', KEYS[1], %d + #ARGV)"""
    for url in nodes.urls:
        owners = (f"{OWNER}:{SINCE}:{holder}" for holder in holders)
        ask(url, "EVAL", script % (left, left), 1, f"redlock:{name}", *owners)


@pytest.mark.parametrize("number", [3, 105])
def test_all_readers_are_meant(number: int, shared_nodes: Nodes, release: Release) -> None:
    """They are shown before it asks, harmless; of more than a hundred the others do not matter."""
    crowd = number > 100
    read(shared_nodes, "catalogue", "evil\x1b[2J", *(f"web-{n}" for n in range(1, number)))

    def meanwhile() -> None:
        if crowd:
            read(shared_nodes, "catalogue", "another", left=120)

    code, out, err = release(shared_nodes.urls, "catalogue", stdin=Terminal("y\n", meanwhile))
    readers = "100 readers or more" if crowd else "3 readers"
    assert (code, out) == (0, f"lock catalogue, held by {readers}: deleted on 5 of 5 nodes\n")
    assert (err.count("web-"), err.count("… and more")) == ((100, 1) if crowd else (2, 0))
    assert crowd or r"'evil\x1b[2J'" in err
    assert not {character for character in out + err if not character.isprintable()} - {"\n", "\t"}
    assert left(shared_nodes, "catalogue") == 0


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_several_are_chosen_by_pattern_and_holder(answer: str, shared_nodes: Nodes, release: Release) -> None:
    """One question for all, and a line for each; what others share, or cannot be a name, is left alone."""
    for name in ("job:10", "job:2", b"job:\xff"):
        key = name if isinstance(name, bytes) else name.encode()
        for url in shared_nodes.urls:
            ask(url, "SET", b"redlock:" + key, f"{OWNER}:{SINCE}:web-3:77")
    hold(shared_nodes, "job:other")
    read(shared_nodes, "job:shared", "web-3:1", "web-4:1")

    def meanwhile() -> None:
        for url in shared_nodes.urls:
            ask(url, "SET", "redlock:job:2", f"{OWNER}:{SINCE}:another")

    terminal = Terminal(answer, meanwhile)
    code, out, err = release(
        shared_nodes.urls, "job:*", "--holder", "web-3:*", "--older", "1m", stdin=terminal
    )
    assert "Delete these 2 locks on all nodes? [y/N]" in err
    assert err.index("job:2\t") < err.index("job:10\t")
    yes = answer == "y\n"
    assert (code, out) == (1, "lock job:10, held by web-3:77: deleted on 5 of 5 nodes\n" if yes else "")
    assert ("lock job:2: the lock has changed hands meanwhile: nothing was changed" in err) is yes
    assert [left(shared_nodes, name) for name in ("job:2", "job:10")] == [5, 0 if yes else 5]
    assert [left(shared_nodes, name) for name in ("job:other", "job:shared")] == [5, 5]


def test_what_matches_nothing_is_no_error(shared_nodes: Nodes, release: Release) -> None:
    """For a script that cleans up; but a command without any choice is wrong usage."""
    hold(shared_nodes, "job")
    assert release(shared_nodes.urls, "x*", "--yes") == (0, "no lock matches\n", "")
    code, _, err = release(shared_nodes.urls, "--yes")
    assert (code, "no lock is chosen" in err, left(shared_nodes, "job")) == (2, True, 5)
    # As of a variable that is not set.
    code, _, err = release(shared_nodes.urls, "job", "--holder", "", "--yes")
    assert (code, "must not be empty" in err, left(shared_nodes, "job")) == (2, True, 5)


def test_a_search_that_has_not_seen_all_locks_is_an_error(
    shared_nodes: Nodes, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a script would take the rest for free."""
    hold(shared_nodes, "job")
    hold(shared_nodes, "another")
    monkeypatch.setattr("aioredlock_ng._cli._choice._LIMIT", 1)
    code, out, err = release(shared_nodes.urls, "j*", "--yes")
    assert (code, out, "there may be more locks that match" in err) == (1, "", True)


def test_without_a_majority_nothing_is_deleted(nodes3: LocalNodes, release: Release) -> None:
    """Exit code 69, and a number: what one node has may be anything."""
    hold(nodes3, "stuck", on=range(3))
    nodes3.kill(0)
    nodes3.kill(1)
    code, out, err = release(nodes3.urls, "stuck", "--yes")
    assert (code, out) == (69, "")
    assert "1 of 3 nodes answered, 2 are needed: nothing was changed" in err
    assert ask(nodes3.urls[2], "EXISTS", "redlock:stuck") == 1


def test_a_first_look_without_a_majority_asks_and_deletes_nothing(
    nodes3: LocalNodes, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the nodes would answer a second one: the user was not shown what that finds."""
    command = importlib.import_module("aioredlock_ng._cli.release")
    looked = command.look_for

    async def short_look(*arguments: Any, **options: Any) -> Any:
        for number in (0, 1):
            nodes3.pause(number)
        try:
            return await looked(*arguments, **options)
        finally:
            for number in (0, 1):
                nodes3.resume(number)

    monkeypatch.setattr(command, "look_for", short_look)
    with SyncLockManager(nodes3.urls, restart_quarantine=0) as manager, manager.semaphore("s", permits=2):
        code, _, errors = release(nodes3.urls, "s", stdin=Terminal("y\n"))
        assert (code, "[y/N]" in errors) == (69, False)
        assert [ask(url, "EXISTS", "redlock:s") for url in nodes3.urls] == [1, 1, 1]


def test_a_node_that_does_not_answer_is_named(nodes3: LocalNodes, release: Release) -> None:
    """A majority has deleted it, so it is free; the dead node's part ends with its ttl."""
    hold(nodes3, "stuck", on=range(3))
    nodes3.kill(1)
    code, out, err = release(nodes3.urls, "stuck", "--yes")
    first, second = out.splitlines()
    assert (code, first, err) == (0, "lock stuck, held by billing-7: deleted on 2 of 3 nodes", "")
    assert second.startswith(f"  {nodes3.urls[1]}  ")


def test_a_right_that_is_missing_is_69(make_nodes: Callable[..., LocalNodes], release: Release) -> None:
    """A user who may look but not delete."""
    nodes = make_nodes(3)
    hold(nodes, "stuck", on=range(3))
    urls = [with_rights(url, "~redlock:* +@all -del") for url in nodes.urls]
    code, out, _ = release(urls, "stuck", "--yes")
    assert (code, out.splitlines()[0]) == (69, "lock stuck, held by billing-7: deleted on 0 of 3 nodes")
    assert out.count("NOPERM") == 3
    assert "secret" not in out
    code, out, _ = release(urls, "stuck", "--yes", "--json")
    assert [node["done"] for node in json.loads(out)["locks"][0]["nodes"]] == [False] * 3


def test_for_programs_it_is_json(shared_nodes: Nodes, release: Release) -> None:
    """The lock, and the answer of each node; the question stays out of it."""
    hold(shared_nodes, "stuck")
    code, out, _ = release(shared_nodes.urls, "stuck", "--json", stdin=Terminal("n\n"))
    shown = json.loads(out)
    assert (code, shown["error"], shown["locks"]) == (1, "nothing was changed", [])
    code, out, err = release(shared_nodes.urls, "stuck", "--json", stdin=Terminal("y\n"))
    shown = json.loads(out)
    (released,) = shown["locks"]
    assert (code, shown["error"], released["error"], released["lock"]["holder"]) == (
        0,
        None,
        None,
        "billing-7",
    )
    assert released["nodes"] == [{"node": url, "done": True, "reason": ""} for url in shared_nodes.urls]
    assert "[y/N]" in err


@pytest.mark.heavy
def test_at_a_real_terminal(shared_nodes: Nodes) -> None:
    """The question is there before the answer is read."""
    hold(shared_nodes, "stuck")
    words = ("-W", "error", "-m", "aioredlock_ng", "release", "stuck", "--node-timeout", "1")
    with showing([sys.executable, *words], environment(shared_nodes, NO_COLOR="1"), rows=24) as shown:
        shown.until(r"billing-7.*\[y/N\] $")
        shown.type("y\n")
        assert shown.finish() == 0
    assert shown.output.endswith("lock stuck, held by billing-7: deleted on 5 of 5 nodes\r\n")
