"""Wrong variants of R31 and R32, which the search must catch: the shipping code with one rule taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng import _scripts
from aioredlock_ng._core import election
from aioredlock_ng._core.election import Look, Seen
from aioredlock_ng._core.owner import parse_owner
from aioredlock_ng._elect import elections, observation
from aioredlock_ng.testing import _memory_server
from aioredlock_ng.testing._memory_process import MemoryProcess

from .election_world import Rule

Judging = Callable[[Seen, Sequence[Look], int], Seen | None]
Script = Callable[[MemoryProcess, list[bytes], list[bytes]], Any]


@contextlib.contextmanager
def judging(seen: Judging) -> Iterator[None]:
    """Observers make something else of their looks."""
    with patch.object(observation, "seen", seen), patch.object(elections, "seen", seen):
        yield


def without_memory(before: Seen, looks: Sequence[Look], quorum: int) -> Seen | None:
    """Go by the last look alone."""
    return election.seen(Seen(tells=before.tells), looks, quorum)


def by_the_first(before: Seen, looks: Sequence[Look], _quorum: int) -> Seen | None:
    """Go by one node."""
    return election.seen(before, looks[:1], 1)


def by_a_majority(before: Seen, looks: Sequence[Look], quorum: int) -> Seen | None:
    """Believe what Q nodes show alike."""
    agreed = [look.announced for look in looks]
    shown = [
        look if agreed.count(look.announced) >= quorum else look._replace(announced=None) for look in looks
    ]
    return election.seen(before, shown, quorum)


@contextlib.contextmanager
def running(script: bytes, instead: Callable[[Script], Script]) -> Iterator[None]:
    """Nodes do something else."""
    scripts = _memory_server._SCRIPTS
    with patch.dict(scripts, {script: instead(scripts[script])}):
        yield


def showing_the_owner(observe: Script) -> Script:
    """Tell of the owner under the lock's key, with what the counter stands at for its term."""

    def instead(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> Any:
        votes, held, announced = observe(server, keys, argv)
        owner = parse_owner(server.get(keys[0]) or b"")
        if owner is not None:
            term = server.get(keys[1].replace(b"leader:", b"fence:", 1)) or b"0"
            announced = b"%b:%b" % (term, owner.label.encode())
        return [votes, held, announced]

    return instead


def announcing(acquire: Script) -> Script:
    """Announce with the acquire what the node grants."""

    def instead(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> Any:
        code, fence, time_us = acquire(server, keys, argv)
        owner = parse_owner(argv[0])
        if code == 1 and owner is not None:
            announced = b"%d:%b" % (fence, owner.label.encode())
            server.set(keys[1].replace(b"fence:", b"leader:", 1), announced, 600_000)
        return [code, fence, time_us]

    return instead


@contextlib.contextmanager
def both(*variants: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """Take away more than one rule."""
    with contextlib.ExitStack() as stack:
        for variant in variants:
            stack.enter_context(variant())
        yield


def _shows() -> contextlib.AbstractContextManager[None]:
    return running(_scripts.OBSERVE.digest, showing_the_owner)


VARIANTS: Final[dict[str, tuple[Callable[[], contextlib.AbstractContextManager[None]], frozenset[Rule]]]] = {
    "the owner that one node shows leads": (_shows, frozenset({Rule.WON})),
    "the owner that Q nodes show leads": (
        lambda: both(_shows, lambda: judging(by_a_majority)),
        frozenset({Rule.WON}),
    ),
    "a term is announced with the acquire": (
        lambda: running(_scripts.ACQUIRE.digest, announcing),
        frozenset({Rule.WON}),
    ),
    "the first answer counts": (lambda: judging(by_the_first), frozenset({Rule.NEWS})),
    "what was heard before is forgotten": (lambda: judging(without_memory), frozenset({Rule.GROWING})),
}
"""How each is made, and what breaks then."""
