"""Commands as bytes: packed once for all nodes, without the precondition and request id (R12, R15)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import hiredis

from .._core.command import PRECONDITION_SIZE, Command, Proof, Purpose, Script

MAX_HEADS: Final = 4096
"""Beginnings of commands that are kept packed: most keys are used again and again."""

_BLANK: Final = b"$0\r\n\r\n"
"""An empty argument in RESP: keeps a precondition's place in a packed command's count of arguments."""

_packed: Final[Callable[[tuple[bytes, ...]], bytes]] = hiredis.pack_command  # type: ignore[assignment]

NO_PRECONDITION: Final = _BLANK * PRECONDITION_SIZE
"""The place of a precondition, before there is one."""


def words(command: Command, *, in_full: bool = False) -> tuple[bytes, ...]:
    """Return a command without precondition and request id; a script by its digest, or `in_full`."""
    if in_full and command.script is not None:
        return (b"EVAL", command.script.source, b"%d" % len(command.keys), *command.keys, *command.args)
    return (*_head(command.verb, command.script, command.keys), *command.args)


def _head(verb: bytes, script: Script | None, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the beginning of a command: all but its arguments."""
    assert bool(verb) != (script is not None), "a command is either a verb or a script"
    if script is None:
        return (verb, *keys)
    return (b"EVALSHA", script.digest, b"%d" % len(keys), *keys)


def pack_once(command: Command) -> bytes:
    """Pack a command for all nodes; its length counts the precondition and request id of each connection."""
    # Others than those of locks may name many keys, which are not worth keeping.
    looks = command.purpose is Purpose.OTHER
    head = _packed_head.__wrapped__ if looks else _packed_head
    count, begins = head(command.verb, command.script, command.keys)
    args = command.args
    count += len(args) + (0 if command.script is None else _added_to(command))
    command.packed = b"*%d\r\n%b%b" % (count, begins, _packed(args).partition(b"\r\n")[2])
    return command.packed


@lru_cache(maxsize=MAX_HEADS)
def _packed_head(verb: bytes, script: Script | None, keys: tuple[bytes, ...]) -> tuple[int, bytes]:
    """Return the number of words in the beginning of a command, and these words, packed."""
    begins = _head(verb, script, keys)
    return len(begins), _packed(begins).partition(b"\r\n")[2]


def _added_to(script: Command) -> int:
    """Return how many arguments a connection adds to a script's own."""
    return PRECONDITION_SIZE + 1 if script.proof is Proof.CONDITIONAL else 1


def pack_in_full(command: Command) -> bytes:
    """Pack a script with its source, and without precondition and request id."""
    added = _added_to(command)
    return _packed((*words(command, in_full=True), *(b"",) * added))[: -added * len(_BLANK)]


def pack_precondition(arguments: tuple[bytes, ...]) -> bytes:
    """Return arguments as they stand at the end of a packed command."""
    assert len(arguments) == PRECONDITION_SIZE, "what the commands leave room for"
    return _packed(arguments).partition(b"\r\n")[2]
