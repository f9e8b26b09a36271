"""The release ledger of one node: releases that it has not acknowledged (rule R5)."""

from __future__ import annotations

import pytest

from aioredlock_ng._core.command import Command, Reply, Silence
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.ledger import LEDGER_LIMIT, REPEATED_AT_ONCE, Ledger

NAME = Primitive(MUTEX, ("a",), (b"redlock:a",))
NOT_HELD: Reply = [0, 0, 0]
HELD_BY_ANOTHER: Reply = [0, 5000, 0]
DELETED: Reply = [1, 0, 0]


def owner(number: int) -> bytes:
    """Return an owner value."""
    return b"%040x:host" % number


def release(number: int = 1, keeps: float = 10.0) -> Command:
    """Build a release of owner `number`, whose key lives `keeps` seconds at most."""
    return NAME.release(owner(number), keeps)


def acquire(number: int = 1, ttl: float = 10.0) -> Command:
    """Build an acquire of owner `number`."""
    return NAME.acquire(owner(number), ttl)


def send(ledger: Ledger, now: float, reply: Reply) -> list[bytes]:
    """Send everything that is due and answer it all; returns the owners."""
    due = ledger.due(now)
    for pending in due:
        pending.sent = True
    for pending in due:
        pending.on_reply(0, reply)
    return [pending.command.owner for pending in due]


def test_nothing_is_due_in_an_empty_ledger() -> None:
    """Nothing is due, unresolved or dropped."""
    ledger = Ledger()
    assert ledger.due(0.0) == []
    assert (len(ledger), ledger.dropped, ledger.is_unresolved(owner(1))) == (0, 0, False)


@pytest.mark.parametrize("reply", [NOT_HELD, HELD_BY_ANOTHER, DELETED])
def test_an_answer_settles_a_release(reply: Reply) -> None:
    """A release whose acquire was answered is done with its first acknowledgement, whatever it says."""
    ledger = Ledger()
    ledger.record(release(), 0.0)
    assert len(ledger) == 1
    assert send(ledger, 0.0, reply) == [owner(1)]
    assert len(ledger) == 0
    assert ledger.due(0.0) == []


class Asker:
    """The sink of a release."""

    awaited = False

    def __init__(self) -> None:
        self.told: list[tuple[int, Reply]] = []

    def on_reply(self, node: int, reply: Reply) -> None:
        """Keep it."""
        self.told.append((node, reply))


def test_what_settles_a_release_is_told_to_the_releases_own_sink() -> None:
    """Not what leaves it open: silence, and "was not held" while the acquire may still be executed."""
    ledger, asker = Ledger(), Asker()
    ledger.record_unresolved(acquire(), 0.0)
    ledger.record(release(), 0.0, asker, 2)
    ledger.record(release(), 0.0, Asker(), 3)  # the same release, which has a sink already
    for reply in (Silence("down"), NOT_HELD, DELETED):
        assert asker.told == []
        send(ledger, 0.0, reply)
    assert asker.told == [(2, DELETED)]
    ledger.follow(owner(1), asker, 2)  # nothing is recorded any more


def test_silence_settles_nothing() -> None:
    """A release that went unanswered again is due again."""
    ledger = Ledger()
    ledger.record(release(), 0.0)
    assert send(ledger, 1.0, Silence("lost")) == [owner(1)]
    assert send(ledger, 2.0, Silence("lost")) == [owner(1)]
    assert len(ledger) == 1


def test_a_release_that_was_sent_is_not_due_until_it_is_answered() -> None:
    """At most one release of an owner is under way."""
    ledger = Ledger()
    ledger.record(release(), 0.0)
    (pending,) = ledger.due(0.0)
    pending.sent = True
    assert ledger.due(0.1) == []
    pending.on_reply(0, Silence("lost"))
    assert ledger.due(0.2) == [pending]


def test_a_recorded_release_is_always_worth_sending() -> None:
    """As a sink it is awaited, so that its release is sent again after NOSCRIPT."""
    ledger = Ledger()
    ledger.record(release(), 0.0)
    assert [pending.awaited for pending in ledger.due(0.0)] == [True]


def test_releases_are_due_oldest_first() -> None:
    """They go out in the order in which they were recorded."""
    ledger = Ledger()
    for number in (3, 1, 2):
        ledger.record(release(number), 0.0)
    assert send(ledger, 0.0, NOT_HELD) == [owner(3), owner(1), owner(2)]


def test_was_not_held_settles_nothing_while_the_acquire_is_unresolved() -> None:
    """The acquire may still be executed behind this release, so the release is repeated until it cannot."""
    ledger = Ledger()
    ledger.record_unresolved(acquire(ttl=10.0), 100.0)
    assert ledger.is_unresolved(owner(1))
    ledger.record(release(keeps=10.0), 100.0)
    for now in (100.0, 103.0, 109.9):
        assert send(ledger, now, NOT_HELD) == [owner(1)]
        assert send(ledger, now, HELD_BY_ANOTHER) == [owner(1)]
    assert send(ledger, 110.0, NOT_HELD) == []
    assert len(ledger) == 0


def test_a_deletion_settles_release_and_acquire() -> None:
    """The acquire was executed and is undone: it cannot be executed twice."""
    ledger = Ledger()
    ledger.record_unresolved(acquire(), 0.0)
    ledger.record(release(), 0.0)
    assert send(ledger, 1.0, NOT_HELD) == [owner(1)]
    assert send(ledger, 2.0, DELETED) == [owner(1)]
    assert ledger.due(3.0) == []
    assert (len(ledger), ledger.is_unresolved(owner(1))) == (0, False)


def test_an_acquire_that_is_unresolved_after_its_release_counts() -> None:
    """The release was recorded first (no room for it), then the acquire's connection died."""
    ledger = Ledger()
    ledger.record(release(keeps=1.0), 0.0)
    ledger.record_unresolved(acquire(ttl=10.0), 0.5)
    assert send(ledger, 0.6, NOT_HELD) == [owner(1)]
    assert send(ledger, 10.4, NOT_HELD) == [owner(1)]
    assert send(ledger, 10.5, NOT_HELD) == []


def test_an_unresolved_acquire_without_a_release_asks_for_nothing() -> None:
    """The lock may well be held: only a release is ever repeated."""
    ledger = Ledger()
    ledger.record_unresolved(acquire(), 0.0)
    assert ledger.due(5.0) == []
    assert len(ledger) == 0
    assert ledger.is_unresolved(owner(1))


def test_an_unresolved_acquire_concerns_its_owner_only() -> None:
    """Another owner's release is settled by its first answer."""
    ledger = Ledger()
    ledger.record_unresolved(acquire(1), 0.0)
    ledger.record(release(1), 0.0)
    ledger.record(release(2), 0.0)
    assert send(ledger, 1.0, NOT_HELD) == [owner(1), owner(2)]
    assert send(ledger, 2.0, NOT_HELD) == [owner(1)]


@pytest.mark.parametrize("command", [acquire(ttl=4.0), NAME.top_up(owner(1), 4.0)])
def test_an_unresolved_command_ends_when_no_key_can_be_left(command: Command) -> None:
    """What was unresolved at `now` has expired one ttl later."""
    ledger = Ledger()
    ledger.record_unresolved(command, 10.0)
    ledger.due(13.9)
    assert ledger.is_unresolved(owner(1))
    ledger.due(14.0)
    assert not ledger.is_unresolved(owner(1))


def test_the_later_of_two_unresolved_commands_counts() -> None:
    """An earlier end does not shorten a later one."""
    ledger = Ledger()
    ledger.record_unresolved(acquire(ttl=10.0), 0.0)
    ledger.record_unresolved(NAME.top_up(owner(1), 2.0), 1.0)
    ledger.due(9.0)
    assert ledger.is_unresolved(owner(1))


def test_a_release_is_forgotten_after_its_ttl() -> None:
    """A node that never answers is left alone once the key has ended by itself; that is no drop."""
    ledger = Ledger()
    ledger.record(release(1, keeps=5.0), 0.0)
    ledger.record(release(2, keeps=7.0), 0.0)
    assert [pending.command.owner for pending in ledger.due(4.9)] == [owner(1), owner(2)]
    assert [pending.command.owner for pending in ledger.due(5.0)] == [owner(2)]
    assert ledger.due(7.0) == []
    assert (len(ledger), ledger.dropped) == (0, 0)


def test_recording_twice_is_recording_once() -> None:
    """A release that failed again does not make a second entry, nor a second release under way."""
    ledger = Ledger()
    ledger.record(release(), 0.0)
    (pending,) = ledger.due(0.0)
    pending.sent = True
    ledger.record(release(), 1.0)
    assert len(ledger) == 1
    assert ledger.due(1.0) == []


def test_a_full_ledger_drops_the_oldest_release_and_counts_it() -> None:
    """Its size is bounded; what gives way is what expires first."""
    ledger = Ledger()
    for number in range(LEDGER_LIMIT):
        ledger.record(release(number), 0.0)
    assert (len(ledger), ledger.dropped) == (LEDGER_LIMIT, 0)
    for number in range(LEDGER_LIMIT, LEDGER_LIMIT + 3):
        ledger.record(release(number), 0.0)
    assert (len(ledger), ledger.dropped) == (LEDGER_LIMIT, 3)
    due = [
        pending.command.owner for _ in range(LEDGER_LIMIT // REPEATED_AT_ONCE) for pending in ledger.due(0.0)
    ]
    assert due == [owner(number) for number in range(3, LEDGER_LIMIT + 3)]


def test_a_server_that_answers_with_errors_is_not_flooded() -> None:
    """At one look a bounded number of releases goes out again; those that wait come first at the next."""
    ledger = Ledger()
    for number in range(REPEATED_AT_ONCE + 1):
        ledger.record(release(number), 0.0)
    first = [pending.command.owner for pending in ledger.due(0.0)]
    assert first == [owner(number) for number in range(REPEATED_AT_ONCE)]
    assert ledger.due(0.0)[0].command.owner == owner(REPEATED_AT_ONCE)


def test_an_unresolved_command_begins_anew_when_the_node_is_back() -> None:
    """A frozen server executes what had arrived when it goes on: its key may begin to live only then."""
    ledger = Ledger()
    ledger.record_unresolved(acquire(ttl=10.0), 0.0)
    ledger.record(release(1, keeps=10.0), 0.0)
    ledger.reconnected(60.0)
    assert [pending.command.owner for pending in ledger.due(69.9)] == [owner(1)]
    assert ledger.due(70.0) == []


def test_a_dropped_release_that_is_answered_after_all_does_no_harm() -> None:
    """Its release may have been under way when it was dropped."""
    ledger = Ledger()
    ledger.record(release(0), 0.0)
    (oldest,) = ledger.due(0.0)
    for number in range(1, LEDGER_LIMIT + 1):
        ledger.record(release(number), 0.0)
    oldest.on_reply(0, DELETED)
    assert (len(ledger), ledger.dropped) == (LEDGER_LIMIT, 1)


def test_unresolved_commands_are_bounded_too() -> None:
    """The oldest gives way and is counted."""
    ledger = Ledger()
    for number in range(LEDGER_LIMIT + 2):
        ledger.record_unresolved(acquire(number), 0.0)
    assert ledger.dropped == 2
    assert not ledger.is_unresolved(owner(0))
    assert not ledger.is_unresolved(owner(1))
    assert ledger.is_unresolved(owner(2))
    assert ledger.is_unresolved(owner(LEDGER_LIMIT + 1))
