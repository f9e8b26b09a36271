"""Reasons of failures for operators: enough to act on, and nothing that is secret."""

from __future__ import annotations

import os
import re
import ssl
from typing import Final

from redis.exceptions import NoPermissionError, RedisError

from .._core.command import Command
from .._core.rights import denied, unknown

MOVED: Final = "MOVED "

CLUSTERDOWN: Final = "CLUSTERDOWN "
"""The beginning of an error from a server that has lost a slot, or never had it."""

_ECHO: Final = ", with args beginning with"
"""Some servers repeat the arguments behind this: owner values, and at login the password."""


_CONNECT_FAILED: Final = re.compile(r"Error (\d+) connecting to (.+)\. Connect call failed \(.*\)\.$")


def why(error: BaseException) -> str:
    """Return the reason for a log line or a vote.

    An error of decoding is named by its type only: its text quotes another program's value.
    """
    name, text = type(error).__name__, str(error).partition(_ECHO)[0]
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLError) and str(cause) not in text:
        text = f"{text} {cause}"  # redis-py 5 leaves it out
    if isinstance(error, UnicodeError) or not text:
        return name
    if failed := _CONNECT_FAILED.match(text):  # asyncio's words, which redis-py hands on
        text = f"cannot connect to {failed[2]}: {os.strerror(int(failed[1]))}"
    notes = "".join(f" ({note})" for note in notes_of(error))
    return f"{text}{notes}" if isinstance(error, (RedisError, OSError)) else f"{name}: {text}{notes}"


def notes_of(error: BaseException) -> tuple[str, ...]:
    """Return the notes that were added to an error on its way: the address, and the command."""
    return tuple(getattr(error, "__notes__", ()))


_NAMELESS: Final = re.compile("command[.!]?$")
"""The error of a proxy that does not know a command, and does not name it."""


def withheld(error: Exception, command: str) -> bool:
    """Whether a healthy server refuses `command` itself: it is not allowed, or unknown by this name."""
    text = str(error).lower()
    named = command.lower() in text
    if unknown(text):
        return named or _NAMELESS.search(text) is not None
    return named and isinstance(error, NoPermissionError)


def in_our_words(reason: str) -> str:
    """Return a server's reason, reworded where it does not say what to do."""
    if reason.startswith(MOVED):
        return (
            f"{reason}: the keys are on another server of its Redis Cluster, whose masters are not "
            "independent nodes; use a redis.asyncio.RedisCluster as one node, or servers outside of a "
            "Cluster"
        )
    if "non deterministic commands" in reason:
        return "the server is older than Redis 5.0, too old for fences and quarantines: update it"
    return reason


_IN_SCRIPT: Final = re.compile(r"^(?:ERR )?(?:@?user_script:\s*\d+:\s*)?-?(.*?)\.?(?: script: .*)?$")
"""An error inside a script: Redis puts its place in the script around it."""


def refusal(error: str) -> str:
    """Return why a server that answers refuses to write, from the error in a script; empty: it does not.

    An error of a Redis Cluster about one key's slot says nothing about other slots.
    """
    if not error or error.startswith((MOVED, CLUSTERDOWN)):
        return ""
    said = _IN_SCRIPT.match(error)
    missing = ": the user in its URL needs +set" if denied(error) else ""
    return f"refuses writes: {said[1] if said else error}{missing}"


def without_secrets(message: str, command: Command) -> str:
    """Return a server's error message without the arguments that some servers echo."""
    message = message.partition(_ECHO)[0]
    if command.owner:
        # The whole value, then its secret part alone: a holder label may come back escaped or cut.
        secret = command.owner.partition(b":")[0]
        for value in (command.owner, secret):
            message = message.replace(value.decode(errors="replace"), "<owner>")
    return message
