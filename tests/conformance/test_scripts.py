"""Every plain script in every state of its keys: masters in memory and real servers answer and act alike.

`expected` is a deliberately dumb twin of the scripts.  Commands go through the node, as a manager's do.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._admin.inspection import _fits_deletion
from aioredlock_ng._admin.look import look_for
from aioredlock_ng._core.command import Command, Purpose, Silence
from aioredlock_ng._kinds.answers import fits_int
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from tests.conformance.tools import OTHERS, OURS, WRONG, Master, alike, connected, lives, plain, turns
from tests.servers import eventually

TTL = 60.0
"""Seconds that the commands ask for."""


@dataclass(frozen=True)
class State:
    """What a key is before, or after, a command."""

    name: str
    value: bytes | str | None
    ttl: float | None = None


STATES = (
    State("free", None),
    State("ours, shorter", OURS, 30.0),
    State("ours, longer", OURS, 120.0),
    State("ours, without expiry", OURS),
    State("other's, shorter", OTHERS, 30.0),
    State("other's, longer", OTHERS, 90.0),
    State("other's, without expiry", OTHERS),
    State("wrong type", WRONG),
    State("wrong type, expires", WRONG, 90.0),
)
ERROR = "WRONGTYPE"
WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
"""Word for word: how servers wrap the errors of scripts differs."""


def longest_wait(states: Sequence[State]) -> int:
    """Return the milliseconds until the last of these keys is gone; -1: never, 0: none is there."""
    there = [state for state in states if state.value is not None]
    if any(state.ttl is None for state in there):
        return -1
    return max((round(state.ttl * 1000) for state in there), default=0)


def kept(state: State) -> tuple[bytes | str | None, float | None]:
    """Return what is under the key when nothing is changed."""
    return state.value, state.ttl


def prolonged(state: State) -> tuple[bytes, float]:
    """Return our key with at least TTL to live."""
    return OURS, max(state.ttl or 0.0, TTL)


def released(_: State) -> tuple[None, None]:
    """Return that nothing is there."""
    return None, None


def shortened(state: State) -> tuple[bytes, float]:
    """Return our key with at most TTL to live, and never more than it had (R34)."""
    return OURS, min(state.ttl or TTL, TTL)


def inspected(state: State) -> tuple[Any, int, None]:
    """Return what is told of a key: the value, or the error, how long it stays, and that nothing counts."""
    left = -2 if state.value is None else -1 if state.ttl is None else round(state.ttl * 1000)
    return [WRONG_TYPE] if state.value == WRONG else state.value, left, None


def expected(what: str, states: Sequence[State]) -> tuple[Any, list[tuple[bytes | str | None, float | None]]]:
    """Return the reply to a command and what is under the keys then."""
    same = [kept(state) for state in states]
    values = [state.value for state in states]
    if what == "set":
        return (b"OK", [(OURS, TTL)]) if values == [None] else (None, same)
    if what == "set_all":
        wait = longest_wait(states)
        return (wait, same) if wait else (0, [(OURS, TTL)] * len(states))
    if what in ("extend", "top_up"):
        for value in values:
            if value == WRONG:
                return ERROR, same
            if value == OTHERS:
                return -1, same
        if what == "extend" and None in values:
            return 0, same
        return int(what == "extend"), [prolonged(state) for state in states]
    if what in ("release", "stay"):
        others = [state for state in states if state.value != OURS]
        gone = released if what == "release" else shortened
        after = [gone(state) if state.value == OURS else kept(state) for state in states]
        reply = [values.count(OURS), longest_wait(others), 0, *[0] * (OTHERS in values)]
        return (ERROR if WRONG in values else reply), after
    if what == "inspect":
        return [part for state in states for part in inspected(state)], same
    assert what == "delete"
    return len(values) - values.count(None), [(None, None)] * len(states)


def command(what: str, keys: tuple[bytes, ...]) -> Command:
    """Build a command over keys."""
    mutex = Primitive(MUTEX, tuple(map(str, keys)), keys)
    if what == "set":
        return mutex.acquire(OURS, TTL)
    if what == "set_all":  # for one key, too, where a manager sends a plain SET
        return Command(
            Purpose.ACQUIRE,
            owner=OURS,
            fits=fits_int,
            keys=keys,
            args=(OURS, b"%d" % (TTL * 1000), b"0", b"1", b"1"),
            script=_scripts.SET_ALL,
        )
    if what == "inspect":
        return look_for(b"redlock:", *keys)
    if what == "stay":
        return mutex.release(OURS, TTL, stays=TTL)
    if what == "delete":
        return Command(Purpose.OTHER, owner=b"", fits=_fits_deletion, keys=keys, verb=b"DEL")
    return getattr(mutex, what)(OURS, TTL)


@pytest.mark.parametrize("names", [1, 2, 3])
@pytest.mark.parametrize(
    "what", ["set", "set_all", "extend", "top_up", "release", "stay", "inspect", "delete"]
)
async def test_every_command_in_every_state(master: Master, what: str, names: int) -> None:
    """The reply and what is under the keys afterwards are the same on every kind of master."""
    if what == "set" and names > 1:
        what = "set_all"  # it takes one name only
    cases = list(itertools.product(STATES, repeat=names))
    keys = [tuple(b"redlock:%d:%d" % (i, j) for j in range(names)) for i in range(len(cases))]
    master.put(
        [
            (key, state.value, state.ttl)
            for case, its in zip(cases, keys, strict=True)
            for state, key in zip(case, its, strict=True)
        ]
    )
    async with connected(master) as node:
        replies = await asyncio.gather(*(node.ask(command(what, its)) for its in keys))
    found = iter(master.look([key for its in keys for key in its]))

    wrong = []
    for case, reply in zip(cases, replies, strict=True):
        after = [next(found) for _ in case]
        wanted_reply, wanted_after = expected(what, case)
        same = all(
            value == wanted and lives(ttl, wanted_ttl)
            for (value, ttl), (wanted, wanted_ttl) in zip(after, wanted_after, strict=True)
        )
        if not alike(plain(reply), wanted_reply) or not same:
            names_of_states = ", ".join(state.name for state in case)
            wrong.append(
                f"{what} of ({names_of_states}): {reply}, {after}; wanted {wanted_reply}, {wanted_after}"
            )
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:20])


async def test_a_key_about_to_expire_counts_until_it_has(master: Master) -> None:
    """What is left of it is at least a millisecond, and once it has expired it is missing."""
    async with connected(master) as node:
        keys = (b"redlock:a", b"redlock:b")
        for what, holder in (("set_all", OTHERS), ("release", OTHERS), ("extend", OURS)):
            master.put([(keys[0], holder, 0.08), (keys[1], holder, 0.08)])
            inspection = await node.ask(command("inspect", keys[:1]))
            assert inspection[0] == holder
            assert 0 <= inspection[1] <= 80
            if what == "set_all":
                assert 1 <= await node.ask(command("set_all", keys)) <= 80
            elif what == "release":
                deleted, wait, *_ = await node.ask(command("release", keys))
                assert deleted == 0
                assert 1 <= wait <= 80
            await eventually(lambda: not master.locks(), what="the keys expire")
            if what == "set_all":
                assert await node.ask(command("set_all", keys)) == 0
            elif what == "release":
                assert await node.ask(command("release", keys)) == [0, 0, 0]
            else:
                assert await node.ask(command("extend", keys)) == 0
                assert master.locks() == []
            master.put([(key, None, None) for key in keys])


async def test_an_extension_in_the_last_moment_saves_the_key(master: Master) -> None:
    """A key of ours that is about to expire lives on for the ttl asked."""
    async with connected(master) as node:
        master.put([(b"redlock:a", OURS, 0.3)])
        assert await node.ask(command("extend", (b"redlock:a",))) == 1
    ((value, ttl),) = master.look([b"redlock:a"])
    assert value == OURS
    assert lives(ttl, TTL)


async def test_a_fraction_of_a_millisecond_is_rounded_up(master: Master) -> None:
    """A key must not end before its lock does, and a ttl of 0 would delete it."""
    mutex = Primitive(MUTEX, ("a",), (b"redlock:a",))
    async with connected(master) as node:
        assert await node.ask(mutex.acquire(OURS, 59.9991)) == b"OK"
        assert await node.ask(mutex.extend(OURS, 0.0001)) == 1
        assert await node.ask(mutex.release(OURS, 60)) == [1, 0, 0]
        assert await node.ask(mutex.acquire(OURS, 0.00001)) == b"OK"
        await eventually(lambda: not master.locks(), what="the key expires")


async def test_values_and_keys_are_bytes(master: Master) -> None:
    """Any byte may stand in a name or in another program's value."""
    key = b"redlock:\x00\r\n\xff{x} *1"
    mutex = Primitive(MUTEX, ("x",), (key,))
    async with connected(master) as node:
        assert await node.ask(mutex.acquire(OURS, TTL)) == b"OK"
        assert master.locks() == [key]
        assert await node.ask(mutex.release(OURS, TTL)) == [1, 0, 0]
        master.put([(key, b"\x00\r\n\xff", None)])
        assert await node.ask(command("inspect", (key,))) == [b"\x00\r\n\xff", -1, None]
        master.put([(key, b"", None)])
        assert await node.ask(command("inspect", (key,))) == [b"", -1, None]
        assert await node.ask(mutex.release(OURS, TTL)) == [0, -1, 0, 1]


@pytest.mark.parametrize("what", ["set_all", "extend", "top_up", "release", "inspect"])
async def test_a_server_that_forgot_the_scripts_learns_them_again(master: Master, what: str) -> None:
    """NOSCRIPT shows in no reply, the first time and ever after."""
    keys = (b"redlock:a",)
    async with connected(master) as node:
        for _ in range(2):
            master.put([(keys[0], None if what in ("set_all", "top_up") else OURS, 30.0)])
            master.forget_scripts()
            states = [STATES[0] if what in ("set_all", "top_up") else STATES[1]]
            wanted, _ = expected(what, states)
            assert alike(await node.ask(command(what, keys)), wanted)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_frozen_master_executes_what_has_arrived_when_it_goes_on(master: Master, end: str) -> None:
    """However the client ended its connection meanwhile: a reset takes back only what is still on its way.

    This is why the release of an unanswered acquire is repeated until its ttl has passed (R5).
    """
    mutexes = [Primitive(MUTEX, (name,), (b"redlock:" + name.encode(),)) for name in ("a", "b")]
    async with connected(master) as node:
        await node.ask(mutexes[0].acquire(OURS, TTL))
        master.pause()
        try:
            node.send(mutexes[0].release(OURS, TTL))
            late = node.send(mutexes[1].acquire(OURS, TTL))
            await turns()
            if end == "close":
                await node.node.aclose()
            else:
                assert node.node._link is not None
                node.node._link.give_up("test")
            await turns()
            assert isinstance(late.result(), Silence)
        finally:
            master.resume()
        await eventually(lambda: master.locks() == [b"redlock:b"], what="both commands are executed")


async def test_a_late_acquire_over_a_lost_connection_is_undone(master: Master) -> None:
    """A frozen node was given up with an acquire in its hands; what it grants late does not last."""
    mutex = Primitive(MUTEX, ("a",), (b"redlock:a",))
    async with connected(master) as node:
        master.pause()
        try:
            late = node.send(mutex.acquire(OURS, TTL))
            await turns()
            link = node.node._link
            assert link is not None
            link.give_up("test")
            await turns()
            assert isinstance(await late, Silence)
            assert isinstance(await node.ask(mutex.release(OURS, TTL)), Silence)
        finally:
            master.resume()
        await eventually(lambda: node.node._link not in (link, None), what="it is connected anew")
        await eventually(lambda: not master.locks(), what="the late grant is undone")
        assert await node.ask(mutex.acquire(OTHERS, TTL)) == b"OK"
