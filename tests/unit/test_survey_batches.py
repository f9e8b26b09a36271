"""Surveys of many locks: one script tells of many, and of each as if it had been asked for alone."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._admin import look as look_module
from aioredlock_ng.testing._memory_data import Hash
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.unit.tasks import sim
from tests.unit.traces import PREFIX, counter
from tests.unit.worlds import ANOTHER, STRANGER, TIMEOUT, each, world

NOPERM = b"-NOPERM No permissions to access a key\r\n"
MAX_READERS, MAX_PERMITS = 100, 256


def owner(number, label=b"x"):
    """Return an owner value."""
    return b"%040x:1763629200123:%b" % (number, label)


def put(w, number, value=ANOTHER):
    """Have this number of locks on all nodes; return their keys, in their order."""
    keys = [PREFIX + b"%05d" % each for each in range(number)]
    for node in w.nodes:
        for key in keys:
            node.set(key, value, 60.0)
    return keys


def looks(w):
    """Return of how many locks each script was asked that the nodes have executed."""
    return [
        [int(words[2]) // 2 for words in node.executed if words[:2] == (b"EVALSHA", _scripts.INSPECT.digest)]
        for node in w.nodes
    ]


def put_readers(node, key, *owners):
    """Have readers on a node."""
    for owner in owners:
        node._server.zadd(key, owner, round(node._server.time_us() / 1000 + 60_000))
    node._server.pexpire(key, 60_000)


def put_permits(node, key, *owners):
    """Have permits of a semaphore held on a node, from slot 0 on."""
    till = round(node._server.time_us() / 1000 + 60_000)
    fields = {b"%d" % slot: b"%d:%b" % (till, each) for slot, each in enumerate(owners)}
    node._server.data[key] = Hash(fields), None


def refuse(monkeypatch, node, refuses):
    """Have a node refuse looks at locks whose keys `refuses` is true of."""
    execute = node.execute

    def answer(words, *by):
        looks = words[1:2] == [_scripts.INSPECT.digest]
        return NOPERM if looks and refuses(words[3:]) else execute(words, *by)

    monkeypatch.setattr(node, "execute", answer)


async def survey_of(w):
    """Make a survey, and return it with the most that was in flight to the first node."""
    looking, most = asyncio.create_task(w.manager.survey()), 0
    while not looking.done():
        await asyncio.sleep(0.001)
        most = max(most, w.manager.statistics().nodes[0].in_flight)
    return await looking, most


# -- as if alone -------------------------------------------------------------------------------------


def put_anything(random, node, key):
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
        node.set(counter(key[len(PREFIX) :].decode()), random.choice((b"2", b"4", b"none")), 60.0)


@pytest.mark.parametrize("room", [1, 300, 2000, look_module.MAX_ANSWER])
async def test_a_lock_is_told_as_if_it_were_asked_for_alone(room, monkeypatch):
    """Whatever is under it and the others on each node, and wherever an answer becomes too long."""
    monkeypatch.setattr(look_module, "MAX_ANSWER", room)
    monkeypatch.setattr(look_module, "MAX_BATCH", 16)
    random = Random(room)
    async with world(3, latency=0.0) as w:
        names = [f"{number:05}" for number in range(100)]
        for name in names:
            same, seed = random.random() < 0.5, random.random()
            for node in w.nodes:
                put_anything(Random(seed) if same else random, node, PREFIX + name.encode())
        began = sim().time()
        survey = await w.manager.survey(*names)
        alone = [lock for name in names for lock in (await w.manager.survey(name)).locks]
        assert list(survey.locks) == alone
        assert sim().time() == began, "else their times would differ"
        assert [lock.nodes for lock in survey.locks] == [await w.manager.inspect(name) for name in names]
        assert {lock.state for lock in survey.locks} >= {"held", "partial", "free"}
        assert {lock.highest_fence for lock in survey.locks} == {None, 2, 4}
        assert {lock.kind for lock in survey.locks} == {None, "mutex", "read", "semaphore"}


# -- how many at once --------------------------------------------------------------------------------


async def test_many_locks_are_told_by_few_scripts():
    """One after the other, in the order of the names; a node that is a client needs one connection for it.  A
    silent node is waited for once for many locks, and if all are silent the survey ends all the same.
    """
    async with world(3, latency=0.01) as w:
        batch = look_module.MAX_BATCH
        assert (await w.manager.survey()).locks == ()
        assert looks(w) == [[]] * 3
        keys = put(w, 2 * batch + 1)
        survey, most = await survey_of(w)
        assert [PREFIX + lock.name.encode() for lock in survey.locks] == keys
        assert {lock.held_by for lock in survey.locks} == {3}
        assert looks(w) == [[batch, batch, 1]] * 3
        assert most <= 2, "a look, and a heartbeat"
        names = [lock.name for lock in survey.locks[:batch]]
        w.nodes[2].freeze()
        began = sim().time()
        survey = await w.manager.survey(*names)
        assert sim().time() - began == pytest.approx(TIMEOUT, abs=0.03)
        assert {(lock.state, lock.held_by) for lock in survey.locks} == {("held", 2)}
        assert {tuple(reasons(lock)) for lock in survey.locks} == {("no answer within 0.1 s",)}
        assert [silent.node for silent in survey.silent] == [w.nodes[2].name]
        each(w.nodes[:2]).freeze()
        survey = await w.manager.survey(*names)
        assert {lock.state for lock in survey.locks} == {"unknown"}
        assert len(survey.silent) == 3
        each(w.nodes).thaw()


async def test_what_an_answer_leaves_out_is_asked_for_again(monkeypatch):
    """Of all nodes, from the first lock on that one of them has left out; each answers for one at least."""
    monkeypatch.setattr(look_module, "MAX_ANSWER", 1000)
    async with world(3) as w:
        keys = put(w, 10, owner(7))
        w.nodes[1].set(keys[2], owner(7, b"y" * 900), 60.0)
        survey = await w.manager.survey()
        assert [lock.held_by for lock in survey.locks] == [3, 3, 2, *[3] * 7]
        # Of each lock 55 bytes and two entries of 16: there would be room for the rest.
        assert looks(w) == [[10, 7]] * 3
        monkeypatch.setattr(look_module, "MAX_ANSWER", 1)
        survey = await w.manager.survey()
        assert [lock.held_by for lock in survey.locks] == [3, 3, 2, *[3] * 7]
        assert looks(w) == [[10, 7, *range(10, 0, -1)]] * 3


async def test_long_answers_tell_of_one_lock_at_least():
    """Readers and permits by the hundred, with the longest of labels: no reply becomes too long."""
    async with world(3) as w:
        first, second, _ = put(w, 3)
        owners = [owner(each, b"z" * 800) for each in range(MAX_PERMITS)]
        for node in w.nodes:
            put_permits(node, first, *owners)
            node.delete(second)
            put_readers(node, second, *owners[: MAX_READERS + 50])
        permits, readers, mutex = (await w.manager.survey()).locks
        assert (len(permits.permits), permits.state) == (MAX_PERMITS, "held")
        assert (len(readers.readers), readers.more_readers, readers.state) == (MAX_READERS, True, "held")
        assert (mutex.kind, mutex.state) == ("mutex", "held")
        assert looks(w) == [[3, 2, 1]] * 3


async def test_no_lock_is_told_to_stay_longer_than_it_does():
    """By the moment of the survey and what a lock has left, whenever in its course the lock was looked at."""
    async with world(3, latency=0.04) as w:
        ends = EPOCH + sim().time() + 60.0
        put(w, 4 * look_module.MAX_BATCH)
        survey = await w.manager.survey()
        left = [lock.ttl for lock in survey.locks]
        assert survey.at + max(left) <= ends
        assert survey.at + min(left) > ends - 0.5


# -- nodes that do not tell --------------------------------------------------------------------------


def reasons(lock):
    """Return why nodes did not tell of a lock."""
    return [node.reason for node in lock.nodes if node.held is None]


async def test_a_forbidden_key_is_no_reason_to_tell_nothing_of_the_others(monkeypatch):
    """A script with it among its keys is refused as a whole (R42); few are asked for at the same time."""
    async with world(3, latency=0.01) as w:
        forbidden = put(w, 30)[7]
        refuse(monkeypatch, w.nodes[0], lambda keys: forbidden in keys)
        survey, most = await survey_of(w)
        assert [lock.held_by for lock in survey.locks] == [3] * 7 + [2] + [3] * 22
        assert "NOPERM" in reasons(survey.locks[7])[0]
        (silent,) = survey.silent
        assert (silent.node, "NOPERM" in silent.reason) == (w.nodes[0].name, True)
        assert 2 <= most <= look_module.MAX_BATCH + 1  # and a heartbeat
