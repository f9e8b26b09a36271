"""Commands and keys of masters in memory, and events that hooks have heard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from aioredlock_ng import RetryPolicy, _scripts
from aioredlock_ng.events import Hooks
from aioredlock_ng.testing import MemoryNode
from tests.batches import singles
from tests.unit.tasks import sim

Event = TypeVar("Event")

PREFIX = b"redlock:"

SCRIPTS = {script.digest: script.name.replace("_", "-") for script in _scripts.ALL}
SCRIPTS[_scripts.SET_ALL.digest] = "acquire"
"""Purposes of the scripts, by the digests that are sent."""

MARKS = (b"fence:{", b"slots:{", b"leader:{", b"{meta}", b"{members}")
"""Beginnings, behind the prefix, of the keys that outlive a lease: counters, leaders, the record (R16)."""

SOURCES = {script.source: SCRIPTS[script.digest] for script in _scripts.ALL}


def is_ours_to_stay(key: bytes) -> bool:
    """Say whether a key is one of those that outlive a lease, whatever the prefix."""
    return any(mark in key for mark in MARKS)


def locks(node: MemoryNode) -> tuple[bytes, ...]:
    """Return the keys on a node that do not outlive a lease, whatever the prefix."""
    return tuple(key for key in node.keys if not is_ours_to_stay(key))


@dataclass(frozen=True, slots=True)
class Sent:
    """One command as a node executed it."""

    kind: str
    key: bytes
    owner: bytes
    words: tuple[bytes, ...]


def executed(node: MemoryNode) -> list[tuple[bytes, ...]]:
    """Return what `node` has executed, in order; a batch is the commands that it stands for (R42)."""
    return [single for words in node.executed for single in singles(words)]


def sent(node: MemoryNode) -> list[Sent]:
    """Return what `node` has executed, in order, with the owner each command was sent for.

    A batch is the commands that it stands for.
    """
    commands = []
    for words in executed(node):
        if words[0] == b"SET":
            commands.append(Sent("acquire", words[1], words[2], words))
        elif words[0] in (b"EVALSHA", b"EVAL"):
            kind = SCRIPTS.get(words[1]) or SOURCES[words[1]]
            count = int(words[2])
            owner = words[3 + count] if len(words) > 4 + count else b""  # the last one is the tag
            commands.append(Sent(kind, words[3], owner, words))
        else:
            commands.append(Sent(words[0].decode(), words[1], b"", words))
    return commands


def count(node: MemoryNode, kind: str, name: str | None = None) -> int:
    """Return how many commands of a kind `node` has executed, for one name if given."""
    key = None if name is None else PREFIX + name.encode()
    return sum(one.kind == kind and key in (None, one.key) for one in sent(node))


def drawn_backoffs(monkeypatch: pytest.MonkeyPatch, policy: RetryPolicy) -> list[int]:
    """Write down after which try of its own, from 0 on, each wait by `policy` was drawn."""
    seen: list[int] = []
    backoff = RetryPolicy.backoff

    def spy(self: RetryPolicy, attempt: int, chance: float, **options: float) -> float:
        if self is policy:
            seen.append(attempt)
        return backoff(self, attempt, chance, **options)

    monkeypatch.setattr(RetryPolicy, "backoff", spy)
    return seen


class Heard(Hooks):
    """A hook that keeps all events, with their times."""

    def __init__(self) -> None:
        self.told: list[tuple[float, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        """Return what keeps an event."""
        if name.startswith("on_"):
            return lambda event: self.told.append((sim().time(), event))
        return super().__getattribute__(name)

    def of(self, *kinds: type[Event]) -> list[Event]:
        """Return the events of these kinds."""
        return [event for _, event in self.told if isinstance(event, kinds)]

    def take(self, *kinds: type[Event]) -> list[Event]:
        """Return the events of these kinds, and forget all."""
        events = self.of(*kinds)
        self.told.clear()
        return events


def counter(name: str) -> bytes:
    """Return the key of a name's counter."""
    return PREFIX + b"fence:{" + PREFIX + name.encode() + b"}"
