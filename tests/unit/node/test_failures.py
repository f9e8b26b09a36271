"""Messages of failures for an operator, and answers that are no failure."""

from __future__ import annotations

import ssl

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ResponseError

from aioredlock_ng._core.command import Silence
from aioredlock_ng._core.quorum_view import QuorumView
from aioredlock_ng._node.failures import in_our_words, refusal, why, withheld
from aioredlock_ng._node.greeting import Greeting

REDIS_4 = (
    "ERR Error running script (call to f_0bc31f): @user_script:65: Write commands not allowed "
    "after non deterministic commands. Call redis.replicate_commands() at the start of your script"
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((ResponseError(text), True) for text in (
            "unknown command 'PING', with args beginning with: ", "unknown command `ping`",
            "unsupported command 'ping'", "Unrecognized command", "Err unknown or unsupported command 'PING'",
            "command 'PING' is not allowed", "Command is not available: 'PING'. See the documentation",
        )),
        *((ResponseError(text), False) for text in (
            "unknown command `HELLO`, with args beginning with: `3`", "unsupported command 'HELLO'",
            "OOM command not allowed when used memory > 'maxmemory'. (PING)",
            "BUSY Redis is busy running a script, PING later",
        )),
        *((NoPermissionError(f"this user has no permissions to run the '{name}' command"), name == "ping")
          for name in ("ping", "hello")),
    ],
)  # fmt: skip
def test_what_is_withheld(error: Exception, expected: bool) -> None:
    """It must be the command itself that is refused, not what came before it."""
    assert withheld(error, "PING") is expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (REDIS_4, "the server is older than Redis 5.0, too old for fences and quarantines: update it"),
        ("unknown command `EVALSHA`", "unknown command `EVALSHA`"),
    ],
)
def test_a_server_that_is_too_old_is_told_so(reason: str, expected: str) -> None:
    """In words that say what to do, where its own do not."""
    assert in_our_words(reason) == expected
    greeting = Greeting("node", QuorumView(b"{meta}", 3, 0))
    greeting.take(Silence(reason), 0.0, 0.0)
    assert greeting.eligibility.reason == f"its incarnation record could not be read: {expected}"


def caused(error: Exception, cause: Exception, *, explicitly: bool = True) -> Exception:
    """Return an error that another one has led to, by `raise … from` or just so."""
    if explicitly:
        error.__cause__ = cause
    else:
        error.__context__ = cause
    return error


TLS = ssl.SSLError(1, "certificate verify failed")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ResponseError("LOADING the data set"), "LOADING the data set"),
        (ConnectionResetError(104, "reset by peer"), "[Errno 104] reset by peer"),
        (TimeoutError(), "TimeoutError"),
        (KeyError("y"), "KeyError: 'y'"),
        (UnicodeDecodeError("utf-8", b"another program's", 0, 1, "invalid"), "UnicodeDecodeError"),
        (caused(RedisConnectionError("no TLS."), TLS), f"no TLS. {TLS}"),
        (caused(RedisConnectionError("no TLS."), TLS, explicitly=False), f"no TLS. {TLS}"),
        (caused(RedisConnectionError(f"no: {TLS}"), TLS), f"no: {TLS}"),
        (caused(RedisConnectionError("closed"), OSError("a broken pipe")), "closed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_why(error: Exception, expected: str) -> None:
    """The server's or the system's own words; with those of TLS their cause; never another's value."""
    assert why(error) == expected


@pytest.mark.parametrize(
    ("met", "said"),
    [
        ("", ""),
        ("MOVED 1 10.0.0.9:6379", ""),
        ("CLUSTERDOWN Hash slot not served", ""),
        ("MISCONF cannot save", "refuses writes: MISCONF cannot save"),
        ("ERR user_script:1: -NOREPLICAS too few. script: f_0bc31f, on @user_script:1.",
         "refuses writes: NOREPLICAS too few"),
    ],
)  # fmt: skip
def test_what_a_write_met(met: str, said: str) -> None:
    """In the server's words, without the script's; one slot of a Cluster says nothing of the server."""
    assert refusal(met) == said
