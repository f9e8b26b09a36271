"""What a greeting's answer proves of a vote that was given just before (R12)."""

from __future__ import annotations

import logging

import pytest

from aioredlock_ng._core.quarantine import NO_INCARNATION, UNKNOWN_IDENTITY, Incarnation
from aioredlock_ng._core.quorum_view import QuorumView
from aioredlock_ng._node.greeting import MAX_LOGGED_FINDINGS, Greeting

ONE, OTHER = b"1" * 80, b"2" * 80


def incarnation(identity: bytes) -> bytes:
    """Return the incarnation record of a server that may vote."""
    return bytes(Incarnation(identity=identity, floor=1, ready_ms=0, size=1, quarantine_ms=0))


def answer(stored: bytes, identity: bytes) -> list[object]:
    """Return how a server answers to a greeting."""
    return [b"", stored, 1_700_000_000_000_000, identity, b"master", b"", b"", 0, b""]


@pytest.mark.parametrize("heard", ["nothing since", "the other server"])
def test_a_copy_of_the_incarnation_is_no_proof(heard: str) -> None:
    """After a failover the replica has it, too, though not all locks; whichever server greeted last."""
    greeting = Greeting("node", QuorumView(b"{meta}", 1, 0))
    greeting.take(answer(incarnation(ONE), ONE), 0.0, 0.0)
    expected = greeting.eligibility.expected
    assert expected.incarnation
    assert greeting.still_matches(expected, answer(incarnation(ONE), ONE))
    after_failover = answer(incarnation(ONE), OTHER)
    if heard == "the other server":
        greeting.take(after_failover, 0.0, 0.0)
    assert not greeting.still_matches(expected, after_failover)


def test_without_an_expected_incarnation_there_is_no_proof() -> None:
    """A node that was flushed since the call was asked for has no record, as the client expects none."""
    greeting = Greeting("node", QuorumView(b"{meta}", 1, 0))
    flushed = answer(b"", ONE)
    greeting.take(flushed, 0.0, 0.0)
    assert greeting.eligibility.expected is NO_INCARNATION
    assert not greeting.still_matches(NO_INCARNATION, flushed)


@pytest.mark.parametrize(
    ("first", "then", "proven"), [(b"-", b"-", True), (b"-", ONE, True), (ONE, b"-", False)]
)
def test_a_server_that_does_not_tell_its_identity(first: bytes, then: bytes, proven: bool) -> None:
    """Then the incarnation record alone has to do; but not where it told a moment ago."""
    assert UNKNOWN_IDENTITY == b"-"
    greeting = Greeting("node", QuorumView(b"{meta}", 1, 0))
    greeting.take(answer(incarnation(ONE), first), 0.0, 0.0)
    assert greeting.still_matches(greeting.eligibility.expected, answer(incarnation(ONE), then)) is proven


def test_a_newer_versions_incarnation_can_be_expected() -> None:
    """As far as it can be read it counts."""
    newer, greeting = b"2:%b:1:0:1:0:and:more" % ONE, Greeting("node", QuorumView(b"{meta}", 1, 0))
    greeting.take(answer(newer, ONE), 0.0, 0.0)
    expected = greeting.eligibility.expected
    assert expected.incarnation == newer
    assert [greeting.still_matches(expected, answer(newer, one)) for one in (ONE, OTHER)] == [True, False]


def test_a_process_that_stood_still_says_when_it_last_used_its_servers() -> None:
    """In its first greeting, too: others may have come first meanwhile (R12c)."""
    greeting, told = Greeting("node", QuorumView(b"{meta}", 1, 60_000)), 8
    greeting.take(answer(incarnation(ONE), ONE), 1.0, 1.0)
    assert greeting.command(b"", 1.5).args[told] == b"1:%b 1700000000000 0" % ONE
    assert greeting.command(b"", 20.0).args[told] == b"1:%b 1700000000000 18500" % ONE


def test_a_node_that_says_ever_new_things_does_not_fill_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Lines are told once, so they are kept: a limited number of them."""
    greeting = Greeting("n", QuorumView(b"{meta}", 3, 60_000))
    for number in [*range(2 * MAX_LOGGED_FINDINGS), 0]:
        greeting._log_once(logging.WARNING, f"line {number}")
    assert len(caplog.records) == MAX_LOGGED_FINDINGS
