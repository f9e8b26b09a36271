"""What an operator is told of a failure: enough to act on, and nothing that is secret."""

from __future__ import annotations

import ssl
from typing import Final

from redis.exceptions import RedisError

from .._core.command import Command

_ECHO: Final = ", with args beginning with"
"""What some servers begin to repeat the arguments with: owner values, and at login the password."""


def why(error: Exception) -> str:
    """Return the reason for a log line or a vote.

    An error of decoding is named by its type only: its text quotes another program's value.
    """
    name, text = type(error).__name__, str(error).partition(_ECHO)[0]
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLError) and str(cause) not in text:
        text = f"{text} {cause}"  # redis-py 5 leaves it out
    if isinstance(error, UnicodeError) or not text:
        return name
    return text if isinstance(error, (RedisError, OSError)) else f"{name}: {text}"


def without_secrets(message: str, command: Command) -> str:
    """Return a server's error message without the arguments that some servers echo."""
    message = message.partition(_ECHO)[0]
    if command.owner:
        # The whole value, then its secret part alone: a holder label may come back escaped or cut.
        secret = command.owner.partition(b":")[0]
        for value in (command.owner, secret):
            message = message.replace(value.decode(errors="replace"), "<owner>")
    return message
