"""Looking at locks: what a key's value tells, what several nodes come to, and what a survey finds."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import ConfigurationError, LockInspection, NodeInspection, NodeState
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.unit.tasks import sim
from tests.unit.traces import PREFIX, count
from tests.unit.worlds import LATENCY, TTL, make, opened, world

OWNER = b"0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("look", ["survey", "inspect", "force_release"])
async def test_a_client_that_has_read_can_lock_at_once(look, number):
    """The first try after that is not made before the nodes know this client, be it one or two (R12)."""
    manager = make([MemoryNode(latency=LATENCY) for _ in range(number)])
    await getattr(manager, look)(*() if look == "survey" else ("a",))
    assert {node.state for node in manager.statistics().nodes} == {NodeState.QUARANTINED}
    for lease in await asyncio.gather(*(manager.lock(name).try_acquire() for name in "ab")):
        await lease.release()
    await manager.aclose()


async def test_a_prefix_inside_another_one_is_left_alone():
    """Its counters, records, queues and announcements are no locks of the shorter one, which changes none."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(3)]
    async with opened(nodes, prefix="p:q:") as inner, opened(nodes, prefix="p:") as outer:
        await inner.init()
        async with (
            inner.lock("a"),
            inner.semaphore("b", permits=2),
            inner.rwlock("c").read(),
            inner.election("d").campaign(),
            inner.lock("e", fair=True),
        ):
            held = {lock.name for lock in (await outer.survey()).locks}
            assert held == {f"q:{name}" for name in "abcde"}, "they may be its own"
        for node in nodes:
            node.set(b"p:q:{members}", b"3:server 1 2 client\n", 60.0)  # as clients with a quarantine do
        before = [set(node.keys) for node in nodes]
        assert not (await outer.survey()).locks
        assert all(node.done for node in await outer.init())
        for name in ("q:{meta}", "q:{members}"):
            with pytest.raises(ConfigurationError, match="a record of clients with a longer prefix"):
                await outer.force_release(name)
        for node, keys in zip(nodes, before, strict=True):
            assert keys <= set(node.keys)
        # A lock that is named like a record is one.
        async with outer.lock("x{meta}"):
            assert [lock.name for lock in (await outer.survey()).locks] == ["x{meta}"]
            await outer.force_release("x{meta}")
        assert not (await outer.survey()).locks


# -- one value ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "holder", "since"),
    [
        pytest.param(OWNER + b":1763629200123:host:42", "host:42", 1763629200.123, id="ours"),
        pytest.param(OWNER + b":1763629200123:", "", 1763629200.123, id="an empty label"),
        pytest.param(OWNER + b":1763629200123w:w:1", "w:1", 1763629200.123, id="a writer's"),
        pytest.param(OWNER + b":1763629200123z:", "", 1763629200.123, id="a kind of a newer version"),
        pytest.param(OWNER + b":0000000000000:x", "x", 0.0, id="a clock that was never set"),
        pytest.param(
            OWNER + b":1763629200123:1000000000000:x", "1000000000000:x", 1763629200.123, id="digits"
        ),
        pytest.param(OWNER + b":host:42", "host:42", None, id="an older version"),
        pytest.param(OWNER + b":12345:42", "12345:42", None, id="an older version, a host of digits"),
        pytest.param(OWNER + b":1763629200123:\xff\n", "\ufffd\n", 1763629200.123, id="not UTF-8"),
        pytest.param(OWNER, None, None, id="another program's, as long"),
        pytest.param(OWNER.upper() + b":x", None, None, id="another program's, with a colon"),
        pytest.param(b"", None, None, id="nothing"),
        pytest.param(b"x" * 100_000, None, None, id="a great deal"),
    ],
)
async def test_what_a_value_tells(value: bytes, holder: str | None, since: float | None) -> None:
    """Values of this version, of older ones and of other programs are all holders."""
    async with world(1) as w:
        w.nodes[0].set(PREFIX + b"a", value, 5.0)
        (seen,) = await w.manager.inspect("a")
        assert (seen.held, seen.holder, seen.since) == (True, holder, since)


@pytest.mark.parametrize(("left", "seconds"), [(5.0, 5.0), (0.0005, 0.0), (None, None)])
async def test_what_a_key_has_left(left: float | None, seconds: float | None) -> None:
    """In seconds, to the millisecond; the last one is no expiry that is missing (R16)."""
    async with world(1) as w:
        w.nodes[0].set(PREFIX + b"a", OWNER, None if left is None else LATENCY + left)
        (seen,) = await w.manager.inspect("a")
        assert (seen.held, seen.ttl) == (True, seconds)


async def test_a_lock_tells_since_when_it_is_held() -> None:
    """It is the moment of the try that won, to the millisecond, and extensions do not move it."""
    async with world(3) as w, w.process() as other:
        await asyncio.sleep(12.3456)
        began = EPOCH + sim().time()
        async with w.manager.lock("a") as lease:
            await asyncio.sleep(3 * TTL)
            assert lease.extensions
            for node in await other.inspect("a"):
                assert node.since is not None
                assert began - 0.0011 <= node.since <= began


# -- several nodes -----------------------------------------------------------------------------------


def looked(nodes):
    """Return a lock as nodes hold it: a letter per node.

    Letters are holders, ``.`` is free, ``?`` is silent, ``!`` another type.  The keys of capital letters
    have no expiry, of the others the first has 1 s, the second 2 s, and so on.
    """
    seen, groups = [], {}
    for number, letter in enumerate(nodes, start=1):
        if letter in "?!":
            reason = "no answer" if letter == "?" else "WRONGTYPE Operation"
            seen.append(NodeInspection(node=str(number), held=None, reason=reason))
        elif letter == ".":
            seen.append(NodeInspection(node=str(number), held=False))
        else:
            ttl = None if letter.isupper() else float(number)
            seen.append(NodeInspection(node=str(number), held=True, holder=letter.lower(), ttl=ttl))
            groups.setdefault(letter.lower(), []).append(seen[-1])
    agreed = tuple(max(groups.values(), key=len, default=[]))
    return LockInspection(name="x", nodes=tuple(seen), agreed=agreed)


@pytest.mark.parametrize(
    ("nodes", "state", "held_by", "holder", "ttl"),
    [
        ("aaaaa", "held", 5, "a", 3.0), ("aaa..", "held", 3, "a", 1.0),
        ("..aaa", "held", 3, "a", 3.0), ("aaabb", "held", 3, "a", 1.0),
        ("aaa??", "held", 3, "a", 1.0), ("aaa!!", "held", 3, "a", 1.0),
        ("aab..", "partial", 2, "a", 2.0), ("aabbc", "partial", 2, "a", 2.0),
        ("....a", "partial", 1, "a", 5.0), ("aa...", "partial", 2, "a", 2.0),
        ("aa..?", "unknown", 2, "a", 2.0), ("aa.!!", "partial", 2, "a", 2.0),
        ("a???.", "unknown", 1, "a", 1.0), ("a??..", "unknown", 1, "a", 1.0),
        ("a?...", "partial", 1, "a", 1.0), (".....", "free", 0, None, None),
        ("...??", "free", 0, None, None), ("..???", "unknown", 0, None, None),
        ("!!!!!", "partial", 0, None, None), ("....!", "partial", 0, None, None),
        ("AAAAA", "held", 5, "a", None), ("AaA..", "held", 3, "a", 2.0),
        ("AAAaa", "held", 5, "a", None), ("AAaaa", "held", 5, "a", 5.0),
        ("A....", "partial", 1, "a", None), ("Aa...", "partial", 2, "a", None),
        ("aa", "held", 2, "a", 1.0), ("a.", "partial", 1, "a", 1.0),
        ("a", "held", 1, "a", 1.0), (".", "free", 0, None, None)
    ]
)  # fmt: skip
def test_what_several_nodes_come_to(nodes, state, held_by, holder, ttl):
    """Held by a majority; its time ends when the majority does; silence leaves it open."""
    lock = looked(nodes)
    assert (lock.state, lock.held_by, lock.holder, lock.ttl) == (state, held_by, holder, ttl)


# -- a survey ----------------------------------------------------------------------------------------


async def test_a_survey_finds_every_lock():
    """Sorted by name, those of others too, with all nodes in order; and whether they are ours.  What is on a
    minority is found as well, and not what ends before it is looked at; no owner value is in any repr.
    """
    async with world(3, latency=0.02, holder="us") as w, w.process(holder="them") as other:
        leases = [await lock.acquire() for lock in (w.manager.lock("b", "c"), other.lock("a"))]
        w.occupy("brief", 0.05)
        w.occupy("left", 5.0, 1)
        for number, node in enumerate(w.nodes):  # what counts is the value, not the label
            node.set(PREFIX + b"same", b"%040x:1763629200123:me" % number, 5.0)
        survey = await w.manager.survey()
        assert [(lock.name, lock.state, lock.held_by, lock.holder) for lock in survey.locks] == [
            ("a", "held", 3, "them"),
            ("b", "held", 3, "us"),
            ("c", "held", 3, "us"),
            ("left", "partial", 1, None),
            ("same", "partial", 1, "me"),
        ]
        assert [node.node for node in survey.locks[0].nodes] == [node.name for node in w.nodes]
        ours = [[node.ours for node in lock.nodes] for lock in survey.locks[:3]]
        assert ours == [[False] * 3, [True] * 3, [True] * 3]
        assert (survey.truncated, survey.silent) == (False, ())
        assert survey.locks[4].since == 1763629200.123
        assert EPOCH + sim().time() - 0.2 < survey.at <= EPOCH + sim().time()
        assert w.nodes[0].get(PREFIX + b"a")[:40].decode() not in repr(survey)
        for lease in leases:
            await lease.release()


async def test_a_survey_of_names_searches_nothing() -> None:
    """Each name once, in the order given, free ones too; no SCAN is sent."""
    async with world(3) as w, w.manager.lock("a"), w.manager.lock("b"):
        survey = await w.manager.survey("c", "a", "c")
        assert [(lock.name, lock.state) for lock in survey.locks] == [("c", "free"), ("a", "held")]
        assert [count(node, "inspect") for node in w.nodes] == [1] * 3
        assert not any(words[0] == b"SCAN" for node in w.nodes for words in node.executed)


async def test_a_survey_tells_which_nodes_are_silent() -> None:
    """A dead and a frozen node are named with the reason, and the rest is shown."""
    async with world(5) as w, w.manager.lock("a"):
        w.nodes[1].crash()
        await asyncio.sleep(0.1)
        w.nodes[3].freeze()
        for asked in ((), ("a",)):
            survey = await w.manager.survey(*asked)
            assert [silent.node for silent in survey.silent] == [w.nodes[1].name, w.nodes[3].name]
            assert "refused" in survey.silent[0].reason
            assert "no answer" in survey.silent[1].reason
            assert [(lock.name, lock.state, lock.held_by) for lock in survey.locks] == [("a", "held", 3)]
        w.nodes[3].thaw()


async def test_a_survey_ends_at_its_limit():
    """It finds as many as it may and says that there are more; exactly as many is not more."""
    async with world(3) as w:
        for number in range(130):
            w.occupy(f"lock {number:03}", 60.0)
        for limit in (130, 129, 1):
            survey = await w.manager.survey(limit=limit)
            assert (len(survey.locks), survey.truncated) == (limit, limit < 130)
        for wrong in (0, -1, "5", 1.5):
            with pytest.raises((ValueError, TypeError), match=r"limit must be .* got"):
                await w.manager.survey(limit=wrong)


async def test_a_survey_ends_in_time(monkeypatch):
    """A node with too many keys for the time is left, and the survey says so."""
    async with world(3, latency=0.01) as w:
        w.occupy("a", 60.0)
        execute, more = (
            w.nodes[1].execute,
            b"*2\r\n$1\r\n7\r\n*0\r\n",
        )  # it never comes to the end of its keys
        monkeypatch.setattr(
            w.nodes[1], "execute", lambda words, *by: more if words[0] == b"SCAN" else execute(words, *by)
        )
        began = sim().time()
        survey = await w.manager.survey()
        assert survey.truncated
        assert [lock.name for lock in survey.locks] == ["a"]
        assert sim().time() - began == pytest.approx(5.02, abs=0.03)
