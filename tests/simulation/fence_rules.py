"""The rules under search: the shipping code, of which a broken variant may replace any part (R10–R12)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from aioredlock_ng._core import fencing, quarantine, slots
from aioredlock_ng._core.fencing import MIN_FENCE_TTL
from aioredlock_ng._core.quorum import majority
from tests.lua_edits import LuaEdit, edited_lua

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

    edits: tuple[LuaEdit, ...] = ()
    """What the scripts of the nodes do differently."""
    block_of: Callable[[int, int], int] = _as_asked
    """How many fences a node takes for a grant, of its number and what the client asked for."""

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
    """Whether a reader takes an extension that comes after its end."""

    moves: bool = False
    """Whether a raise goes on to a greater counter that is granted meanwhile."""
    uses_on: bool = False
    """Whether a win first uses up what is left of the block of the one before."""
    raise_floor: Callable[[int], int] = _as_it_is
    """The floor that a raise reads the counter with, of the expected record."""
    new_owner: Callable[[int, int], int] = _new_owner
    """The owner of a client's attempt; the attempts of all clients are numbered."""
    quarantine: Callable[[int], int] = _as_it_is
    """The quarantine that clients ask for, of what the ttl demands; milliseconds."""
    keep_ms: tuple[int, ...] = (KEEP_MS, 2 * KEEP_MS)
    """How long the clients let their counters live, each its own."""
    forgets_records: bool = True
    """Whether an expected record ends with the connection that it was read on."""

    def in_force(self) -> AbstractContextManager[None]:
        """Have all nodes in memory go by these rules while the block runs."""
        return edited_lua(*self.edits)


SHIPPING: Final = Rules()


def _greatest(fences: Iterable[int], quorum: int) -> int | None:
    """Take the greatest counter of a majority for the fence, without a certificate."""
    found = list(fences)
    return max(found) if len(found) >= quorum else None


def _greatest_of(granted: Collection[tuple[int, int]]) -> int:
    return max(counter for counter, _ in granted)


def _of_all(fences: Collection[int], quorum: int) -> int | None:
    """Take the greatest counter that a node has answered for the fence; none is raised."""
    return max(fences) if len(fences) >= quorum else None


def _of_a_quorum(fences: Collection[int], quorum: int) -> int | None:
    """Take the greatest counter at which Q nodes stand, or above."""
    return sorted(fences, reverse=True)[quorum - 1] if len(fences) >= quorum else None


def _of_the_last(fences: Collection[int], quorum: int) -> int | None:
    """Take the least counter; nodes that granted above it count, too."""
    return min(fences) if len(fences) >= quorum else None


def _one_node_is_enough(befores: Collection[int], fence: int, _quorum: int) -> bool:
    return any(before <= fence | 1 for before in befores)


_MOST_GRANTED: Final = slots.most_granted


def _granted_together(granted: Iterable[int]) -> tuple[int, int]:
    """Count the grants of all slots for the one that most nodes granted."""
    found = list(granted)
    return _MOST_GRANTED(found)[0], len(found)


ENDED_READERS_READ_ON: Final = LuaEdit(
    "parts/read_write.lua",
    "and reads_until(key, owner, ms)",
    "and (reads_until(key, owner, ms) or type(redis.pcall('GET', key)) ~= 'string' and ms)",
)
"""A reader whose entry has ended is extended as if it were there."""

READERS_HAVE_THE_WRITERS_FENCE: Final = LuaEdit("read.lua", "even(fence + 1) - 1", "fence")

BROKEN: Final[dict[str, Rules]] = {
    "the greatest counter without a certificate": Rules(certified=_greatest),
    "a raise that does not look at the owner": Rules(edits=(LuaEdit("raise.lua", "found ~= 1", "false"),)),
    "one owner value for two attempts": Rules(new_owner=lambda client, _number: client),
    "no floor after a loss": Rules(
        edits=tuple(
            LuaEdit(file, old, "0")
            for file, old in (
                ("greet.lua", "(moment + 12000) * 1024 + us % 1000"),
                ("init.lua", "(ms + 12000) * 1024 + us % 1000"),
            )
        )
    ),
    "no start for a missing counter": Rules(
        edits=(LuaEdit("parts/counter.lua", "(ms - 288000) * 1024", "0"),)
    ),
    "a start by the client's own fence_ttl": Rules(edits=(LuaEdit("parts/counter.lua", "288000", "588000"),)),
    "counters that live 10 s": Rules(
        keep_ms=(KEEP_MS, 10_000),
        edits=(LuaEdit("parts/counter.lua", "needed > tonumber(keep_ms) and needed or keep_ms", "keep_ms"),),
    ),
    "no cap on the raise": Rules(
        agreeable=_greatest_of,
        edits=(
            LuaEdit("raise.lua", "fence > (ms + 10000) * 1024", "false"),
            LuaEdit("parts/raise.lua", "before < fence and fence > (ms + 10000) * 1024", "false"),
        ),
    ),
    "a raise without the floor": Rules(raise_floor=lambda _floor: 0),
    "a floor by another node's clock": Rules(edits=(LuaEdit("init.lua", "math.min(asked, own)", "asked"),)),
    "nodes that take another block than the client counts on": Rules(
        block_of=lambda node, block: max(1, block - node)
    ),
    "nodes that add one for a block": Rules(edits=(LuaEdit("acquire.lua", " + ARGV[4] - 1", ""),)),
    "a block that is used on after it was lost, and the lock won again": Rules(uses_on=True),
    "a fence that moves while nodes are raised": Rules(moves=True),
    "an expected record that outlives its connection": Rules(forgets_records=False),
}
"""Variants that break the order of the fences, or make one twice."""

BROKEN_READERS: Final[dict[str, Rules]] = {
    "the greatest answer without raising": Rules(reads_with=_of_all),
    "the greatest at which a quorum stands": Rules(reads_with=_of_a_quorum),
    "the least answer, whichever nodes were above it": Rules(reads_with=_of_the_last),
    "a writer's fence may be odd": Rules(edits=(LuaEdit("write.lua", "fence = even(", "fence = ("),)),
    "a reader has the last writer's fence": Rules(edits=(READERS_HAVE_THE_WRITERS_FENCE,)),
}
"""Variants that break the order of the fences of readers and writers (R21)."""

BROKEN_SHARING: Final[dict[str, Rules]] = {
    "one end for all readers": Rules(edits=(LuaEdit("read.lua", "left < tonumber(ttl)", "true"),)),
    "a read from one node": Rules(quorum=lambda size, _, reads: 1 if reads else majority(size)),
    "a majority of those that answered": Rules(
        quorum=lambda size, answered, _: majority(max(1, answered) if answered < size else size)
    ),
    "a reader that has ended is extended": Rules(revives=True, edits=(ENDED_READERS_READ_ON,)),
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

VARIANTS: Final[dict[str, dict[str, Rules]]] = {
    "mutexes": BROKEN,
    "readers": BROKEN_READERS,
    "sharing": BROKEN_SHARING,
    "following": BROKEN_FOLLOWING,
    "permits": BROKEN_PERMITS,
    "slots": BROKEN_SLOTS,
    "memory": {"no quarantine": UNQUARANTINED},
}
"""All of them, by what they are about."""
