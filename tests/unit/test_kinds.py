"""Kinds as values: the answers to the mutex's commands, and the rules for all kinds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioredlock_ng._admin.inspection import holders_in
from aioredlock_ng._core.keyspace import RESERVED_NAMES, lock_key, locks_among, mark_key
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._kinds import KINDS
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive

GRANTED, REFUSED, SILENT = Vote.GRANTED, Vote.REFUSED, Vote.SILENT
OWNER = b"0123456789abcdef0123456789abcdef01234567:1763640000000:me"
SENTINEL = b"p:{meta}"
KEYS, COUNTERS = (b"p:a", b"p:b"), (b"p:fence:{p:a}", b"p:fence:{p:b}")
ONE = Primitive(MUTEX, ("a",), KEYS[:1])
TWO = Primitive(MUTEX, ("a", "b"), KEYS)
FENCED_ONE, FENCED_TWO = (
    Primitive(MUTEX, one.names, one.keys, counters=COUNTERS[:n], incarnation=SENTINEL, fence_ttl=600.0)
    for n, one in ((1, ONE), (2, TWO))
)
MUTEXES = {"one name": ONE, "two names": TWO, "one fenced": FENCED_ONE, "two fenced": FENCED_TWO}


@pytest.mark.parametrize("mutex", MUTEXES.values(), ids=MUTEXES)
def test_a_release_of_what_stays_says_for_how_long_and_is_quiet(mutex):
    """Milliseconds, rounded up, behind all the rest; what is not free then is not published (R34), nor is
    what is to be quiet.
    """
    plain = mutex.release(OWNER, 7.5)
    for quiet in (False, True):
        assert mutex.release(OWNER, 7.5, quiet=quiet).args == (*plain.args[:-1], b"" if quiet else b"1")
        stays = mutex.release(OWNER, 7.5, quiet=quiet, stays=0.0011)
        assert (stays.keys, stays.args) == (plain.keys, (*plain.args[:-1], b"", b"2"))


@pytest.mark.parametrize(
    ("mutex", "reply", "vote", "wait", "fence"),
    [
        (ONE, b"OK", GRANTED, None, 0),
        (ONE, None, REFUSED, None, 0),
        (TWO, 0, GRANTED, None, 0),
        (TWO, 1, REFUSED, 0.001, 0),
        (TWO, 2500, REFUSED, 2.5, 0),
        (TWO, -1, REFUSED, None, 0),
        (FENCED_ONE, [1, 4711, 8_000_000], GRANTED, None, 4711),
        (FENCED_TWO, [0, 2500, 8_000_000], REFUSED, 2.5, 0),
        (FENCED_ONE, [0, -1, 8_000_000], REFUSED, None, 0),
        (FENCED_TWO, [-1, 0, 8_000_000], SILENT, None, 0),
    ],
)
def test_an_acquire_is_read(mutex, reply, vote, wait, fence):
    """Stored is granted; anything else is refused, with the seconds that the key in the way has left.  A node
    that granted tells counter and time; one without a vote is silent (R10, R12, R14).
    """
    answer = mutex.read_acquire(reply)
    assert (answer.vote, answer.wait, answer.fence) == (vote, wait, fence)
    assert answer.time == (8.0 if fence else 0.0)
    assert bool(answer.reason) is (vote is SILENT)
    assert answer.sent


def test_only_readers_and_permits_share():
    """A mutex waits for each kind, and each kind for it; two kinds share only if both say so."""
    shared = {(one.name, other.name) for one in KINDS for other in KINDS if not one.conflicts(other)}
    assert shared == {("read", "read"), ("semaphore", "semaphore")}
    torch = replace(MUTEX, name="torch", shares_with=frozenset({"read"}))
    assert all(torch.conflicts(kind) and kind.conflicts(torch) for kind in KINDS)


def test_a_key_is_read_by_the_kind_that_knows_it():
    """A value that no kind knows is another program's; a free key has no holders; and no
    holder shows its owner value, as `repr` may end up in a log line (A5).
    """
    for found, seen in (
        ((OWNER, -1, None), ("me", 1763640000.0, None)),
        ((b"lit by hall", 1500, None), (None, None, 1.5)),
    ):
        (holder,) = holders_in(found)
        assert (holder.label, holder.since, holder.ttl) == seen
        assert OWNER[:40].decode() not in repr(holder)
    assert holders_in((None, -2, None)) == ()
    assert holders_in("down") is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_lock_can_be_named_like_what_a_kind_keeps_beside_it(kind):
    """Every mark is reserved, and a search for locks passes its keys over (R16)."""
    for mark in ("fence", *kind.beside):
        assert f"{mark}:{{" in RESERVED_NAMES
        for prefix in (b"p:", b"p:fence:{x}:", b"p:{q}"):  # under any that begins with it
            assert not locks_among(b"p:", [mark_key(prefix, mark, prefix + b"a")])
            with pytest.raises(ValueError, match="reserved"):
                lock_key(b"p:", mark_key(prefix, mark, prefix + b"a").decode()[2:])
        for other in (b"p:%b:{a}", b"p:q:%b:{p:a}", b"p:q:%b:{p:q:a", b"p:q:%b:{p:q:a}b"):
            assert locks_among(b"p:", [other % mark.encode()])
