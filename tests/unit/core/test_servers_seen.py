"""Servers behind one name: which order of answers shows that two of them are alive (A4)."""

from __future__ import annotations

import pytest

from aioredlock_ng._core.quarantine import UNKNOWN_IDENTITY
from aioredlock_ng._core.quorum_view import MAX_SERVERS, ServersSeen


@pytest.mark.parametrize(
    ("answers", "returned"),
    [
        ("", ""), ("aaaa", ""), ("abcd", ""), ("aba", "a"), ("aabba", "a"), ("abab", "ab"), ("abbcb", "b"),
        ("a-a-a", ""), ("a-b-a", "a"),
    ],
)  # fmt: skip
def test_a_server_that_answers_again_after_another_was_alive(answers: str, returned: str) -> None:
    """Restarts and failovers only make new ones; a server that tells nothing of itself proves nothing."""
    assert UNKNOWN_IDENTITY == b"-"
    seen = ServersSeen()
    assert "".join(one for one in answers if seen.returns(one.encode())) == returned


def test_ever_new_servers_do_not_fill_memory() -> None:
    """The one that was heard longest ago is forgotten."""
    seen = ServersSeen()
    for number in range(2 * MAX_SERVERS):
        assert not seen.returns(b"%d" % number)
    assert not seen.returns(b"0")
    assert seen.returns(b"%d" % (2 * MAX_SERVERS - 2))
