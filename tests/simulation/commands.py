"""What the commands of a manager are about, as a node gets them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from aioredlock_ng.testing import MemoryNode
from tests.batches import singles
from tests.unit.worlds import SCRIPTS, SOURCES, is_ours_to_stay


@functools.cache
def is_lock(key: bytes) -> bool:
    """Whether a key is that of a lock; asked for every command, of few keys."""
    return not is_ours_to_stay(key)


def single_about(words: list[bytes], key: bytes, owners: Sequence[bytes | None]) -> list[bytes]:
    """Return what a command is to one key, of a batch the single command that it stands for (R42).

    Where a batch has several about that key, it is the one that was sent for one of `owners`, if any.
    """
    about = [list(single) for single in singles(words) if key in lock_keys(list(single))]
    return next((single for single in about if owner_of(single) in owners), about[0])


def lock_keys(words: list[bytes]) -> list[bytes]:
    """Return the keys of locks that a command is about."""
    if words[0] in (b"EVALSHA", b"EVAL"):
        return [key for key in words[3 : 3 + int(words[2])] if is_lock(key)]
    return [words[1]] if words[0] in (b"SET", b"DEL") and is_lock(words[1]) else []


def command(words: list[bytes]) -> str:
    """Return what a command is for."""
    if words[0] in (b"EVALSHA", b"EVAL"):
        return SCRIPTS.get(words[1]) or SOURCES[words[1]]
    return "acquire" if words[0] == b"SET" else words[0].decode()


def owner_of(words: list[bytes]) -> bytes:
    """Return the owner that a command is sent for."""
    if words[0] in (b"EVALSHA", b"EVAL"):
        first = 3 + int(words[2])
        return words[first] if len(words) > first + 1 else b""  # the last one is the tag
    return words[2] if words[0] == b"SET" else b""


def client_of(owner: bytes) -> int:
    """Return the client that made an owner value: its holder's label says it."""
    return int(owner.rpartition(b":c")[2])


def keys_and_owners(node: MemoryNode) -> list[tuple[bytes, bytes]]:
    """Return the keys of locks on a node, and their owners.

    Looking must not drop what has expired, as the node itself does: its clock may be set back yet.
    """
    now = node._server.clock.now()
    return [
        (key, owner or b"")
        for key, (owner, expiry) in node._server.data.items()
        if is_lock(key) and (expiry is None or expiry > now)
    ]
