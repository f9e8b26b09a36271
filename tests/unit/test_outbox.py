"""The outbox: what leaves together at the end of a turn, in which order, and for how long (R42)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, Final

import pytest

from aioredlock_ng import Vote, _scripts
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._lock.attempt import Attempt
from aioredlock_ng._lock.session import Session
from aioredlock_ng._node import NodeState, pipe
from aioredlock_ng._node.handshake import Identity
from aioredlock_ng._round.batch import MAX_BATCH, Asked, Extensions, FencedAcquires, PlainAcquires, Releases
from aioredlock_ng._round.outbox import CALM, Outbox, TickContext
from aioredlock_ng._round.round import Round
from aioredlock_ng.testing import memory_node
from tests.simulation.wires import Break, WiredNode
from tests.unit.tasks import in_task, sim, turns, until
from tests.unit.traces import PREFIX, counter, locks
from tests.unit.worlds import LATENCY, PLAIN, TIMEOUT, TTL, World, each, opened, states, world

NAMES: Final = {
    **{script.digest: script.name for script in _scripts.ALL},
    **{script.source: f"{script.name} in full" for script in _scripts.ALL},
}

ROUND_TRIP: Final = 2.5 * LATENCY


def verbs(node: WiredNode) -> list[str]:
    """Return what a node has executed: scripts by their names."""
    return [NAMES[words[1]] if words[0].startswith(b"EVAL") else words[0].decode() for words in node.executed]


def sizes(node: WiredNode) -> list[int]:
    """Return of each script that a node has executed how many keys it had."""
    return [int(words[2]) for words in node.executed if words[0].startswith(b"EVAL")]


def forget(w: World) -> None:
    """Forget what was executed so far."""
    for node in w.nodes:
        node.executed.clear()


def session_of(w: World) -> Session:
    """Return what the world's manager lives in."""
    session = w.manager._life.session
    assert session is not None
    return session


def outbox_of(w: World) -> Outbox:
    """Return what the world's manager asks through."""
    return session_of(w).outbox


def linked(w: World, index: int) -> Any:
    """Return the manager's node of that number."""
    return w.manager._life.nodes[index]


async def answered() -> None:
    """Wait until what is asked in this turn has been answered."""
    await asyncio.sleep(ROUND_TRIP)


def attempt(w: World, name: str) -> Attempt:
    """Return a try to acquire a lock."""
    lock = w.manager.lock(name)
    return Attempt(session_of(w), lock._primitive, lock._request, TIMEOUT, seen=0)


def primitive(w: World, name: str) -> Primitive:
    """Return a lock as the manager asks for it."""
    return w.manager.lock(name)._primitive


def owner(name: str) -> bytes:
    """Return an owner value."""
    return name.encode().ljust(40, b"0") + b":1:me"


def acquire(
    w: World, name: str, *, ttl: float = TTL, ballot: int = 7_000, block: int = 1, by: str = ""
) -> Asked:
    """Put an acquire into the outbox; the owner is named as the lock, if not otherwise."""
    now = sim().clock.now()
    make = FencedAcquires if ballot else PlainAcquires
    asked = Asked(outbox_of(w), make, primitive(w, name), owner(by or name), ttl, ballot, block)
    outbox_of(w).ask(asked, TIMEOUT, TickContext(now, ballot, b""))
    return asked


def release(w: World, name: str, *, unsent: tuple[int, ...] = (), quiet: bool = False) -> Asked:
    """Put a release into the outbox."""
    asked = Asked(outbox_of(w), Releases, primitive(w, name), owner(name), TTL, quiet=quiet, unsent=unsent)
    asked.learns = True
    outbox_of(w).ask(asked, TIMEOUT, waits=quiet)
    return asked


def ask_alone(w: World, name: str) -> Round:
    """Ask for a lock by a command of its own."""
    reading = w.manager.rwlock(name).read()._primitive
    asked = Round(outbox_of(w), reading.read_acquire)
    asked.ask(reading.acquire(owner(name), TTL, 7_000), TIMEOUT)
    return asked


def extend(w: World, name: str, *, ttl: float = TTL, fence: int = 7_000) -> Asked:
    """Put an extension into the outbox."""
    asked = Asked(outbox_of(w), Extensions, primitive(w, name), owner(name), ttl, fence)
    outbox_of(w).ask(asked, TIMEOUT, waits=True)
    return asked


def votes(asked: Any) -> list[Vote]:
    """Return what the nodes said."""
    return [vote.vote for vote in asked.votes()]


GRANTED, REFUSED, SILENT = Vote.GRANTED, Vote.REFUSED, Vote.SILENT

# -- in which order ----------------------------------------------------------------------------------


async def test_extensions_leave_before_releases_and_these_before_acquires():
    """In whatever order tasks ask within a turn: a name that is released is free for the next of them."""
    async with world() as w:
        for name in "ab":
            acquire(w, name)
        await answered()
        forget(w)
        other = acquire(w, "a", ballot=9_000, by="x")
        gone, kept = release(w, "a"), extend(w, "b")
        await answered()
        for node in w.nodes:
            assert verbs(node) == ["extend_many", "release_many", "acquire_many"]
        assert votes(other) == votes(gone) == votes(kept) == [GRANTED] * 3
        assert w.holders("a") == [owner("x")] * 3
        other = Asked(outbox_of(w), Releases, primitive(w, "a"), owner("x"), TTL, quiet=True)
        outbox_of(w).ask(other, TIMEOUT, waits=True)


async def test_what_is_undone_in_its_own_turn_leaves_first():
    """The release of a try that waits in the outbox comes behind it, and leaves no key (R5)."""
    async with world() as w:
        tried = attempt(w, "a")
        tried.ask()
        assert all(node.executed == [] for node in w.nodes)
        undone = tried.undo(TIMEOUT)
        await answered()
        assert all(verbs(node) == ["acquire_many", "release_many"] for node in w.nodes)
        assert w.keys == [()] * 3
        assert votes(tried.round) == votes(undone) == [GRANTED] * 3


async def test_a_command_of_its_own_comes_behind_what_was_asked_before():
    """Several names at once, a raise or a look: they find done what waits in the outbox."""
    async with world() as w:
        asked, both = acquire(w, "a"), w.manager.lock("a", "b")._primitive
        other = Round(outbox_of(w), both.read_acquire)
        other.ask(both.acquire(owner("x"), TTL, 7_000), TIMEOUT)
        await answered()
        assert all(verbs(node) == ["acquire_many", "acquire"] for node in w.nodes)
        assert (votes(asked), votes(other)) == ([GRANTED] * 3, [REFUSED] * 3)


async def test_all_of_a_turn_leaves_in_one_write(monkeypatch: pytest.MonkeyPatch):
    """Of however many tasks; the next turn's questions are the next turn's."""
    async with world() as w:
        writes: list[bytes] = []
        for index in range(3):
            monkeypatch.setattr(linked(w, index)._link.pipe, "write", writes.append)
        for names in ("abcde", "f"):
            writes.clear()
            for name in names:
                acquire(w, name)
            assert writes == []
            await turns(1)
            assert len(writes) == 3
        monkeypatch.undo()
        for index in range(3):
            linked(w, index)._link.give_up("a test that kept its bytes")


async def test_a_lone_task_is_sent_at_once_and_overtakes_nothing(monkeypatch: pytest.MonkeyPatch):
    """After some rounds in a row that found none under way; others of the same turn then wait for its end."""
    async with world() as w:
        writes: list[bytes] = []
        for index in range(3):
            write = linked(w, index)._link.pipe.write
            monkeypatch.setattr(
                linked(w, index)._link.pipe,
                "write",
                lambda data, write=write: (writes.append(data), write(data)),
            )

        async def written(*rounds: Callable[[], object]) -> list[int]:
            """Return how many writes were made by the end of each round, and of the turn."""
            writes.clear()
            made = [len(writes) for ask in rounds if ask() is not None]
            await turns(1)
            made.append(len(writes))
            await answered()
            return made

        async def grow_calm() -> None:
            for number in range(CALM + 1):
                acquire(w, f"calm{number}")
                await answered()

        assert await written(lambda: acquire(w, "a")) == [0, 3]
        await grow_calm()
        assert await written(lambda: release(w, "a")) == [3, 3]
        # The second round finds the first one undecided, and so on for a while.
        assert await written(*[lambda name=name: acquire(w, name) for name in "abc"]) == [3, 3, 3, 6]
        assert await written(lambda: release(w, "b")) == [0, 3]
        # A quiet release waits for the acquire of this process that follows it (R13).
        await grow_calm()
        assert await written(lambda: release(w, "calm0", quiet=True), lambda: acquire(w, "calm0")) == [
            0,
            0,
            3,
        ]
        # So does a round whose command is its own.
        await grow_calm()
        assert await written(lambda: ask_alone(w, "f")) == [3, 3]
        assert await written(lambda: ask_alone(w, "g"), lambda: acquire(w, "h")) == [3, 3, 6]
        # What waits for the end of the turn is not overtaken: nothing follows the release of its owner (R6).
        await grow_calm()
        assert await written(lambda: extend(w, "a"), lambda: release(w, "a")) == [0, 0, 3]
        assert verbs(w.nodes[0])[-2:] == ["extend_many", "release_many"]


async def test_what_is_asked_while_others_are_sent_comes_behind_them():
    """A release, asked for when the first node is silent for the extension: nothing follows it (R6)."""
    async with world() as w:
        for number in range(CALM + 1):
            acquire(w, f"n{number}")
            await answered()
        w.nodes[0].crash(keep_data=True)
        await answered()
        linked(w, 1).post = lambda *_: False
        forget(w)
        kept, gone = extend(w, "n0"), list[Asked]()
        kept.then(lambda tally: tally.silent > 0, lambda: gone.append(release(w, "n0")))
        await answered()
        assert verbs(w.nodes[1]) == ["extend", "release"]
        assert verbs(w.nodes[2]) == ["extend_many", "release_many"]
        assert votes(kept) == votes(gone[0]) == [SILENT, GRANTED, GRANTED]
        w.nodes[0].restart()
        await asyncio.sleep(2)


# -- equal requests -----------------------------------------------------------------------------------


async def test_at_most_so_many_locks_are_in_one_script():
    """The server is busy with each for a short time."""
    async with world() as w:
        names = [f"n{i}" for i in range(2 * MAX_BATCH + 3)]
        rounds = [acquire(w, name) for name in names]
        await answered()
        extended = [extend(w, name) for name in names]
        await answered()
        released = [release(w, name) for name in names]
        await answered()
        for node in w.nodes:
            assert verbs(node) == ["acquire_many"] * 3 + ["extend_many"] * 3 + ["release_many"] * 3
            assert sizes(node) == [65, 65, 7, 65, 65, 7, 32, 32, 3]
        assert all(votes(asked) == [GRANTED] * 3 for asked in (*rounds, *extended, *released))
        assert w.keys == [()] * 3


async def test_what_is_not_alike_goes_apart():
    """Another ttl, another ballot, another number of fences; each lock gets what was asked for it."""
    async with world() as w:
        apart = [acquire(w, "a"), acquire(w, "b", ttl=5.0), acquire(w, "c", ballot=8_000)]
        apart += [acquire(w, "d", block=3), acquire(w, "e")]
        await answered()
        assert all(sizes(node) == [5, 3, 3, 3] for node in w.nodes)
        assert all(votes(asked) == [GRANTED] * 3 for asked in apart)
        for node in w.nodes:
            assert 5 - 0.1 < (node.ttl(PREFIX + b"b") or 0) <= 5 < (node.ttl(PREFIX + b"a") or 0)
            assert (node.ttl(counter("a")) or 0) > 500
        forget(w)
        for name, ttl, fence in [("a", 20.0, 7_000), ("b", 20.0, 0), ("c", 30.0, 8_000), ("e", 20.0, 7_000)]:
            extend(w, name, ttl=ttl, fence=fence)
        await answered()
        assert all(sizes(node) == [5, 2, 3] for node in w.nodes)
        assert all((node.ttl(counter("a")) or 0) > 500 for node in w.nodes)
        forget(w)
        for name, quiet in [("a", True), ("b", False), ("c", True), ("d", False), ("e", False)]:
            release(w, name, quiet=quiet)
        await answered()
        assert all(sizes(node) == [2, 3] for node in w.nodes)
        assert w.keys == [()] * 3


async def test_plain_acquires_are_plain_commands():
    """Of different ttls, too; the incarnation record is looked at once, behind the last."""
    async with world(fencing=False, restart_quarantine=60) as w:
        rounds = [acquire(w, name, ttl=ttl, ballot=0) for name, ttl in (("a", 5.0), ("b", 10.0), ("c", 5.0))]
        await answered()
        assert all(verbs(node) == ["SET"] * 3 + ["GET"] for node in w.nodes)
        assert all(votes(asked) == [GRANTED] * 3 for asked in rounds)


# -- nodes that are asked one by one -----------------------------------------------------------------


async def test_a_node_that_is_down_is_answered_for_at_once():
    """Silent for every lock, and nothing of theirs is owed to it but releases."""
    async with world() as w:
        w.nodes[0].crash()
        await asyncio.sleep(LATENCY * 2)
        assert states(w)[0] is NodeState.DOWN
        rounds = [acquire(w, name) for name in "ab"]
        await answered()
        assert [votes(asked) for asked in rounds] == [[SILENT, GRANTED, GRANTED]] * 2
        assert [asked.unsent for asked in rounds] == [(0,)] * 2
        released = release(w, "a", unsent=(0,)), release(w, "b")
        await answered()
        assert [votes(asked) for asked in released] == [
            [REFUSED, GRANTED, GRANTED],
            [SILENT, GRANTED, GRANTED],
        ]
        assert w.manager.statistics().nodes[0].pending_releases == 1


async def test_a_node_in_quarantine_is_told_of_releases():
    """It has no vote for an acquire, and is not sent any; a release it takes."""
    async with world(restart_quarantine=60) as w:
        acquire(w, "a")
        await answered()
        w.nodes[0].flush()
        await asyncio.sleep(1.0)
        assert states(w) == [NodeState.QUARANTINED, NodeState.UP, NodeState.UP]
        forget(w)
        asked, kept, gone = acquire(w, "b"), extend(w, "a"), release(w, "a")
        await answered()
        assert verbs(w.nodes[0]) == ["extend", "release"]
        assert verbs(w.nodes[1]) == ["extend_many", "release_many", "acquire_many"]
        assert [votes(each) for each in (asked, kept, gone)] == [
            [SILENT, GRANTED, GRANTED], [SILENT, GRANTED, GRANTED], [REFUSED, GRANTED, GRANTED],
        ]  # fmt: skip


async def test_a_node_whose_answers_were_lost_is_asked_one_by_one():
    """Until no acquire of before can be executed any more: releases of its owner have to be recorded (R5)."""
    async with world() as w:
        w.nodes[0].wires[0].break_before()
        first = acquire(w, "a")
        await asyncio.sleep(0.2)
        assert votes(first) == [SILENT, GRANTED, GRANTED]
        assert states(w) == [NodeState.UP] * 3
        ledger = linked(w, 0)._ledger
        assert owner("a") in ledger.unresolved
        forget(w)
        second, gone = acquire(w, "b"), release(w, "a")
        await answered()
        assert verbs(w.nodes[0]) == ["release", "acquire"]
        assert verbs(w.nodes[1]) == ["release_many", "acquire_many"]
        assert votes(second) == [GRANTED] * 3
        assert votes(gone) == [REFUSED, GRANTED, GRANTED]
        assert len(ledger) == 1, "not held proves nothing of an acquire that was not answered"
        await asyncio.sleep(TTL + 1)
        assert not ledger.unresolved
        forget(w)
        release(w, "b")
        await answered()
        assert all(verbs(node) == ["release_many"] for node in w.nodes)


async def test_a_node_that_takes_no_batches_has_the_same_votes():
    """Each lock alone, in the same order, and no release of what it was not sent (R42)."""
    masters = [WiredNode(latency=LATENCY) for _ in range(3)]
    async with opened(masters) as manager:
        w = World(masters, manager)
        linked(w, 0).post = lambda *_: False
        acquired = [acquire(w, name) for name in "ab"]
        await answered()
        extended = [extend(w, name) for name in "ab"]
        released = [release(w, "a"), release(w, "b", unsent=(0,))]
        await answered()
        assert verbs(masters[0]) == ["acquire", "acquire", "extend", "extend", "release"]
        assert verbs(masters[1]) == ["acquire_many", "extend_many", "release_many"]
        assert all(votes(asked) == [GRANTED] * 3 for asked in (*acquired, *extended, released[0]))
        assert votes(released[1]) == [REFUSED, GRANTED, GRANTED]
        masters[0].delete(PREFIX + b"b")


@pytest.mark.parametrize(("prefix", "together"), [("redlock:", False), ("{redlock}:", True)])
async def test_keys_in_different_slots_are_asked_for_one_by_one(
    monkeypatch: pytest.MonkeyPatch, prefix: str, together: bool
):
    """At a server of a Redis Cluster two keys are in one script only where a hash tag keeps them together."""
    monkeypatch.setattr(memory_node, "Identity", functools.partial(Identity, clustered=True))
    async with world(fencing=False, prefix=prefix) as w:
        acquired = [acquire(w, name, ballot=0) for name in "ab"]
        await answered()
        gone = [release(w, name) for name in "ab"]
        await answered()
        released = ["release_many"] if together else ["release"] * 2
        assert all(verbs(node) == ["SET", "SET", *released] for node in w.nodes)
        assert all(votes(asked) == [GRANTED] * 3 for asked in (*acquired, *gone))


async def test_without_room_each_is_asked_alone(monkeypatch: pytest.MonkeyPatch):
    """Acquires are silent, as without batches; releases and extensions have room of their own (R15)."""
    monkeypatch.setattr(pipe, "MAX_IN_FLIGHT", 3)
    async with world() as w:
        acquire(w, "a")
        await answered()
        w.nodes[0].freeze()
        for name in "bce":
            acquire(w, name)
            await answered()
        last, kept, gone = acquire(w, "d"), extend(w, "a"), release(w, "a")
        await turns(1)
        assert last.unsent == (0,)
        assert linked(w, 0).status.in_flight == 5
        w.nodes[0].thaw()
        await answered()
        assert votes(last) == [SILENT, GRANTED, GRANTED]
        assert votes(kept) == votes(gone) == [GRANTED] * 3


# -- how long ----------------------------------------------------------------------------------------


async def test_the_time_of_a_turn_begins_at_its_end():
    """No node is to blame for what keeps the loop busy until its question has left (R1)."""
    async with world() as w:
        w.nodes[0].freeze()
        asked = acquire(w, "a")
        sim().advance(5 * TIMEOUT)
        left_at = sim().time()
        await until(left_at + TIMEOUT - 0.001)
        assert votes(asked) == [SILENT, GRANTED, GRANTED]
        assert not asked.done
        await until(left_at + TIMEOUT)
        await turns(1)
        assert asked.done
        assert "no answer within 0.1 s" in asked.votes()[0].reason


async def test_every_turn_has_its_own_end():
    """Several are under way; those that were answered do not keep others from their end, nor hasten it."""
    async with world() as w:
        w.nodes[0].freeze()
        begun, rounds = [], []
        for i in range(5):
            rounds.append(acquire(w, f"n{i}"))
            if i == 2:
                w.nodes[0].thaw()
                await asyncio.sleep(0.01)
                w.nodes[0].freeze()
                rounds = rounds[3:]  # all of them are answered
                continue
            begun.append(sim().time())
            await asyncio.sleep(0.02)
        for asked, began in zip(rounds, begun[2:], strict=True):
            await until(began + TIMEOUT - 0.001)
            assert not asked.done
            await until(began + TIMEOUT)
            await turns(1)
            assert asked.done


async def test_one_of_them_may_have_less_time():
    """The others of its batch have theirs."""
    async with world() as w:
        each(w.nodes[:2]).freeze()
        began = sim().time()
        short, long = acquire(w, "a"), acquire(w, "b")
        short.limit(TIMEOUT / 4)
        await until(began + TIMEOUT / 4)
        await turns(2)
        assert short.done
        assert "no answer within 0.025 s" in short.votes()[0].reason
        assert not long.done
        await until(began + TIMEOUT)
        await turns(2)
        assert long.done


def heard_by_the_loop() -> list[BaseException]:
    """Return what will end up in the loop's handler."""
    heard: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))
    return heard


def failing(asked: Any, when: Callable[[Any], bool], error: Exception) -> None:
    """Have something fail as soon as a round is so."""

    def fail() -> None:
        raise error

    asked.then(when, fail)


async def test_an_error_at_the_end_of_the_time_ends_no_other():
    """Whatever hears of one lock: the others of its batch, and of later ones, are silent in time."""
    async with world() as w:
        each(w.nodes).freeze()
        heard, error = heard_by_the_loop(), RuntimeError("of a hook")
        rounds = [acquire(w, name) for name in "abc"]
        failing(rounds[0], lambda tally: tally.silent > 0, error)
        await asyncio.sleep(TIMEOUT / 2)
        later = acquire(w, "d")
        await asyncio.sleep(TIMEOUT / 2 + 0.001)
        assert heard == [error]
        assert [asked.done for asked in (*rounds, later)] == [True] * 3 + [False]
        await asyncio.sleep(TIMEOUT / 2 + 0.001)
        assert later.done


async def test_what_is_sent_at_the_end_of_the_time_keeps_no_other_from_its_end():
    """Code that hears of a silent node asks again, in the same call: the next turn still has its end."""
    async with world() as w:
        each(w.nodes).freeze()
        again: list[Any] = []
        first = acquire(w, "a")
        await asyncio.sleep(TIMEOUT / 2)
        second = acquire(w, "b")

        def ask_again() -> None:
            again.append(acquire(w, "c"))
            outbox_of(w).drain()

        first.then(lambda tally: tally.pending == 0, ask_again)
        await asyncio.sleep(TIMEOUT / 2 + 0.001)
        assert [first.done, second.done, again[0].done] == [True, False, False]
        await asyncio.sleep(TIMEOUT / 2)
        assert [second.done, again[0].done] == [True, False]
        await asyncio.sleep(TIMEOUT / 2)
        assert again[0].done


async def test_an_error_while_a_turn_is_put_keeps_nothing_from_leaving():
    """A hook may raise when it hears that a node is down: the other nodes are asked, and in time."""
    async with world(5) as w:
        for name in "abc":
            acquire(w, name)
        await answered()
        each(w.nodes[:2]).crash(keep_data=True)
        await answered()
        w.nodes[4].freeze()
        heard, error = heard_by_the_loop(), RuntimeError("of a hook")
        kept = extend(w, "a")
        failing(kept, lambda tally: tally.silent > 0, error)
        gone = [release(w, name) for name in "bc"]
        await answered()
        assert heard == [error]
        assert [votes(asked) for asked in gone] == [[SILENT, SILENT, GRANTED, GRANTED, SILENT]] * 2
        assert [one.pending_releases for one in w.manager.statistics().nodes[:2]] == [2, 2]
        assert votes(kept) == [SILENT, SILENT, GRANTED, GRANTED, SILENT]
        assert not any(asked.done for asked in (kept, *gone))
        await asyncio.sleep(TIMEOUT)
        assert all(asked.done for asked in (kept, *gone))
        release(w, "a")
        w.nodes[4].thaw()
        each(w.nodes[:2]).restart()
        await asyncio.sleep(2)
        assert w.keys == [()] * 5


async def test_an_error_while_a_round_is_sent_at_once_is_no_business_of_its_caller(
    monkeypatch: pytest.MonkeyPatch,
):
    """A user's node may raise: the lease is released all the same, and not extended any more (R6)."""
    async with world() as w:
        for number in range(CALM + 1):
            acquire(w, f"calm{number}")
            await answered()
        lease = await w.manager.lock("a").acquire()
        heard, error = heard_by_the_loop(), RuntimeError("of a node")

        def failed(*_: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(linked(w, 0), "post", lambda *_: False)
            patch.setattr(linked(w, 0), "submit", failed)
            await lease.release()
        assert heard == [error]
        assert not session_of(w).watchdog.leases
        forget(w)
        await asyncio.sleep(TTL)
        assert not any("extend" in verb for node in w.nodes for verb in verbs(node))


# -- the end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [0, 1, 3])
async def test_closing_waits_for_what_was_put_in_its_turn(frozen: int):
    """For the answers, and never longer than their time; no key stays on a node that answers."""
    async with world() as w:
        held = [await w.manager.lock(name, extension=PLAIN).acquire() for name in "ab"]
        each(w.nodes[:frozen]).freeze()
        tasks = [in_task(run) for run in (w.manager.lock("c").try_acquire, held[0].extend, held[1].release)]
        began = sim().time()
        await asyncio.create_task(w.manager.aclose())
        assert sim().time() - began <= 2 * TIMEOUT + 0.01
        await asyncio.wait_for(asyncio.gather(*tasks), 1)
        each(w.nodes[:frozen]).thaw()
        await asyncio.sleep(1)
        assert w.keys == [()] * 3


# -- time --------------------------------------------------------------------------------------------


async def test_a_turns_reading_of_the_clock_is_used_for_no_other():
    """Tries that leave together begin with the first of them, before any byte; later ones later (R3)."""
    async with world() as w:
        begun: dict[str, float] = {}

        async def take(name: str) -> float:
            begun[name] = sim().clock.now()
            async with w.manager.lock(name, extension=PLAIN) as lease:
                return lease.valid_until

        async def stand_still() -> None:
            sim().advance(0.02)

        work = (take("a"), stand_still(), take("b"), stand_still())
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(each) for each in work]
        await turns(2)
        assert outbox_of(w).tick is None, "they have left"
        sim().advance(0.02)
        tasks += [asyncio.create_task(take("c"))]
        ends = {name: await tasks[i] for name, i in (("a", 0), ("b", 2), ("c", 4))}
        validity = ends["a"] - begun["a"]
        assert validity <= TTL
        assert ends["b"] == ends["a"], "never later than it asked"
        assert begun["b"] == pytest.approx(begun["a"] + 0.02)
        assert ends["c"] == pytest.approx(begun["c"] + validity)
        assert begun["c"] == pytest.approx(begun["a"] + 0.06)


async def test_what_has_left_within_a_turn_ends_its_reading_of_the_clock():
    """A try behind it reads the clock again: what it says could be older than the turn of the loop."""
    async with world() as w:
        tries = [attempt(w, "a")]
        tries[0].ask()
        began = sim().clock.now()
        outbox_of(w).drain()
        sim().advance(0.02)
        for name in "bc":
            tries.append(attempt(w, name))
            tries[-1].ask()
        assert [tried.asked_at - began for tried in tries] == pytest.approx([0, 0.02, 0.02])
        assert len({tried.owner for tried in tries}) == 3
        for tried in tries:
            tried.undo(TIMEOUT)
        await answered()
        assert w.keys == [()] * 3
        session_of(w).in_flight.clear()


# -- answers that are lost ---------------------------------------------------------------------------


@pytest.mark.parametrize("restart_quarantine", [0, 60])
@pytest.mark.parametrize("executed", range(4))
async def test_half_of_the_plain_answers_were_read(executed: int, restart_quarantine: int):
    """None of them is a vote, and what was granted there is undone by the ledger: no ghost stays (R5)."""
    async with world(fencing=False, restart_quarantine=restart_quarantine) as w:
        await asyncio.sleep(0.01)
        breaks, master = w.nodes[0].wires[0].breaks, w.nodes[0]
        seen = 0
        execute = master.execute

        def until_it_breaks(words: list[bytes], client: Any = None) -> bytes:
            nonlocal seen
            if words[0] == b"SET":
                seen += 1
                if seen == executed:
                    breaks.append(Break(after=True))
            return execute(words, client)

        master.execute = until_it_breaks  # type: ignore[method-assign]
        if not executed:
            breaks.append(Break(after=True))
        rounds = [acquire(w, name, ballot=0) for name in "abcd"]
        await answered()
        lost = executed < 3 or restart_quarantine > 0
        if lost:
            assert [votes(asked) for asked in rounds] == [[SILENT, GRANTED, GRANTED]] * 4
            assert set(linked(w, 0)._ledger.unresolved) == set(map(owner, "abcd"))
            assert len(locks(master)) == executed + 1, "they were granted, and are ghosts if left"
        for name in "abcd":
            release(w, name)
        await asyncio.sleep(1)
        assert states(w) == [NodeState.UP] * 3
        assert w.keys == [()] * 3


async def test_scripts_that_nodes_have_forgotten_are_sent_in_full():
    """In the middle of a turn's questions; no lock notices."""
    async with world() as w:
        each(w.nodes).flush_scripts()
        locks = [w.manager.lock(f"n{i}") for i in range(MAX_BATCH + 2)]
        leases = await asyncio.gather(*(lock.acquire() for lock in locks))
        for node in w.nodes:
            assert verbs(node).count("acquire_many in full") == 2
            node.flush_scripts()
        await asyncio.gather(*(lease.extend() for lease in leases))
        each(w.nodes).flush_scripts()
        await asyncio.gather(*(lease.release() for lease in leases))
        assert w.keys == [()] * 3
        assert all({"release_many in full", "extend_many in full"} <= set(verbs(node)) for node in w.nodes)
        assert not any(one.pending_releases or one.mismatched for one in w.manager.statistics().nodes)


async def test_a_fence_that_nodes_do_not_agree_on_is_raised_at_the_release():
    """A release by itself raises a counter that is behind; where nodes agree it goes with others (R10)."""
    async with world() as w:
        lease = await w.manager.lock("a", extension=PLAIN).acquire()
        forget(w)
        await lease.release()
        assert all(verbs(node) == ["release_many"] for node in w.nodes)
        w.nodes[2].set(PREFIX + b"fence:{redlock:b}", b"%d" % (lease.fence + (1 << 22)), 600.0)
        other = await w.manager.lock("b", extension=PLAIN).acquire()
        await answered()
        forget(w)
        await other.release()
        assert all(verbs(node) == ["release"] for node in w.nodes)
