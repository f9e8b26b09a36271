"""Every plain script in every state of its keys: masters in memory and real servers do the same.

`expected` is a deliberately dumb twin of the scripts.  Commands go through the node, as a manager's do.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._admin.look import look_for
from aioredlock_ng._core.command import Command, Purpose
from aioredlock_ng._kinds.answers import fits_int
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from tests.conformance.masters import WRONG, Value, lock_keys
from tests.conformance.stage import TTL
from tests.conformance.tools import OTHERS, OURS, alike, connected, lives, plain
from tests.servers import eventually


class State(NamedTuple):
    """The state of a key before a command, or after it."""

    value: Value
    ttl: float | None = None


STATES = (
    State(None),
    State(OURS, 30.0),
    State(OURS, 120.0),
    State(OURS),
    State(OTHERS, 30.0),
    State(OTHERS, 90.0),
    State(OTHERS),
    State(WRONG),
    State(WRONG, 90.0),
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


def expected(what: str, states: Sequence[State]) -> tuple[Any, Sequence[State]]:
    """Return the reply to a command and what is under the keys then."""
    values = [state.value for state in states]
    if what == "set_all":
        wait = longest_wait(states)
        return (wait, states) if wait else (0, [State(OURS, TTL)] * len(states))
    if what in ("extend", "repair"):
        for value in values:
            if value == WRONG:
                return ERROR, states
            if value == OTHERS:
                return -1, states
        if what == "extend" and None in values:
            return 0, states
        return int(what == "extend"), [State(OURS, max(state.ttl or 0.0, TTL)) for state in states]
    if what in ("release", "stay"):  # which leaves a key no longer than it had (R34)
        others = [state for state in states if state.value != OURS]
        after = [
            state
            if state in others
            else State(OURS, min(state.ttl or TTL, TTL))
            if what == "stay"
            else State(None)
            for state in states
        ]
        reply = [values.count(OURS), longest_wait(others), 0, *[0] * (OTHERS in values)]
        return (ERROR if WRONG in values else reply), after
    assert what == "inspect"  # the value, or the error, how long it stays, and that nothing counts
    told: list[Any] = []
    for value, ttl in states:
        left = -2 if value is None else -1 if ttl is None else round(ttl * 1000)
        told += [[WRONG_TYPE] if value == WRONG else value, left, None]
    return told, states


def command(what: str, keys: tuple[bytes, ...]) -> Command:
    """Build a command over keys."""
    mutex = Primitive(MUTEX, tuple(map(str, keys)), keys)
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
    return getattr(mutex, what)(OURS, TTL)


@pytest.mark.parametrize("names", [1, 2, 3])
@pytest.mark.parametrize("what", ["set_all", "extend", "repair", "release", "stay", "inspect"])
async def test_every_command_in_every_state(master, what, names):
    """The reply and what is under the keys afterwards are the same on every kind of master."""
    cases = list(itertools.product(STATES, repeat=names))
    keys = [tuple(b"redlock:%d:%d" % (i, j) for j in range(names)) for i in range(len(cases))]
    for case, its in zip(cases, keys, strict=True):
        master.put([(key, *state) for key, state in zip(its, case, strict=True)])
    async with connected(master.spec) as node:
        replies = await asyncio.gather(*(node.ask(command(what, its)) for its in keys))
    found = iter(master.look([key for its in keys for key in its]))
    for case, reply in zip(cases, replies, strict=True):
        wanted, states = expected(what, case)
        assert alike(plain(reply), wanted), (what, case, reply, wanted)
        after = [next(found) for _ in case]
        assert [value for value, _ in after] == [state.value for state in states], (what, case, reply)
        assert all(lives(ttl, state.ttl) for (_, ttl), state in zip(after, states, strict=True)), (
            what,
            case,
            after,
        )


async def test_a_key_about_to_expire_counts_until_it_has(master):
    """Its remaining life is at least a millisecond, and once it has expired it is missing."""
    keys = (b"redlock:a", b"redlock:b")
    async with connected(master.spec) as node:
        for what, holder, waiting, gone in (
            ("set_all", OTHERS, True, 0),
            ("release", OTHERS, True, [0, 0, 0]),
            ("extend", OURS, False, 0),
        ):
            master.put([(key, holder, 0.5) for key in keys])
            inspection = await node.ask(command("inspect", keys[:1]))
            assert inspection[0] == holder
            assert 0 <= inspection[1] <= 500
            if waiting:
                reply = await node.ask(command(what, keys))
                assert 1 <= (reply[1] if isinstance(reply, list) else reply) <= 500
            await eventually(lambda: not lock_keys(master), what="the keys expire")
            assert await node.ask(command(what, keys)) == gone
            master.put([(key, None, None) for key in keys])


async def test_a_fraction_of_a_millisecond_is_rounded_up(master):
    """A key must not end before its lock does, and a ttl of 0 would delete it."""
    mutex = Primitive(MUTEX, ("a",), (b"redlock:a",))
    async with connected(master.spec) as node:
        assert await node.ask(mutex.acquire(OURS, 59.9991)) == b"OK"
        assert await node.ask(mutex.extend(OURS, 0.0001)) == 1
        assert await node.ask(mutex.release(OURS, 60)) == [1, 0, 0]
        assert await node.ask(mutex.acquire(OURS, 0.00001)) == b"OK"
        await eventually(lambda: not lock_keys(master), what="the key expires")


async def test_values_and_keys_are_bytes(master):
    """Any byte may stand in a name or in another program's value."""
    key = b"redlock:\x00\r\n\xff{x} *1"
    mutex = Primitive(MUTEX, ("x",), (key,))
    async with connected(master.spec) as node:
        assert await node.ask(mutex.acquire(OURS, TTL)) == b"OK"
        assert lock_keys(master) == [key]
        assert await node.ask(mutex.release(OURS, TTL)) == [1, 0, 0]
        master.put([(key, b"\x00\r\n\xff", None)])
        assert await node.ask(command("inspect", (key,))) == [b"\x00\r\n\xff", -1, None]
        master.put([(key, b"", None)])
        assert await node.ask(command("inspect", (key,))) == [b"", -1, None]
        assert await node.ask(mutex.release(OURS, TTL)) == [0, -1, 0, 1]
