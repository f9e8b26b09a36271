"""A greeting: what it tells of this client, what it logs (R12, R12c)."""

from __future__ import annotations

import pytest

from aioredlock_ng._core.quarantine import Incarnation
from aioredlock_ng._core.quorum_view import QuorumView
from aioredlock_ng._node.greeting import MAX_LOGGED_FINDINGS, Greeting

ONE, OTHER = b"1" * 80, b"2" * 80


def incarnation(identity: bytes) -> bytes:
    """Return the incarnation record of a server that may vote."""
    return bytes(Incarnation(identity=identity, floor=1, ready_ms=0, size=1, quarantine_ms=0))


def answer(stored: bytes, identity: bytes) -> list[object]:
    """Return how a server answers to a greeting."""
    return [b"", stored, 1_700_000_000_000_000, identity, b"master", b"", b"", 0, b""]


def test_a_process_that_stood_still_says_when_it_last_used_its_servers() -> None:
    """In its first greeting, too: others may have come first meanwhile (R12c)."""
    greeting, told = Greeting("node", QuorumView(b"{meta}", 1, 60_000)), 8
    greeting.take(answer(incarnation(ONE), ONE), 1.0, 1.0)
    assert greeting.command(b"", 1.5).args[told] == b"1:%b u 1700000000500 500" % ONE
    assert greeting.command(b"", 20.0).args[told] == b"1:%b u 1700000019000 19000" % ONE


def test_a_node_that_says_ever_new_things_does_not_fill_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Lines are reported once, so they are kept: a limited number of them."""
    greeting = Greeting("n", QuorumView(b"{meta}", 3, 60_000))
    for number in [*range(2 * MAX_LOGGED_FINDINGS), 0]:
        greeting._log_once(f"line {number}")
    assert len(caplog.records) == MAX_LOGGED_FINDINGS
