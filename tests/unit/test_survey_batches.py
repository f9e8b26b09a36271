"""Surveys of many locks: one script tells of many, and of each as if it had been asked for alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from aioredlock_ng import LockInspection, NodeInspection, _scripts
from aioredlock_ng._admin import look as look_module
from aioredlock_ng._admin.inspection import MAX_READERS
from aioredlock_ng._admin.survey import _Reader
from aioredlock_ng._core.keyspace import COUNTER, mark_key
from aioredlock_ng._core.slots import MAX_PERMITS
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_data import Hash
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.unit.worlds import ANOTHER, PREFIX, STRANGER, TIMEOUT, World, count, sim, virtual, world

WRONG = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOPERM = b"-NOPERM No permissions to access a key\r\n"

Execute = Callable[..., bytes]


def owner(number: int, label: bytes = b"x") -> bytes:
    """Return an owner value."""
    return b"%040x:1763629200123:%b" % (number, label)


def keys(number: int) -> list[bytes]:
    """Return so many keys, in their order."""
    return [PREFIX + b"%05d" % each for each in range(number)]


def looks(node: MemoryNode) -> list[int]:
    """Return of how many locks each script was asked that a node has executed."""
    digest = _scripts.INSPECT.digest
    return [int(words[2]) // 2 for words in node.executed if words[0] == b"EVALSHA" and words[1] == digest]


def put_readers(node: MemoryNode, key: bytes, *owners: bytes, ttl: float = 60.0) -> None:
    """Have readers on a node."""
    server = node._server
    for each in owners:
        server.zadd(key, each, round(server.time_us() / 1000 + ttl * 1000))
    server.pexpire(key, ttl * 1000)


def put_permits(node: MemoryNode, key: bytes, *owners: bytes, ttl: float = 60.0) -> None:
    """Have permits of a semaphore held on a node, from slot 0 on."""
    server = node._server
    till = round(server.time_us() / 1000 + ttl * 1000)
    server.data[key] = Hash({b"%d" % slot: b"%d:%b" % (till, each) for slot, each in enumerate(owners)}), None


def answering(node: MemoryNode, answer: Callable[[list[bytes]], bytes | None]) -> Execute:
    """Return what lets a node answer otherwise to a look at locks."""
    execute = node.execute

    def execute_or_refuse(words: list[bytes], *rest: Any) -> bytes:
        said = answer(words[3:]) if words[1:2] == [_scripts.INSPECT.digest] else None
        return execute(words, *rest) if said is None else said

    return execute_or_refuse


async def alone(w: World, names: list[str]) -> list[LockInspection]:
    """Look at each lock by itself."""
    return [lock for name in names for lock in (await w.manager.survey(name)).locks]


# -- as if alone -------------------------------------------------------------------------------------


def put_anything(random: Random, node: MemoryNode, key: bytes) -> None:
    """Have nothing, or some holders, under a key."""
    owners = [owner(random.randrange(3)) for _ in range(random.choice((1, 2, 3, 120)))]
    what = random.randrange(7)
    if what in (0, 1):
        node.set(key, owners[0], random.choice((60.0, 30.0, None)))
    elif what == 2:
        node.set(key, random.choice((STRANGER, ANOTHER, b"readers", b"")), 60.0)
    elif what == 3:
        put_readers(node, key, *(owner(number) for number in range(len(owners))))
    elif what == 4:
        put_permits(node, key, *owners)
    elif what == 5:
        node._server.data[key] = [b"a list"], None
    if random.random() < 0.7:
        node.set(mark_key(PREFIX, COUNTER, key), random.choice((b"2", b"4", b"none")), 60.0)


@pytest.mark.parametrize("room", [1, 300, 2000, look_module.MAX_ANSWER])
def test_a_lock_is_told_as_if_it_were_asked_for_alone(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is under it and the others on each node, and wherever an answer becomes too long."""
    monkeypatch.setattr(look_module, "MAX_ANSWER", room)
    monkeypatch.setattr(look_module, "MAX_BATCH", 16)

    async def main() -> None:
        random = Random(room)
        async with world(3, latency=0.0) as w:
            found = keys(100)
            for key in found:
                alike = random.random() < 0.5
                seed = random.random()
                for node in w.nodes:
                    put_anything(Random(seed) if alike else random, node, key)
            names = [key[len(PREFIX) :].decode() for key in found]
            began = sim().time()
            survey = await w.manager.survey(*names)
            assert list(survey.locks) == await alone(w, names)
            # And by the short way, where all have the same, as by the long one.
            monkeypatch.setattr(_Reader, "_alike", lambda self, name, row, _: self._unlike(name, row))
            assert list(survey.locks) == await alone(w, names)
            assert sim().time() == began, "else their times would differ"
            assert [lock.nodes for lock in survey.locks] == [await w.manager.inspect(name) for name in names]
            assert {lock.state for lock in survey.locks} >= {"held", "partial", "free"}
            assert {lock.highest_fence for lock in survey.locks} == {None, 2, 4}
            assert {lock.kind for lock in survey.locks} == {None, "mutex", "read", "semaphore"}

    virtual(main)()


@virtual
async def test_a_key_of_another_type_is_the_answer_of_its_lock_alone() -> None:
    """On the nodes that have it, with the server's words; all others are told as ever."""
    async with world(3) as w:
        for name in ("a", "b", "c"):
            w.occupy(name, 60.0, value=ANOTHER)
        w.nodes[1]._server.data[PREFIX + b"b"] = [b"a list"], None
        survey = await w.manager.survey()
        assert [(lock.name, lock.state, lock.held_by) for lock in survey.locks] == [
            ("a", "held", 3), ("b", "held", 2), ("c", "held", 3)
        ]  # fmt: skip
        odd = survey.locks[1].nodes[1]
        assert (odd.held, odd.wrong_type, odd.reason) == (None, True, WRONG)
        assert survey.silent == ()
        assert [looks(node) for node in w.nodes] == [[3]] * 3
        (_, seen, _) = await w.manager.inspect("b")
        assert seen == odd


# -- how many at once --------------------------------------------------------------------------------


@virtual
async def test_many_locks_are_told_by_few_scripts() -> None:
    """One after the other, in the order of the names; a node that is a client needs one connection for it."""
    async with world(3, latency=0.01) as w:
        most, batch = 0, look_module.MAX_BATCH
        for key in keys(2 * batch + 1):
            for node in w.nodes:
                node.set(key, ANOTHER, 60.0)
        looking = asyncio.create_task(w.manager.survey())
        while not looking.done():
            await asyncio.sleep(0.001)
            most = max(most, w.manager.statistics().nodes[0].in_flight)
        survey = await looking
        assert [PREFIX + lock.name.encode() for lock in survey.locks] == keys(2 * batch + 1)
        assert {lock.held_by for lock in survey.locks} == {3}
        assert [looks(node) for node in w.nodes] == [[batch, batch, 1]] * 3
        assert most <= 2, "a look, and a heartbeat"


@virtual
async def test_what_an_answer_leaves_out_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all nodes alike, from the first lock on that one of them has left out."""
    monkeypatch.setattr(look_module, "MAX_ANSWER", 1000)
    async with world(3) as w:
        for key in keys(10):
            for node in w.nodes:
                node.set(key, owner(7), 60.0)
        w.nodes[1].set(keys(3)[2], owner(7, b"y" * 900), 60.0)
        survey = await w.manager.survey()
        assert [lock.held_by for lock in survey.locks] == [3, 3, 2, *[3] * 7]
        # Of each lock 55 bytes and two entries of 16: there would be room for the rest.
        assert [looks(node) for node in w.nodes] == [[10, 7]] * 3


@virtual
async def test_long_answers_tell_of_one_lock_at_least() -> None:
    """Readers and permits by the hundred, with the longest of labels: no reply becomes too long."""
    async with world(3) as w:
        label, (first, second, third) = b"z" * 800, keys(3)
        for node in w.nodes:
            put_permits(node, first, *(owner(each, label) for each in range(MAX_PERMITS)))
            put_readers(node, second, *(owner(each, label) for each in range(MAX_READERS + 50)))
            node.set(third, ANOTHER, 60.0)
        permits, readers, mutex = (await w.manager.survey()).locks
        assert (len(permits.permits), permits.state) == (MAX_PERMITS, "held")
        assert (len(readers.readers), readers.more_readers, readers.state) == (MAX_READERS, True, "held")
        assert (mutex.kind, mutex.state) == ("mutex", "held")
        assert [looks(node) for node in w.nodes] == [[3, 2, 1]] * 3


@virtual
async def test_no_lock_is_told_to_stay_longer_than_it_does() -> None:
    """By the moment of the survey and what a lock has left, whenever in its course the lock was looked at."""
    async with world(3, latency=0.04) as w:
        ends = EPOCH + sim().time() + 60.0
        for key in keys(4 * look_module.MAX_BATCH):
            for node in w.nodes:
                node.set(key, ANOTHER, 60.0)
        survey = await w.manager.survey()
        left = [lock.ttl for lock in survey.locks if lock.ttl is not None]
        assert len(left) == len(survey.locks)
        assert survey.at + max(left) <= ends
        assert survey.at + min(left) > ends - 0.5


# -- nodes that do not tell --------------------------------------------------------------------------


def reasons(lock: LockInspection) -> list[str]:
    """Return why nodes did not tell of a lock."""
    return [node.reason for node in lock.nodes if node.held is None]


@virtual
async def test_a_silent_node_is_waited_for_once_for_many_locks() -> None:
    """It is silent for each of them, and what the others have is told."""
    async with world(3) as w:
        for key in keys(look_module.MAX_BATCH):
            for node in w.nodes:
                node.set(key, ANOTHER, 60.0)
        w.nodes[2].freeze()
        began = sim().time()
        survey = await w.manager.survey(*(key[len(PREFIX) :].decode() for key in keys(look_module.MAX_BATCH)))
        assert sim().time() - began == pytest.approx(TIMEOUT, abs=0.01)
        assert {(lock.state, lock.held_by) for lock in survey.locks} == {("held", 2)}
        assert {tuple(reasons(lock)) for lock in survey.locks} == {("no answer within 0.1 s",)}
        assert [silent.node for silent in survey.silent] == [w.nodes[2].name]
        w.nodes[2].thaw()


@virtual
async def test_a_node_that_refuses_is_silent_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own words, and asked for each alone: the right may be one to a single key."""
    async with world(3) as w:
        for key in keys(20):
            for node in w.nodes:
                node.set(key, ANOTHER, 60.0)
        monkeypatch.setattr(w.nodes[0], "execute", answering(w.nodes[0], lambda _: NOPERM))
        survey = await w.manager.survey()
        assert {(lock.state, lock.held_by) for lock in survey.locks} == {("held", 2)}
        assert {reason for lock in survey.locks for reason in reasons(lock)} == {NOPERM.decode()[1:-2]}
        assert [silent.node for silent in survey.silent] == [w.nodes[0].name]
        assert [looks(node) for node in w.nodes[1:]] == [[20]] * 2


@virtual
async def test_a_forbidden_key_is_no_reason_to_tell_nothing_of_the_others(monkeypatch):
    """A script with it among its keys is refused as a whole (R42); few are asked for at the same time."""
    async with world(3, latency=0.01) as w:
        forbidden, found = PREFIX + b"00007", keys(30)
        for key in found:
            for node in w.nodes:
                node.set(key, ANOTHER, 60.0)
        refusing = answering(w.nodes[0], lambda words: NOPERM if forbidden in words else None)
        monkeypatch.setattr(w.nodes[0], "execute", refusing)
        looking, most = asyncio.create_task(w.manager.survey()), 0
        while not looking.done():
            await asyncio.sleep(0.001)
            most = max(most, w.manager.statistics().nodes[0].in_flight)
        survey = await looking
        assert [lock.held_by for lock in survey.locks] == [3] * 7 + [2] + [3] * 22
        assert "NOPERM" in reasons(survey.locks[7])[0]
        assert [(silent.node, "NOPERM" in silent.reason) for silent in survey.silent] == [
            (w.nodes[0].name, True)
        ]
        assert 2 <= most <= look_module.ASKED_ALONE + 1  # and a heartbeat


@virtual
async def test_no_node_tells_of_any_lock() -> None:
    """A survey of names ends all the same, with what is not known."""
    async with world(3) as w:
        for node in w.nodes:
            node.freeze()
        survey = await w.manager.survey("a", "b")
        assert [(lock.name, lock.state) for lock in survey.locks] == [("a", "unknown"), ("b", "unknown")]
        assert len(survey.silent) == 3
        for node in w.nodes:
            node.thaw()


@virtual
async def test_a_survey_of_no_locks_asks_nothing() -> None:
    """Where none was found."""
    async with world(3) as w:
        assert (await w.manager.survey()).locks == ()
        assert [count(node, "inspect") for node in w.nodes] == [0] * 3


# -- answers that are none ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "fits"),
    [
        ([None, -2, None], True), ([b"x", 5, b"7"], True), ([b"x", 5, b"7", None, -2, None], True),
        ([[b"WRONGTYPE"], -1, None], True), ([[b"r", 5, b"s", 6], 7, None], True), ([[], 7, None], True),
        ([[3, b"o", 5], 7, None], True),
        ([], False), ([b"x"], False), ([b"x", 5], False), ([b"x", 5, b"7", b"y"], False),
        ([b"x", b"5", None], False), ([5, 5, None], False), ([b"x", 5, 7], False), ([b"x", 5, [b"7"]], False),
        ([b"x", 5, None, None, -2, None, b"y", 5, None], False), ([[5], 7, None], False),
        ([[b"r", b"s"], 7, None], False), ([[b"r", 5, b"s"], 7, None], False),
        ([[3, b"o", 5, 4], 7, None], False), (None, False), (b"x", False)
    ]
)  # fmt: skip
def test_what_can_be_an_answer(reply: object, fits: bool) -> None:
    """Of two locks it may leave out the second; what else comes shows that replies are out of step (R15)."""
    assert look_module.look_for(PREFIX, b"a", b"b").fits(reply) is fits


@virtual
async def test_a_node_that_tells_of_one_lock_at_a_time_is_asked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it has room for: each answer tells of one lock more."""
    monkeypatch.setattr(look_module, "MAX_ANSWER", 1)
    async with world(1) as w:
        for key in keys(5):
            w.nodes[0].set(key, ANOTHER, 60.0)
        survey = await w.manager.survey()
        assert [node for lock in survey.locks for node in lock.nodes if node.held] == [
            NodeInspection(
                node=w.nodes[0].name,
                held=True,
                holder="another",
                since=1_700_000_000.0,
                ttl=lock.ttl,
                kind="mutex",
            )
            for lock in survey.locks
        ]
        assert looks(w.nodes[0]) == [5, 4, 3, 2, 1]
