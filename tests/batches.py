"""The commands that a batch stands for: one for each lock, as if it had been asked for alone (R42)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioredlock_ng import _scripts

Words = tuple[bytes, ...]  # one command, as a node executes it

_STAMP: Final = 2  # arguments of a stamp: the record, and the floor in it

_SINGLE: Final = {
    _scripts.ACQUIRE_MANY: _scripts.ACQUIRE,
    _scripts.EXTEND_MANY: _scripts.EXTEND,
    _scripts.RELEASE_MANY: _scripts.RELEASE,
}

_BATCHES: Final = {
    **{many.digest: (many, one.digest) for many, one in _SINGLE.items()},
    **{many.source: (many, one.source) for many, one in _SINGLE.items()},
}


def singles(words: Sequence[bytes]) -> list[Words]:
    """Return what a command stands for: itself, or of a batch the single commands in their order."""
    many, script = _BATCHES.get(words[1], (None, b"")) if len(words) > 1 else (None, b"")
    if many is None or words[0] not in (b"EVALSHA", b"EVAL"):
        return [tuple(words)]
    count = int(words[2])
    keys, args, tag = list(words[3 : 3 + count]), list(words[3 + count : -1]), words[-1]
    commands: list[tuple[list[bytes], list[bytes]]] = []
    if many is _scripts.RELEASE_MANY:
        loud, *owners = args
        commands = [([key], [owner, b"0", b"0", loud]) for key, owner in zip(keys, owners, strict=True)]
    elif many is _scripts.ACQUIRE_MANY:
        *keys, incarnation = keys
        ttl, ballot, block, keep, *owners = args[:-_STAMP]
        pairs = zip(keys[::2], keys[1::2], owners, strict=True)
        commands = [
            ([lock, counter, incarnation], [owner, ttl, ballot, block, keep, *args[-_STAMP:]])
            for lock, counter, owner in pairs
        ]
    else:
        ttl, keep, *of_locks = args
        incarnations, stamp = [], []
        if len(of_locks) > len(keys):  # else they are as many
            keys, incarnations = keys[:-1], keys[-1:]
            of_locks, stamp = of_locks[:-_STAMP], of_locks[-_STAMP:]
        each = (
            2 if keep else 1
        )  # of a lock its key, with fences its counter; its owner, with fences its fence
        for i in range(0, len(keys), each):
            owner, fence, *_ = (*of_locks[i : i + each], b"0")
            commands.append((keys[i : i + each] + incarnations, [owner, ttl, fence, keep, *stamp]))
    return [(words[0], script, b"%d" % len(own), *own, *arguments, tag) for own, arguments in commands]
