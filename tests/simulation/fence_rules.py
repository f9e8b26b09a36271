"""The rules under search: the shipping functions, each of which a broken variant may replace (R10–R12)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng import _scripts
from aioredlock_ng._core import fencing, quarantine, slots
from aioredlock_ng._core.fencing import MIN_FENCE_TTL
from aioredlock_ng._core.quorum import majority
from aioredlock_ng.testing import (
    _memory_batches,
    _memory_parts,
    _memory_read_write,
    _memory_scripts,
    _memory_server,
    _memory_slots,
)
from aioredlock_ng.testing._memory_process import MemoryProcess
from aioredlock_ng.testing._memory_readers import ReadWriteEntry

SCRIPTED: Final = (_memory_scripts, _memory_parts, _memory_batches, _memory_read_write, _memory_slots)
"""Where the scripts are, and what they are made of."""

KEEP_MS: Final = round(MIN_FENCE_TTL * 1000)
"""The shortest life of an unused counter that a client may ask for."""


def _new_owner(_client: int, number: int) -> int:
    return number


def _as_it_is(value: int) -> int:
    return value


def _as_asked(_node: int, block: int) -> int:
    return block


@dataclass(frozen=True)
class Rules:
    """What model nodes and model clients go by.

    The first block is the shipping code of clients; the second is what nodes do differently, and the third
    says in one expression each what clients do around it.
    """

    ballot: Callable[[int, int], int] = fencing.ballot
    certified: Callable[[Iterable[int], int], int | None] = fencing.certified
    agreeable: Callable[[Collection[tuple[int, int]]], int] = fencing.agreeable
    eligibility: Callable[..., quarantine.Eligibility] = quarantine.eligibility
    unchanged: Callable[[Collection[int], int, int], bool] = fencing.unchanged
    most_granted: Callable[[Iterable[int]], tuple[int, int]] = slots.most_granted

    of_scripts: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """The functions that the scripts of the nodes call differently, by their names in `SCRIPTED`."""
    block_of: Callable[[int, int], int] = _as_asked
    """How many fences a node takes for a grant, of its number and what the client asked for."""
    raise_script: Callable[..., int] | None = None
    """What is run in place of ``raise.lua``."""
    of_entries: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """The methods of `ReadWriteEntry` that nodes have differently, by their names."""

    certifies_any: bool = False
    """Whether the grants of other slots than the one that was won count for its fence."""
    by_node: bool = False
    """Whether a permit is any slot at each of its nodes, which its holder extends there."""

    reads_with: Callable[[Collection[int], int], int | None] | None = None
    """What gives a reader its fence, of the counters of its grants and their quorum, in place of `certified`
    and a raise."""
    quorum: Callable[[int, int, bool], int] = lambda size, _answered, _reads: majority(size)
    """How many nodes have to grant: of how many, how many of these have answered, and whether to a reader."""
    revives: bool = False
    """Whether a reader takes an extension that comes after its end, and nodes extend what has ended."""

    moves: bool = False
    """Whether a raise goes on to a greater counter that is granted meanwhile."""
    uses_on: bool = False
    """Whether a win first uses up what is left of the block of the one before."""
    raise_floor: Callable[[int], int] = _as_it_is
    """The floor that a raise reads the counter with, of the expected sentinel."""
    new_owner: Callable[[int, int], int] = _new_owner
    """The owner of a client's attempt; the attempts of all clients are numbered."""
    quarantine: Callable[[int], int] = _as_it_is
    """The quarantine that clients ask for, of what the ttl demands; milliseconds."""
    keep_ms: tuple[int, ...] = (KEEP_MS, 2 * KEEP_MS)
    """How long the clients let their counters live, each its own."""
    forgets_sentinels: bool = True
    """Whether an expected sentinel ends with the connection that it was read on."""

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Have all nodes in memory go by these rules while the block runs."""
        with contextlib.ExitStack() as stack:
            for name, function in self.of_scripts.items():
                using = [module for module in SCRIPTED if hasattr(module, name)]
                assert using, f"no script uses {name}"
                for module in using:
                    stack.enter_context(patch.object(module, name, function))
            if self.raise_script is not None:
                scripts = {_scripts.RAISE.digest: self.raise_script}
                stack.enter_context(patch.dict(_memory_server._SCRIPTS, scripts))
            for name, method in self.of_entries.items():
                stack.enter_context(patch.object(ReadWriteEntry, name, method))
            if self.revives:
                scripts = {_scripts.RW_EXTEND.digest: _revived}
                stack.enter_context(patch.dict(_memory_server._SCRIPTS, scripts))
            yield


SHIPPING: Final = Rules()


def _greatest(fences: Iterable[int], quorum: int) -> int | None:
    """Take the greatest counter of a majority for the fence, without a certificate."""
    found = list(fences)
    return max(found) if len(found) >= quorum else None


def _with_floor(sentinel: bytes, floor: int) -> bytes:
    known = quarantine.parse(sentinel)
    return sentinel if known is None else bytes(replace(known, floor=floor))


def _greeted_without_floor(*args: Any, **terms: Any) -> bytes:
    return _with_floor(quarantine.greeted(*args, **terms), 0)


def _initialised_without_floor(*args: Any, **terms: Any) -> bytes:
    return _with_floor(quarantine.initialised(*args, **terms), 0)


def _initialised_by_others(*args: Any, floor: int, **terms: Any) -> bytes:
    """Take the floor that all are to have, however far it is ahead of this node's clock."""
    done = quarantine.initialised(*args, floor=floor, **terms)
    known = quarantine.parse(done)
    return done if known is None else _with_floor(done, max(floor, known.floor))


def _from_nothing(stored: int | None, *, floor: int, now_ms: int) -> int:
    """Let a missing counter start at zero."""
    return max(stored or 0, floor)


def _from_own_ttl(stored: int | None, *, floor: int, now_ms: int) -> int:
    """Let a missing counter start as if all counters lived as long as this client's own."""
    start = fencing.at(now_ms - 2 * KEEP_MS + fencing.FLOOR_AHEAD_MS)
    return max(start if stored is None else stored, floor)


def _as_long_as_asked(_counter: int, _now_ms: int, fence_ttl_ms: int) -> int:
    return fence_ttl_ms


def _greatest_of(granted: Collection[tuple[int, int]]) -> int:
    return max(counter for counter, _ in granted)


def _without_cap(before: int, fence: int, now_ms: int) -> int:
    return max(before, fence)


def _granted_one(before: int, proposed: int, now_ms: int, _block: int) -> int:
    return fencing.granted(before, proposed, now_ms)


_RAISE: Final = _memory_server._SCRIPTS[_scripts.RAISE.digest]


def _raised_by_any(process: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    """Run ``raise.lua`` for each name as if its holder, whichever it is, had sent it."""
    *keys, sentinel = keys
    answers = [
        _RAISE(process, [lock, counter, sentinel], [process.get(lock), *argv[1:]])
        for lock, counter in zip(keys[: len(keys) // 2], keys[len(keys) // 2 :], strict=True)
    ]
    return min(answers)


_RW_EXTEND: Final = _memory_server._SCRIPTS[_scripts.RW_EXTEND.digest]
_READ_ON: Final = ReadWriteEntry.read_on


def _revived(process: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    """Run ``rw_extend.lua`` where a reader's entry that has ended is there all the same."""
    entries, _ = _memory_read_write._parted(process, keys[:-1], fenced=True)
    for entry in entries if argv[4] == b"read" else ():
        if entry.writer is None and entry.reads_until(argv[0]) is None:
            entry.read_on(argv[0], int(argv[1]))
    return int(_RW_EXTEND(process, keys, argv))


def _read_on_together(self: ReadWriteEntry, owner: bytes, ttl: int) -> None:
    """Let all readers end with the one that came last."""
    for other in list(self.server.scores(self.key)):
        self.server.zrem(self.key, other)
        self.server.zadd(self.key, other, self.now + ttl)
    _READ_ON(self, owner, ttl)
    self.server.pexpire(self.key, ttl)


def _of_all(fences: Collection[int], quorum: int) -> int | None:
    """Take the greatest counter that a node has answered for the fence; none is raised."""
    return max(fences) if len(fences) >= quorum else None


def _of_a_quorum(fences: Collection[int], quorum: int) -> int | None:
    """Take the greatest counter at which Q nodes stand, or above."""
    return sorted(fences, reverse=True)[quorum - 1] if len(fences) >= quorum else None


def _of_the_last(fences: Collection[int], quorum: int) -> int | None:
    """Take the least counter; nodes that granted above it count, too."""
    return min(fences) if len(fences) >= quorum else None


def _granted_odd(before: int, proposed: int, now_ms: int, block: int = 1) -> int:
    return max(before + 1, min(proposed, fencing.at(now_ms))) + block - 1


def _shared_with_the_writer(before: int, proposed: int, now_ms: int, *, missing: bool) -> int:
    return max(before, min(proposed, fencing.at(now_ms))) if missing else before


def _one_node_is_enough(befores: Collection[int], fence: int, _quorum: int) -> bool:
    return any(before <= fence | 1 for before in befores)


_MOST_GRANTED: Final = slots.most_granted


def _granted_together(granted: Iterable[int]) -> tuple[int, int]:
    """Count the grants of all slots for the one that most nodes granted."""
    found = list(granted)
    return _MOST_GRANTED(found)[0], len(found)


BROKEN: Final[dict[str, Rules]] = {
    "the greatest counter without a certificate": Rules(certified=_greatest),
    "a raise that does not look at the owner": Rules(raise_script=_raised_by_any),
    "one owner value for two attempts": Rules(new_owner=lambda client, _number: client),
    "no floor after a loss": Rules(
        of_scripts={"greeted": _greeted_without_floor, "initialised": _initialised_without_floor}
    ),
    "no start for a missing counter": Rules(of_scripts={"reading": _from_nothing}),
    "a start by the client's own fence_ttl": Rules(of_scripts={"reading": _from_own_ttl}),
    "counters that live 10 s": Rules(keep_ms=(KEEP_MS, 10_000), of_scripts={"kept_ms": _as_long_as_asked}),
    "no cap on the raise": Rules(agreeable=_greatest_of, of_scripts={"raised": _without_cap}),
    "a raise without the floor": Rules(raise_floor=lambda _floor: 0),
    "a floor by another node's clock": Rules(of_scripts={"initialised": _initialised_by_others}),
    "nodes that take another block than the client counts on": Rules(
        block_of=lambda node, block: max(1, block - node)
    ),
    "nodes that add one for a block": Rules(of_scripts={"granted": _granted_one}),
    "a block that is used on after it was lost, and the lock won again": Rules(uses_on=True),
    "a fence that moves while nodes are raised": Rules(moves=True),
    "an expected sentinel that outlives its connection": Rules(forgets_sentinels=False),
}
"""Variants that break the order of the fences, or make one twice."""

BROKEN_READERS: Final[dict[str, Rules]] = {
    "the greatest answer without raising": Rules(reads_with=_of_all),
    "the greatest at which a quorum stands": Rules(reads_with=_of_a_quorum),
    "the least answer, whichever nodes were above it": Rules(reads_with=_of_the_last),
    "a writer's fence may be odd": Rules(of_scripts={"granted": _granted_odd}),
    "a reader has the last writer's fence": Rules(of_scripts={"shared": _shared_with_the_writer}),
}
"""Variants that break the order of the fences of readers and writers (R21)."""

BROKEN_SHARING: Final[dict[str, Rules]] = {
    "one end for all readers": Rules(of_entries={"read_on": _read_on_together}),
    "a read from one node": Rules(quorum=lambda size, _, reads: 1 if reads else majority(size)),
    "a majority of those that answered": Rules(
        quorum=lambda size, answered, _: majority(max(1, answered) if answered < size else size)
    ),
    "a reader that has ended is extended": Rules(revives=True),
    "a restarted node votes at once": Rules(quarantine=lambda _ttl_ms: 0),
}
"""Variants that let a writer and another holder in at once (R20)."""

BROKEN_FOLLOWING: Final[dict[str, Rules]] = {
    "nothing is compared": Rules(unchanged=lambda *_: True),
    "one node is compared": Rules(unchanged=_one_node_is_enough),
}
"""Variants that tell a writer that none came between, though one did (R23)."""

BROKEN_PERMITS: Final[dict[str, Rules]] = {
    "a count of holders at each node": Rules(
        most_granted=_granted_together, certifies_any=True, by_node=True
    ),
    "a quorum of any slots": Rules(most_granted=_granted_together, certifies_any=True),
    "a restarted node votes at once": Rules(quarantine=lambda _ttl_ms: 0),
}
"""Variants that let more than one into a slot, or more in than there are permits (R24, R25)."""

BROKEN_SLOTS: Final[dict[str, Rules]] = {
    "the grants of any slots certify a fence": Rules(certifies_any=True),
}
"""Variants that break the order of the fences of a slot (R25)."""

UNQUARANTINED: Final = Rules(quarantine=lambda _ttl_ms: 0)
"""``restart_quarantine=0``: no exclusion after a restart, but the fences must stay in order."""
