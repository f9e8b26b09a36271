"""Fences: numbers that a quorum makes without consensus, unique and growing for each name (R10, R11).

**State.**  Beside the lock's key L (the owner, gone after the ttl) every node keeps a counter F for the
name.  It counts as what is stored, or as *start* when nothing is: `START_LAG_MS` behind the node's time; and
never as less than the floor of the node's record (`quarantine`; ``parts/counter.lua``).  Three laws hold at
each node:

1. an acquire that is granted a block of k numbers sets F at least k above every value that F ever had, so
   that the whole block, F - k + 1 to F, is above them (``acquire.lua``); most acquires ask for one number,
   and F is even then;
2. while L belongs to an owner, only that owner raises F, and no further than `RAISE_AHEAD_MS` beyond the
   node's time (``parts/raise.lua``).  Without that cap one node with a clock an hour ahead would pull all
   counters beyond what start and floors make up for after a loss;
3. F never falls.

**Certificate.**  A fence T is valid only with a *certificate*: at least Q nodes where L is the owner's
and F *equals* T (`certified`).  The `ballot` that goes out with the acquire makes all nodes choose the
same number, so that the answers to the acquire are the certificate.  If they differ, the owner raises F to
the greatest of them, on the nodes below it; without a certificate then, the acquire is lost.

**Block.**  The certificate gives the owner the numbers T - k + 1 to T, which its process hands to its leases
in turn, the least first (R43).  k is part of what the owner asked every node for, and never changes: so all
nodes of the certificate mean the same numbers, also those that were raised.  A raise needs no k: T is not
below what the node granted, so that T - k + 1 is above all that F was there before the grant.

**Unique.**  Two certificates share a node.  Of the two owners one got that node later, after F was at the
other's T there: by law 1 its own F was greater by k at least, and by laws 2 and 3 it stayed so.  So its whole
block is above the other's T.  Within a block the process gives each number once.

**In order.**  If A's acquire had ended before B's began, B's owner value did not exist when A's certificate
was made.  So at the node that both share B came later, and all of B's numbers are the greater ones.  A number
that is handed off dates from the acquire of its block: a lease that began with it later is in order with all
that was acquired before that acquire, or after this lease.  While the timing assumptions hold, no other
process can have the lock in between.  When they fail, it can, and then its fence is the greater one: the
resource refuses the heir of a lock that was lost, as it refuses that lock's first holder.

Neither argument uses a client's clock, or that the timing assumptions A1 to A3 hold: when they fail and
two clients hold the lock at once, their fences still differ, and agree with the order on the shared node.
That is why a resource that refuses what is older than the newest fence it has seen stays safe.

**Readers.**  Several hold a name at once (R21).  A reader's grant makes F odd, by one at most (``read.lua``),
so that all readers between two writers have one fence, and share it with no other holder.  Law 2 becomes:
while readers have the name only they raise F, and none above its own T.  So a reader's certificate cannot
ask for nodes *at* T, where others may raise them.  It takes Q nodes that granted at T or below, and stand
at T or above while its entry lives.  Take a reader's certificate and that of another holder, and the node
that both share.  Was the other one there first, F was at its T or above when the reader was granted, and
the reader's T is not below what that node answered; above it, if the other was a writer, whose T is even.
Was the reader there first, a writer's grant went above F, which was at the reader's T or above.  A node
that granted above T, or has not said where, proves neither, and counts for nothing.

**Loss.**  Counters expire when they are not used, and nodes may lose them.  F is made of the node's time,
`at` some milliseconds, and law 3 survives because time goes on: F is below `at(now + 12 s)`, unless
the clock was set back, and then it is kept until that is true again for long enough (``kept`` in
``parts/counter.lua``).  A counter that has expired was last set `MIN_FENCE_TTL` seconds ago or earlier, so
that it was below what start says now; a release need not touch it, since nothing raises F in between.  The
floor of a node that lost its data lies above all that F can have been.  What is needed is that the node's own
clock does not run backwards across that loss.

**From outside.**  Where a majority has one owner's L, and F at one number X, no fence that was given out is
above X: any certificate shares a node with that majority, and F does not fall.  X is the owner's own T, if it
has a certificate: at the node that both share only the owner raises F, and to nothing but T.  (Unless that
node has forgotten both since, and was topped up: then X may be above T.)  What nodes do not know is k, and
whether the owner asked for a fence at all: else F is an earlier one's.

**How fast F grows.**  Raises end ten seconds ahead and ballots do not pass the node's time; what acquires add
beyond that must not be more than time makes up for, and a number is worth a microsecond.  An acquire of one
number takes two at the most, and longer than that.  One of `MAX_BLOCK` may be 64 microseconds ahead, and
those have passed before the node can grant that name again: the grant goes to the client, and the release
comes back.  A call that is cancelled before its answer has come leaves that round trip out.  It would take
16,000 of them a second, each with 63 tasks behind it, until the two seconds between `RAISE_AHEAD_MS` and
`FLOOR_AHEAD_MS` are used up; or a node that loses its data twice, within the microseconds of one block that
it grants in between.  Only `floor_at` rests on this: how long a counter is kept goes by the counter itself.

All of this is exact in the scripts, too: numbers stay below 2**53 until about the year 2250, so that they fit
the doubles of Lua.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

SHIFT: Final = 10
"""Bits of a fence below its milliseconds: room for 1024 acquires in each."""

MIN_FENCE_TTL: Final = 300.0
"""Seconds that a counter lives after its last use, at least: `START_LAG_MS` rests on it."""

START_LAG_MS: Final = 288_000
"""The distance behind the node's time at which a missing counter starts: `MIN_FENCE_TTL` less
`FLOOR_AHEAD_MS`.  A constant of the protocol, not derived from a client's own setting: another client's
counters may live longer."""

RAISE_AHEAD_MS: Final = 10_000
"""The distance beyond its own time to which a node lets itself be raised."""

FLOOR_AHEAD_MS: Final = 12_000
"""The distance of a node's floor beyond its own time: above all that its counters can have been."""

MAX_BLOCK: Final = 64
"""Numbers that one acquire may ask for; more of them would be further ahead of the node's clock than a round
trip makes up for (*how fast F grows*)."""

BALLOT_LAG_MS: Final = 10_000
"""The distance of a ballot behind the time, so that nodes whose clocks are late can follow it."""


def at(time_ms: int) -> int:
    """Return the first fence of a millisecond (Unix time)."""
    return time_ms << SHIFT


# -- the client's part -------------------------------------------------------------------------------


def ballot(seen: int, time_ms: int) -> int:
    """Return the number that is proposed to all nodes: a hint that makes them agree at once.

    `seen` is the greatest counter that this acquire has seen so far, 0 for none.
    """
    by_time = (time_ms - BALLOT_LAG_MS) << SHIFT
    return by_time if by_time > seen else seen + 1  # `max` takes longer


def range_end(first: int, block: int) -> int:
    """Return the last of `block` numbers from `first` on, or the even one after it (R21).

    The number between is left out, if there is one: a block begins where its end and its size say.
    """
    last = first + block - 1
    return last + (last & 1)


def certified(fences: Sequence[int], quorum: int) -> int | None:
    """Return the fence at which at least `quorum` of the nodes that granted stand, if there is one."""
    for fence in fences:
        if fences.count(fence) >= quorum:
            return fence
    return None


def agreeable(granted: Collection[tuple[int, int]]) -> int:
    """Return the counter that most nodes can be raised to; of several the least.

    `granted` are the counters of the nodes that granted, each with the node's time in milliseconds.  The
    greatest may be out of reach: where the clock is far ahead, or the floor is fresh.  One such node must not
    keep the others from agreeing.
    """

    def followers(fence: int) -> int:
        return sum(f == fence or f < fence <= at(ms + RAISE_AHEAD_MS) for f, ms in granted)

    return min((-followers(counter), counter) for counter, _ in granted)[1]


def unchanged(befores: Iterable[int], fence: int, quorum: int) -> bool:
    """Return whether no writer came since a read lease with that fence (R23).

    `befores` are where the counters of the nodes stood before they granted.  A writer's certificate shares a
    node with any majority, whose counter it left above that fence; by two, if that is even, a writer's that
    has become a reader: readers beside that one make it odd.
    """
    return sum(before <= fence | 1 for before in befores) >= quorum


def floor_at(now_us: int) -> int:
    """Return the floor for a node that has just lost its data, by its clock in microseconds.

    The microseconds tell two losses in one millisecond apart: no acquire takes less than one of them.
    """
    now_ms, rest_us = divmod(now_us, 1000)
    return at(now_ms + FLOOR_AHEAD_MS) + rest_us
