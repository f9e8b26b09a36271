"""``aioredlock-ng trace``: what happens to a lock, from two looks at it, and on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioredlock_ng import (
    LockManager,
    NodeInspection,
    PermitInspection,
    QueueInspection,
    ReaderInspection,
    SilentNode,
    WaiterInspection,
)
from aioredlock_ng.__main__ import main
from aioredlock_ng._cli.trace import _as_json, _as_line
from aioredlock_ng._view.changes import SLACK, Event, Picture, events, picture
from tests.cli.runs import environment
from tests.servers import Nodes

NOW = 1_763_640_000.0
NAMES = "abcde"


def held(holder: str | None = "me", ttl: float | None = 9.0, *, since: float = NOW) -> dict[str, Any]:
    """Make what a node holds of one holder."""
    return {"held": True, "holder": holder, "since": since, "ttl": ttl, "kind": "mutex"}


FREE: dict[str, Any] = {"held": False}
SILENT: dict[str, Any] = {"held": None, "reason": "no answer"}
LIST: dict[str, Any] = {"held": None, "reason": "WRONGTYPE Operation against a key"}


def read(*readers: str) -> dict[str, Any]:
    """Make what a node holds of readers."""
    found = tuple(ReaderInspection(holder=reader, since=NOW, ttl=9.0) for reader in readers)
    return {"held": True, "kind": "read", "readers": found} if found else FREE


def permits(**slots: int) -> dict[str, Any]:
    """Make what a node holds of permits."""
    found = tuple(PermitInspection(slot=slot, holder=who, since=NOW, ttl=9.0) for who, slot in slots.items())
    return {"held": True, "kind": "semaphore", "permits": found}


def line(*labels: str, silent: int = 0) -> QueueInspection:
    """Make a line."""
    waiters = tuple(
        WaiterInspection(place=place, holder=label, since=NOW, ours=False, known_to=5)
        for place, label in enumerate(labels)
    )
    missing = tuple(SilentNode(node=name, reason="NOPERM") for name in NAMES[:silent])
    return QueueInspection(name="x", waiters=waiters, more_waiters=False, silent=missing)


def look(*nodes: dict[str, Any], at: float = 0.0, queue: QueueInspection | None = None) -> Picture:
    """Make a look at these nodes, which takes no time."""
    found = [NodeInspection(node=name, **node) for name, node in zip(NAMES, nodes, strict=False)]
    return picture(found, queue, asked=at, answered=at)


def reported(*pictures: Picture) -> list[list[str]]:
    """Return what each of several looks tells, in words."""
    before: Picture | None = None
    all_ = []
    for picture_ in pictures:
        now = picture_ if before is None else picture_.on(before)
        all_.append([in_words(event) for event in events(before, now)])
        before = now
    return all_


def in_words(event: Event) -> str:
    """Return what happened to which."""
    slot = None if event.slot is None else f"slot {event.slot}"
    words = (event.what, event.before, event.holder, slot, event.node)
    return " ".join(word for word in words if word is not None)


ME, YOU, KEPT = held(), held("you", since=NOW + 1), held() | {"kind": "kept"}


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ([FREE] * 3, [ME] * 3, ["granted me"]),
        ([FREE] * 3, [ME, FREE, FREE], []),
        ([ME] * 3, [FREE] * 3, ["released me"]),
        ([ME] * 3, [YOU, YOU, FREE], ["handed over me you"]),
        ([ME] * 3, [held(since=NOW + 5)] * 3, ["handed over me me"]),
        ([held(ttl=0.9)] * 3, [FREE] * 3, ["expired me"]),
        ([held(ttl=0.9)] * 3, [YOU] * 3, ["expired me", "granted you"]),
        ([held(ttl=None)] * 3, [FREE] * 3, ["released me"]),
        ([ME] * 3, [KEPT] * 3, ["released me"]),
        ([FREE] * 3, [KEPT] * 3, []),
        ([KEPT] * 3, [YOU] * 3, ["released me", "granted you"]),
        ([KEPT | {"ttl": 0.9}] * 3, [YOU] * 3, ["expired me", "granted you"]),
        ([held(ttl=5.0)] * 3, [held(ttl=4.0)] * 3, []),
        ([held(ttl=5.0)] * 3, [held(ttl=4.0 + SLACK)] * 3, []),
        ([held(ttl=5.0)] * 3, [held(ttl=4.1)] * 3, ["extended me"]),
        ([held(ttl=5.0)] * 3, [held(ttl=9.0)] + [held(ttl=4.0)] * 2, []),
        ([read("a", "b")] * 3, [read("b", "c")] * 3, ["released a", "granted c", "extended b"]),
        ([read("a")] * 3, [ME] * 3, ["released a", "granted me"]),
        ([ME] * 3, [read("a")] * 3, ["released me", "granted a"]),
        (
            [permits(a=0, b=1)] * 3,
            [permits(c=0, b=1, d=2)] * 3,
            ["handed over a c slot 0", "granted d slot 2", "extended b slot 1"],
        ),
        ([ME] * 3, [ME, SILENT, SILENT], ["silent b", "silent c"]),
        ([ME] * 3, [ME, FREE, SILENT], ["silent c"]),
        ([ME] * 3, [FREE, FREE, SILENT], ["released me", "silent c"]),
        ([SILENT, SILENT, ME], [ME] * 3, ["held me", "agrees a", "agrees b"]),
        ([SILENT, SILENT, FREE], [FREE] * 3, ["free", "agrees a", "agrees b"]),
    ],
)
def test_what_two_looks_come_to(
    before: list[dict[str, Any]], after: list[dict[str, Any]], says: list[str]
) -> None:
    """One second apart: by what a majority shows; what was not heard is no end."""
    assert reported(look(*before), look(*after, at=1.0))[1] == says


def test_the_first_look_says_how_it_is() -> None:
    """Free, held, or not to be known; and who waits."""
    assert reported(look(*[FREE] * 3)) == [["free"]]
    assert reported(look(*[ME] * 3, queue=line("you"))) == [["held me", "waits you"]]
    assert reported(look(ME, SILENT, SILENT)) == [["silent b", "silent c"]]
    assert reported(look(ME, FREE, SILENT), look(*[ME] * 3)) == [["silent c"], ["held me", "agrees c"]]


def test_an_end_that_was_not_heard_is_reported_later() -> None:
    """Two nodes fall silent and the lock ends meanwhile: by then its time has run out."""
    mute = look(FREE, SILENT, SILENT, at=1.0)
    for last, at, what in ((FREE, 2.0, "released me"), (FREE, 9.0, "expired me"), (ME, 2.0, "extended me")):
        seen = reported(look(*[ME] * 3), mute, look(*[last] * 3, at=at))
        assert seen[2] == [what, "agrees b", "agrees c"]


def test_answers_that_took_long_are_no_extension() -> None:
    """An end is later only if it is whenever the nodes answered."""
    nodes = [NodeInspection(node=name, **held(ttl=5.0)) for name in "abc"]
    before = picture(nodes, None, asked=0.0, answered=2.0)
    for asked, number in ((2.0, 0), (2.1, 1)):
        now = picture(nodes, None, asked=asked, answered=3.0).on(before)
        assert len(events(before, now)) == number


def test_a_node_differs_when_it_does_so_twice() -> None:
    """One look may meet a grant under way; another kind of key is no agreement; it ends when it agrees."""
    forgot, wrong, well = (look(ME, ME, node) for node in (FREE, LIST, ME))
    assert reported(forgot, well) == [["held me"], []]
    assert reported(forgot, forgot, wrong, well, well) == [["held me"], ["differs c"], [], ["agrees c"], []]
    assert reported(*[look(FREE, FREE, LIST)] * 2)[1] == ["differs c"]
    assert reported(forgot, forgot, look(ME, ME, SILENT))[2] == ["silent c"]
    assert reported(*[look(ME, FREE, SILENT)] * 2)[1] == []  # whether it is held rests on the silent node


def test_readers_that_are_not_named_have_not_ended() -> None:
    """A node names a hundred: it does not differ where it names others, nor has one ended that it omits."""
    crowded = read("b") | {"more_readers": True}
    both = look(*[read("a", "b")] * 3)
    assert reported(both, *[look(read("a", "b"), read("a", "b"), crowded, at=0.01)] * 2)[2] == []
    assert reported(both, look(read("a", "b"), crowded, crowded, at=0.01))[1] == []
    assert reported(both, look(read("b"), read("b"), read("b"), at=0.01))[1] == ["released a"]


def test_who_stands_in_line() -> None:
    """Comes, goes, has it; those of one label are counted; what too few nodes tell changes nothing."""
    looks = [
        look(*[FREE] * 3, queue=line()),
        look(*[ME] * 3, queue=line("a", "b", "b")),
        look(*[ME] * 3, queue=line(silent=2)),
        look(*[ME] * 3, queue=line("a", "b")),
        look(*[held("a")] * 3, queue=line("b")),
    ]
    came = ["granted me", "waits a", "waits b", "waits b"]
    assert reported(*looks)[1:] == [came, [], ["left b"], ["handed over me a"]]


def test_lines_are_harmless_and_tell_all() -> None:
    """Names come from other programs; for programs they are whole."""
    evil = Event(what="handed over", holder="x\x1b[2J", kind="fair", since=NOW, ttl=9.0, before="a\nb")
    assert r"handed over  'a\nb' → 'x\x1b[2J', fair, since " in _as_line(evil, NOW).text
    assert json.loads(_as_json(evil, NOW)) == {
        "version": 1, "command": "trace", "at": NOW, "event": "handed over", "holder": "x\x1b[2J",
        "kind": "fair", "since": NOW, "slot": None, "ttl": 9.0, "before": "a\nb", "place": None,
        "node": None, "reason": None,
    }  # fmt: skip
    silent = _as_line(Event(what="silent", node="redis://a", reason="no\x07"), NOW)
    assert r"redis://a, 'no\x07'" in silent.text


@contextlib.asynccontextmanager
async def tracing(nodes: Nodes, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command over nodes for as long as the block lasts."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "aioredlock_ng", "trace", "--node-timeout", "2", *words),
        env=environment(nodes),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.heavy
async def test_it_follows_a_lock_on_servers(shared_nodes: Nodes) -> None:
    """Free, granted, waited for, handed over, deleted; Ctrl-C ends it with 130."""
    async with (
        tracing(shared_nodes, "a", "--json", "--interval", "50ms") as process,
        LockManager(shared_nodes.urls, holder="one", node_timeout=2) as one,
        LockManager(shared_nodes.urls, holder="two", node_timeout=2) as two,
    ):
        assert process.stdout is not None
        stdout = process.stdout

        async def until(what: str, holder: str | None) -> dict[str, Any]:
            """Read what happens until this does."""
            async with asyncio.timeout(60):
                while True:
                    shown: dict[str, Any] = json.loads(await stdout.readline())
                    if (shown["event"], shown["holder"]) == (what, holder):
                        return shown

        await until("free", None)
        lease = await one.lock("a", fair=True).acquire()
        assert (await until("granted", "one"))["kind"] == "fair"
        waiting = asyncio.create_task(two.lock("a", fair=True).acquire())
        assert (await until("waits", "two"))["place"] == 0
        await lease.release()
        assert (await until("handed over", "two"))["before"] == "one"
        lease = await waiting
        await one.force_release("a")
        await until("released", "two")
        await lease.release()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


def test_it_ends_after_its_time(shared_nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, with what was seen by then, a line each."""
    words = ("trace", "job", "--for", "0.5", "--nodes", ",".join(shared_nodes.urls), "--node-timeout", "0.5")
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3}  (free$|silent )", line) for line in out.splitlines())
    assert err == ""
