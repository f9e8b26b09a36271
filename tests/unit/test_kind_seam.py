"""What a kind may be: a lamp, which no release has, goes through all that knows no kind.

It is held by whichever client switched it on; its key has another form, a key beside it, and its scripts
take arguments of its own and answer with more than a mutex's.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioredlock_ng._admin.inspection import holders_in
from aioredlock_ng._admin.survey import survey
from aioredlock_ng._cli._overview import as_lines
from aioredlock_ng._core.command import Answer, Reply, Script
from aioredlock_ng._core.keyspace import RESERVED_NAMES, locks_among, mark_key
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._dashboard.overview import Overview
from aioredlock_ng._kinds import KINDS
from aioredlock_ng._kinds.answers import fits_int, read_grant, seconds
from aioredlock_ng._kinds.kind import Holder, Kind, Question
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import PREFIX, make, virtual

OWNER = b"0123456789abcdef0123456789abcdef01234567:1763640000000:me"
COUNTERS, SENTINEL = (b"p:fence:{p:a}", b"p:fence:{p:b}"), b"p:{meta}"
KEYS = (b"p:a", b"p:b")


def read_lamp(found: object, left_ms: int) -> tuple[Holder, ...] | None:
    """Read ``lit by LABEL``."""
    if not isinstance(found, bytes) or not found.startswith(b"lit by "):
        return None
    return (Holder(owner=found, label=found[7:].decode(), ttl=seconds(left_ms)),)


def read_switch(reply: Reply) -> Answer:
    """Read a grant that says how bright it is."""
    return read_grant(reply[:3]) if isinstance(reply, list) else read_grant(reply)


def switch(name: str) -> Question:
    """Return a question with an argument of the lamp's own."""
    return Question(script=Script(name, name.encode()), fits=fits_int, read=read_switch, args=(b"bright",))


LAMP = Kind(
    name="lamp",
    noun="lamp",
    shares_with=frozenset({"lamp"}),
    acquire=switch("on"),
    acquire_plain=switch("on, plain"),
    acquire_one_plain=switch("on, plain"),
    raise_=switch("raise"),
    extend=switch("extend"),
    top_up=switch("top up"),
    release=switch("off"),
    beside=("bulb",),
    read_key=read_lamp,
)
BULBS = tuple(mark_key(b"p:", "bulb", key) for key in KEYS)
FENCED = Primitive(
    LAMP, ("a", "b"), KEYS, counters=COUNTERS, beside=BULBS, sentinel=SENTINEL, fence_ttl=600.0
)
PLAIN = Primitive(LAMP, ("a",), KEYS[:1], beside=BULBS[:1], sentinel=SENTINEL)


# -- what conflicts ----------------------------------------------------------------------------------


def test_a_mutex_conflicts_with_everything():
    """It waits for each kind, and each kind for it."""
    for other in (MUTEX, LAMP):
        assert MUTEX.conflicts(other)
        assert other.conflicts(MUTEX)


def test_a_kind_shares_with_those_that_it_names():
    """Two lamps may burn at once."""
    assert not LAMP.conflicts(LAMP)
    assert LAMP.conflicts(replace(LAMP, name="candle"))


def test_kinds_share_only_if_both_say_so():
    """It does not matter which of them asks, and which holds."""
    torch = replace(LAMP, name="torch", shares_with=frozenset({"lamp", "torch"}))
    assert torch.conflicts(LAMP)
    assert LAMP.conflicts(torch)
    lamp = replace(LAMP, shares_with=frozenset({"lamp", "torch"}))
    assert not torch.conflicts(lamp)
    assert not lamp.conflicts(torch)


# -- what is sent ------------------------------------------------------------------------------------


def test_every_kinds_commands_are_put_together_in_one_way():
    """Locks, counters, what is kept beside them, sentinel; what all are given, the kind's own, what stays."""
    with_fence, without = KEYS + COUNTERS + BULBS, KEYS[:1] + BULBS[:1]
    life, own = b"600000", b"bright"
    acquire = FENCED.acquire(OWNER, 9.0, 7)
    assert (acquire.keys, acquire.args) == ((*with_fence, SENTINEL), (OWNER, b"9000", b"7", b"1", life, own))
    raised = FENCED.raise_(OWNER, 8)
    assert (raised.keys, raised.args) == ((*with_fence, SENTINEL), (OWNER, b"8", life, own))
    extended = FENCED.extend(OWNER, 9.0, 8)
    assert (extended.keys, extended.args) == ((*with_fence, SENTINEL), (OWNER, b"9000", b"8", life, own))
    topped_up = FENCED.top_up(OWNER, 9.0, 8)
    assert (topped_up.keys, topped_up.args) == (with_fence, (OWNER, b"9000", b"8", life, own))
    released = FENCED.release(OWNER, 9.0, 8, stays=1.5)
    assert (released.keys, released.args) == (with_fence, (OWNER, b"8", life, b"", own, b"1500"))
    plain = PLAIN.acquire(OWNER, 9.0)
    assert (plain.keys, plain.args) == ((*without, SENTINEL), (OWNER, b"9000", b"0", b"1", b"1", own))
    assert plain.script is LAMP.acquire_one_plain.script


def test_answers_are_read_by_the_kind():
    """What a kind's scripts say more than others is its reader's business, and silence means the same."""
    answer = FENCED.read_acquire([1, 4711, 8_000_000, 3])
    assert (answer.vote, answer.fence) == (Vote.GRANTED, 4711)


# -- what is seen ------------------------------------------------------------------------------------


def test_a_key_is_read_by_the_kind_that_knows_it():
    """What no kind knows is another program's; a free key has no holders, a silent node tells nothing."""
    kinds = (*KINDS, LAMP)
    (lamp,) = holders_in((b"lit by hall", 1500, None), kinds) or ()
    assert (lamp.label, lamp.since, lamp.ttl) == ("hall", None, 1.5)
    (mutex,) = holders_in((OWNER, -1, None), kinds) or ()
    assert (mutex.label, mutex.since, mutex.ttl) == ("me", 1763640000.0, None)
    (other,) = holders_in((b"lit by hall", 1500, None)) or ()
    assert (other.label, other.ttl) == (None, 1.5)
    assert holders_in((None, -2, None), kinds) == ()
    assert holders_in("down", kinds) is None


def test_no_holder_shows_its_owner_value():
    """`repr` may end up in a log line (A5)."""
    (holder,) = MUTEX.read_key(OWNER, 1) or ()
    assert holder.owner == OWNER
    assert OWNER[:40].decode() not in repr(holder)


@virtual
async def test_status_shows_a_key_of_another_kind():
    """A survey asks the kinds what they know, and `status` shows it."""
    nodes = [MemoryNode() for _ in range(3)]
    for node in nodes:
        node.set(PREFIX + b"porch", b"lit by hall", 4.0)
    async with make(nodes) as manager:
        session = await manager._life.start(read_only=True)
        found = await survey(session, PREFIX, (), 10, (*KINDS, LAMP))
        lines = as_lines(Overview(nodes=manager.statistics().nodes, survey=found))
    (lock,) = found.locks
    assert (lock.name, lock.state, lock.holder, lock.held_by) == ("porch", "held", "hall", 3)
    assert any(line.text.split()[:3] == ["porch", "-", "hall"] for line in lines)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_lock_can_be_named_like_what_a_kind_keeps_beside_it(kind: Kind):
    """Every mark is reserved, and a search for locks passes its keys over (R16)."""
    for mark in ("fence", *kind.beside):
        assert f"{mark}:{{" in RESERVED_NAMES
        assert not locks_among(b"p:", [mark_key(b"p:", mark, b"p:a")])
