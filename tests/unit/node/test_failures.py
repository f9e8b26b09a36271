"""What an operator is told of a failure, and which failures are none."""

from __future__ import annotations

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from aioredlock_ng._core.command import Silence
from aioredlock_ng._core.terms import Terms
from aioredlock_ng._node.failures import in_our_words, withheld
from aioredlock_ng._node.greeting import Greeting

REDIS_4 = (
    "ERR Error running script (call to f_0bc31f): @user_script:65: Write commands not allowed "
    "after non deterministic commands. Call redis.replicate_commands() at the start of your script"
)

REDIS_5 = "the server is older than Redis 6.0, or a proxy; give the client protocol=2"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ResponseError("unknown command 'PING', with args beginning with: "), True),
        (ResponseError("unknown command `ping`"), True),
        (NoPermissionError("this user has no permissions to run the 'ping' command"), True),
        (NoPermissionError("this user has no permissions to run the 'hello' command"), False),
        (ResponseError("unknown command `HELLO`, with args beginning with: `3`"), False),
        (ResponseError("BUSY Redis is busy running a script, PING later"), False),
    ],
)
def test_what_is_withheld(error: Exception, expected: bool) -> None:
    """It must be the command itself that is refused, not what came before it."""
    assert withheld(error, "PING") is expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (REDIS_4, "the server is older than Redis 5.0, too old for fences and quarantines: update it"),
        ("unknown command `HELLO`", f"unknown command `HELLO`: {REDIS_5}"),
        ("unknown command `EVALSHA`", "unknown command `EVALSHA`"),
    ],
)
def test_a_server_that_is_too_old_is_told_so(reason: str, expected: str) -> None:
    """In words that say what to do, where its own do not."""
    assert in_our_words(reason) == expected
    greeting = Greeting("node", Terms(b"{meta}", 3, 0))
    greeting.take(Silence(reason), 0.0)
    assert greeting.judgement.reason == f"its sentinel cannot be looked at: {expected}"
