"""One attempt: all nodes are asked once, with a new owner value; unless it wins, it is undone (R1, R5)."""

from __future__ import annotations

from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Final, final

from .._core.command import ABOVE_FENCE, GRANTED, Answer
from .._core.fencing import agreeable, ballot, certified, unchanged
from .._core.owner import signed
from .._core.quorum import GRANT, WON, Vote
from .._core.seats import NO_SEAT, Seat
from .._kinds.primitive import Primitive
from .._round.batch import Asked, FencedAcquires, PlainAcquires
from .._round.outbox import TickContext
from .._round.round import Round, SlotRound, all_answered, verdict_known
from .._settings.options import Request
from ..errors import LockNotAcquiredError
from .handoff import Grant
from .refusals import knows_why, refusal_by_nodes, without_fence

if TYPE_CHECKING:
    from .session import Session

SLOWER_NODES_GET: Final = 0.01
"""Seconds that slower nodes get to answer after a round is decided: how long their key will stay, or at which
fence they stand."""

OWNER_BITS: Final = 160
"""Random bits of an owner value (A5), as many as the Redlock page takes from /dev/urandom."""

OWNERS_AT_ONCE: Final = 16
"""Owner values whose random bits are drawn at once: a system call for each would dominate an attempt."""

_FENCE: Final = attrgetter("fence")


@final
class OwnerValues:
    """The random parts of the owner values of one manager (A5).  No generator: an error would end that."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._left: list[bytes] = []

    def __next__(self) -> bytes:
        if not self._left:
            digits = self._random.randbytes(OWNER_BITS // 8 * OWNERS_AT_ONCE).hex().encode()
            begins = range(0, len(digits), OWNER_BITS // 4)
            self._left = [digits[begin : begin + OWNER_BITS // 4] for begin in begins]
        return self._left.pop()


def read_clocks(session: Session) -> TickContext:
    """Read the values shared by the attempts of one turn of the event loop, before any byte (R3)."""
    asked_at, wall, ahead = session.clock.now(), session.wall(), session.clocks.median_ahead
    # The nodes' time, if samples of it exist; otherwise that of the wall clock.  It is only a hint: a
    # ballot that is too low makes the nodes answer with greater fences.
    time = wall if ahead is None else asked_at + ahead
    # An owner value is a random part, then the moment of the question in Unix milliseconds, a letter if
    # the kind has one (`signed`), and the holder's label.  All but the random part is for people that
    # inspect a lock: no decision depends on it, and values are compared as a whole.
    ends = b":%013d:%b" % (wall * 1000, session.holder.encode())
    return TickContext(asked_at, ballot(0, int(time * 1000)) if session.options.fencing else 0, ends)


@final
class Attempt:
    """An attempt to acquire `primitive` with a fence range of length `block` (R43), as `request` says.

    `seen` is the greatest counter that a node has reported, and `seat` marks the call at the nodes while it
    waits.
    """

    # Defaults on the class: most attempts never set these, which saves their memory and time.
    _undone: Round | None = None
    _raising: Round | None = None
    fence = 0
    """The fence, once it has a certificate (R10); the last one of a fence range; 0 without fencing."""
    named: int | None = None  # for a semaphore, after a lost attempt: the slot said to be free, or `ANY`

    def __init__(  # noqa: PLR0917 (see `Asked`)
        self,
        session: Session,
        primitive: Primitive,
        request: Request,
        timeout: float,
        seen: int,
        block: int = 1,
        seat: Seat = NO_SEAT,
    ) -> None:
        self._session = session
        self.primitive = primitive
        self._request = request
        self._timeout = timeout
        self._seat = seat
        self.seen = seen
        self.fences_left = block - 1
        """Number of fences in the range that are left for other tasks, below `fence`."""
        outbox = session.outbox
        # The first acquire of this turn reads the clocks; the others use its values.
        if (tick := outbox.tick) is None:
            tick = read_clocks(session)
        self._tick = tick
        self.asked_at = asked_at = tick.asked_at
        """When the lock was asked for."""
        self.valid_until = asked_at + request.validity
        """The end of the validity, if it is won (R3)."""
        # Above every counter that this call has seen: a node's clock may be far ahead of the ballot.
        proposed = 0
        if primitive.fenced:
            proposed = tick.ballot if tick.ballot > seen else seen + 1
        self._proposed = proposed
        self.owner = owner = next(session.owners) + tick.owner_ends
        """New for every attempt, and known before the first byte (R5)."""
        self.round: Round
        # A mutex with one name: its acquire leaves in a batch with those of the same turn.
        if primitive.batchable:
            batch = FencedAcquires if proposed else PlainAcquires
            self.round = Asked(outbox, batch, primitive, owner, request.ttl, proposed, block)
        # Every other lock: a command of its own.
        else:
            self.owner = signed(owner, primitive.kind.letter, request.holder)
            self.round = (SlotRound if primitive.kind.no_slot else Round)(outbox, primitive.read_acquire)

    def ask(self) -> None:
        """Send the acquire to all nodes, in the turn of the event loop in which the attempt was made.

        The caller has taken a place for it (`AttemptLimiter`), and calls `end` once there is a verdict; if an
        exception comes before that, it calls `undo`, too.
        """
        session, round_, timeout = self._session, self.round, self._timeout
        session.in_flight.add(self)
        # In a batch, of its own or with others.
        if isinstance(round_, Asked):
            session.outbox.ask(round_, timeout, self._tick)
            return
        # A command of its own.
        command = self.primitive.acquire(
            self.owner,
            self._request.ttl,
            self._proposed,
            self.fences_left + 1,
            seat=self._seat,
            named=self.named,
            chance=session.random.random,
        )
        round_.ask(command, timeout)

    # -- the fence -----------------------------------------------------------------------------

    def outcome(self) -> bool | None:
        """Whether it is won, by the answers so far; None: a majority granted, but agrees on no fence."""
        # Lost; or undone meanwhile, although it was won: the manager is being closed.
        if self.round.verdict is not WON or self._undone is not None:
            return False
        if self.primitive.fenced:
            if not self._certified():
                return None
            self._session.counters.certified += 1
        return True

    def _certified(self) -> bool:
        """Whether a majority stands at one fence (R10), by the answers so far; sets `fence`."""
        # Example: three of five nodes stand at the proposed fence 8, and two whose counters were above it
        # stand at 10: the fence is 8.
        self.fence = certified([*map(_FENCE, self._grants().values())], self.round.quorum) or 0
        return self.fence > 0

    def _grants(self) -> dict[int, Answer]:
        """Return the grants by node, without those of nodes whose clock has jumped (R14)."""
        clocks, now, grants = self._session.clocks, self._session.clock.now(), dict[int, Answer]()
        limits = clocks.limits
        for node, answer in enumerate(self.round.answers):
            if answer is None or answer.vote is not GRANT:
                continue
            # The comparison with the limit is what `believes` nearly always comes down to, without the call.
            if answer.time - now <= limits[node] or clocks.believes(node, now, answer.time):
                grants[node] = answer
        return grants

    async def certify(self) -> bool:
        """Find a fence that a majority stands at after all, or raise the nodes to one (R10).

        False if there is none.  Takes no longer than the time that `ask` was given.
        """
        # A node that has not answered so far is likely to agree: a short wait may save a round.
        await self.round.wait(lambda tally: not tally.pending or self._certified(), within=SLOWER_NODES_GET)
        # The next answer has completed a majority at one fence.
        if self._certified():
            self._session.counters.certified += 1
            return self._undone is None
        # All have answered, or the wait was long enough: a second round raises the counters.
        if self._undone is None and await self._raise():
            self._session.counters.raised += 1
            return self._undone is None
        # Granted by a majority, but no fence: not a win.
        self._session.counters.uncertified += 1
        return False

    async def _raise(self) -> bool:
        """Raise the counters to a fence that most nodes can reach; True if a majority then stands there.

        Example: three nodes have granted with the fences 6, 8 and 10.  Raised to 10, all three agree.
        """
        session, asked, grants = self._session, self.round, self._grants()
        left = self.asked_at + self._timeout - session.clock.now()
        # Pointless: even all missing answers would make no majority of grants that count, or time is up.
        if len(grants) + asked.pending < asked.quorum or not grants or left <= 0:
            return False
        fence = agreeable([(answer.fence, int(answer.time * 1000)) for answer in grants.values()])
        self.seen = max(self.seen, fence)
        # A node in here counts without being asked; every other one is asked: it granted below the fence, or
        # has not answered so far.
        known: dict[int, Answer] = {}
        for node, answer in enumerate(asked.answers):
            if node in grants:
                # At the fence already: it counts.  Above it: no node's counter is ever lowered.  Below it:
                # the node is asked.
                if grants[node].fence >= fence:
                    known[node] = GRANTED if grants[node].fence == fence else ABOVE_FENCE
            # Refused, silent, or its clock has jumped: it does not count for the certificate.
            elif answer is not None:
                known[node] = Answer(Vote.SILENT, answer.reason or "it refused, or its clock has jumped")
            # No answer so far, and the kind does not let such a node count (R21).
            elif (unheard := self.primitive.kind.unheard) is not None:
                known[node] = unheard
            # No answer so far otherwise: it may still grant, and its raise is queued behind the acquire.
        won = asked.won(self.primitive)
        round_ = self._raising = Round(session.outbox, won.kind.raise_.read)
        round_.ask(won.raise_(self.owner, fence), left, known=known)
        await round_.wait(verdict_known)
        self.fence = fence if round_.verdict is WON else 0
        return self.fence > 0

    def unchanged_since(self, fence: int) -> bool:
        """Whether no writer held the lock between a lease with that fence and this win (R23)."""
        befores = [answer.before for answer in self._grants().values()]
        return unchanged(befores, fence, self.round.quorum)

    # -- its end -------------------------------------------------------------------------------

    def end(self) -> None:
        """Give its place back: it has its verdict, or was abandoned."""
        session = self._session
        session.in_flight.discard(self)
        # `AttemptLimiter.leave`, inlined for the usual case: a place is free beside this one, so none queues.
        limiter = session.attempt_limiter
        if limiter.in_flight < limiter.most:
            limiter.in_flight -= 1
        else:
            limiter.leave(self.round)

    def grant(self) -> Grant:
        """Return the lock that it has won."""
        request, round_ = self._request, self.round
        return Grant(
            self.primitive if self.primitive.batchable else round_.won(self.primitive),
            self.owner,
            request.ttl,
            request.holder,
            self.fence,
            self.fences_left,
            round_,
            self.asked_at,
            self.valid_until,
            round_.unsent,
        )

    # -- undone --------------------------------------------------------------------------------

    def undo(self, timeout: float | None = None) -> Round:
        """Release on every node that was asked; a second call returns the same round (R5).

        The nodes have `timeout` seconds to answer, by default as long as for the attempt.

        The releases are queued before anything is awaited, so that a cancellation cannot prevent them.
        """
        timeout = self._timeout if timeout is None else timeout
        # The close of the manager undoes attempts in flight; their own tasks come here afterwards.
        if self._undone is None:
            # The acquire may still wait in the outbox, and releases leave it before acquires.
            self._session.outbox.drain()
            self._undone = self._session.releases.release(
                self.primitive,
                self.owner,
                keeps=self._request.ttl,
                fence=0,
                unsent=self.round.unsent,
                timeout=timeout,
                seat=self.primitive.kind.seat_of_try(self.seat),
            )
        return self._undone

    @property
    def seat(self) -> Seat:
        """The call's mark with its position in the queue, the greatest that a node proposed (R28)."""
        # It has a position already, from an earlier attempt; or the kind has no queue.
        if self._seat.ticket or not self._seat.name:
            return self._seat
        # Each node proposes a position behind all those that it knows.  Example: three nodes propose 5, 5
        # and 7; 7 is behind all calls on each of them.
        proposed = (answer.ticket for answer in self.round.answers if answer is not None)
        return self._seat._replace(ticket=max(proposed, default=0))

    @property
    def ahead(self) -> int:
        """Upper bound for the queue position, from the nodes that have answered."""
        ahead = sorted(answer.ahead for answer in self.round.answers if answer is not None)
        # Example of five nodes that answer 0, 0, 2, 2 and 9: at a majority at most 2 calls are ahead.
        return ahead[: self.round.quorum][-1] if ahead else 0

    async def undo_and_explain(self, timeout: float) -> LockNotAcquiredError:
        """Undo the attempt, and return the error that says why it did not win."""
        undo = self.undo(timeout)
        await undo.wait(lambda _: knows_why(self.round, undo))
        # The other nodes may still say when their keys expire: worth a short wait.
        await undo.wait(all_answered, within=SLOWER_NODES_GET)
        names = self.primitive.names
        # A majority granted, but there is no certificate for a fence.
        if self.round.verdict is WON and self.primitive.fenced and not self.fence:
            return without_fence(names, self.round if self._raising is None else self._raising)
        return refusal_by_nodes(names, self.round, undo, ahead=self.ahead)

    @property
    def undone(self) -> Round:
        """The round of its releases, whose answers say what was found under the keys."""
        assert self._undone is not None, "a refused try has been undone"
        return self._undone

    @property
    def free(self) -> list[int]:
        """The nodes on which the lock is free after the undo.

        They have granted this attempt, or they refused it and their holder has gone meanwhile.
        """
        return [
            node
            for node, (first, then) in enumerate(zip(self.round.answers, self.undone.answers, strict=True))
            if first is not None
            and (
                first.vote is Vote.GRANTED
                or (first.vote is Vote.REFUSED and then is not None and then.wait == 0.0)
            )
        ]

    @property
    def listeners(self) -> int:
        """Number of processes that listen to releases, as the undo's replies say; 0 when unknown (R33)."""
        reached = (answer.reached for answer in self.undone.answers if answer is not None)
        # -1 from a node that does not know.
        return max(0, max(reached, default=0))

    @property
    def foreign(self) -> frozenset[int]:
        """The nodes where another program's key is in the way."""
        answers = enumerate(self.undone.answers)
        return frozenset(node for node, answer in answers if answer is not None and answer.foreign)

    @property
    def no_expiry(self) -> str | None:
        """The name of a node where a key without expiry is in the way: no ttl frees it (R16)."""
        for vote, found in zip(self.round.votes(), self.undone.answers, strict=True):
            # Refused both when it was asked and when it was undone: a key that is still there.
            refused = vote.vote is Vote.REFUSED and found is not None and found.vote is Vote.REFUSED
            if refused and found is not None and found.wait is None:
                return vote.node
        return None
