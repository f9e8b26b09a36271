"""The release ledger of one node: releases that it has not acknowledged (rule R5)."""

from __future__ import annotations

from typing import Any

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


SILENCE = Silence("lost")

STORIES: dict[str, list[tuple[Any, ...]]] = {
    "nothing is due, unresolved or dropped in an empty ledger": [("due", 0.0), ("open", False)],
    "a release whose acquire was answered is done with its first acknowledgement": [
        ("release", 1, 10.0, 0.0), ("size", 1), ("send", 0.0, NOT_HELD, 1), ("size", 0), ("due", 0.0),
    ],
    "whatever that says": [("release", 1, 10.0, 0.0), ("send", 0.0, HELD_BY_ANOTHER, 1), ("size", 0)],
    "or did": [("release", 1, 10.0, 0.0), ("send", 0.0, DELETED, 1), ("size", 0)],
    "silence settles nothing": [
        ("release", 1, 10.0, 0.0), ("send", 1.0, SILENCE, 1), ("send", 2.0, SILENCE, 1), ("size", 1),
    ],
    "releases are due oldest first": [
        ("release", 3, 10.0, 0.0), ("release", 1, 10.0, 0.0), ("release", 2, 10.0, 0.0),
        ("send", 0.0, NOT_HELD, 3, 1, 2),
    ],
    "while the acquire may still be executed, `was not held` settles nothing": [
        ("acquire", 1, 10.0, 100.0), ("open", True), ("release", 1, 10.0, 100.0),
        ("send", 100.0, NOT_HELD, 1), ("send", 103.0, HELD_BY_ANOTHER, 1), ("send", 109.9, NOT_HELD, 1),
        ("send", 110.0, NOT_HELD), ("size", 0),
    ],
    "a deletion settles nothing if a repair has set the key, too": [
        ("acquire", 1, 10.0, 0.0), ("repaired", 1), ("release", 1, 10.0, 1.0), ("send", 2.0, DELETED, 1),
        ("open", True), ("send", 9.9, NOT_HELD, 1), ("send", 11.0, NOT_HELD), ("size", 0), ("open", False),
    ],
    "nor if both were lost": [
        ("acquire", 1, 10.0, 0.0), ("repair", 1, 10.0, 1.0), ("release", 1, 10.0, 1.0),
        ("send", 2.0, DELETED, 1), ("open", True), ("send", 3.0, DELETED, 1), ("size", 1),
    ],
    "a deletion settles release and acquire: it cannot be executed twice": [
        ("acquire", 1, 10.0, 0.0), ("release", 1, 10.0, 0.0), ("send", 1.0, NOT_HELD, 1),
        ("send", 2.0, DELETED, 1), ("due", 3.0), ("size", 0), ("open", False),
    ],
    "an acquire counts whose connection died after its release was recorded": [
        ("release", 1, 1.0, 0.0), ("acquire", 1, 10.0, 0.5), ("send", 0.6, NOT_HELD, 1),
        ("send", 10.4, NOT_HELD, 1), ("send", 10.5, NOT_HELD),
    ],
    "the lock may be held where no release was asked for: nothing is repeated": [
        ("acquire", 1, 10.0, 0.0), ("due", 5.0), ("size", 0), ("open", True),
    ],
    "an unresolved acquire concerns its owner only": [
        ("acquire", 1, 10.0, 0.0), ("release", 1, 10.0, 0.0), ("release", 2, 10.0, 0.0),
        ("send", 1.0, NOT_HELD, 1, 2), ("send", 2.0, NOT_HELD, 1),
    ],
    "it ends when no key of its can be left": [
        ("acquire", 1, 4.0, 10.0), ("due", 13.9), ("open", True), ("due", 14.0), ("open", False),
    ],
    "and so does a repair": [
        ("repair", 1, 4.0, 10.0), ("due", 13.9), ("open", True), ("due", 14.0), ("open", False),
    ],
    "the later of two counts": [
        ("acquire", 1, 10.0, 0.0), ("repair", 1, 2.0, 1.0), ("due", 9.0), ("open", True),
    ],
    "a release is forgotten when its key has ended by itself": [
        ("release", 1, 5.0, 0.0), ("release", 2, 7.0, 0.0), ("due", 4.9, 1, 2), ("due", 5.0, 2), ("due", 7.0),
        ("size", 0),
    ],
    "a frozen server executes what had arrived when it goes on: its key begins to live only then": [
        ("acquire", 1, 10.0, 0.0), ("release", 1, 10.0, 0.0), ("back", 60.0), ("due", 69.9, 1), ("due", 70.0),
    ],
}  # fmt: skip
"""Steps: what is recorded, with owner, time to live and moment; and what must be so then."""


@pytest.mark.parametrize("story", STORIES)
def test_stories(story: str) -> None:
    """Step by step; nothing is dropped in any of them."""
    ledger = Ledger()
    for what, *how in STORIES[story]:
        match what:
            case "release":
                ledger.record(release(*how[:2]), how[2])
            case "acquire" | "repair":
                ledger.record_unresolved(getattr(NAME, what)(owner(how[0]), how[1]), how[2])
            case "repaired":
                ledger.note_another(owner(how[0]))
            case "back":
                ledger.reconnected(how[0])
            case "send":
                assert send(ledger, how[0], how[1]) == list(map(owner, how[2:])), how
            case "due":
                assert [one.command.owner for one in ledger.due(how[0])] == list(map(owner, how[1:])), how
            case "size":
                assert (len(ledger), ledger.dropped) == (how[0], 0)
            case "open":
                assert (owner(1) in ledger.unresolved) is how[0]


def test_a_release_that_was_sent_is_not_due_until_it_is_answered() -> None:
    """At most one release of an owner is under way, also if it is recorded again."""
    ledger = Ledger()
    ledger.record(release(), 0.0)
    (pending,) = ledger.due(0.0)
    assert pending.awaited is True
    pending.sent = True
    ledger.record(release(), 1.0)
    assert (len(ledger), ledger.due(1.0)) == (1, [])
    pending.on_reply(0, SILENCE)
    assert ledger.due(1.2) == [pending]


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


def test_unresolved_commands_are_bounded_too() -> None:
    """The oldest gives way and is counted."""
    ledger = Ledger()
    for number in range(LEDGER_LIMIT + 2):
        ledger.record_unresolved(acquire(number), 0.0)
    assert ledger.dropped == 2
    assert owner(0) not in ledger.unresolved
    assert owner(1) not in ledger.unresolved
    assert owner(2) in ledger.unresolved
    assert owner(LEDGER_LIMIT + 1) in ledger.unresolved
