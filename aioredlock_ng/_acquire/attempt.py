"""One try: a fresh owner, asked of all nodes once, and undone unless it is a win (R1, R5)."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final, final

from .._core.command import ABOVE_FENCE, GRANTED, Answer, Command
from .._core.fencing import agreeable, ballot, certified, range_end, unchanged
from .._core.keyspace import SEATS, mark_key
from .._core.owner import signed
from .._core.quorum import Verdict, Vote
from .._core.seats import NO_SEAT, Seat, seat_life
from .._hold.holding import HoldSession
from .._hold.request import Request
from .._hold.succession import Grant
from .._kinds.primitive import Primitive
from .._local.attempt_limiter import AttemptLimiter
from .._round.asked import AcquireRound, GrantRound
from .._round.outbox import TickContext
from .._round.round import Round, all_answered, verdict_known
from .._round.slots import grant_round
from .._settings.options import Options
from ..errors import LockNotAcquiredError
from .owners import Owners
from .refusals import knows_why, refusal_by_nodes, without_fence

STRAGGLERS: Final = 0.01
"""Seconds that slower nodes are given, once a round is lost, to tell how long their key will stay."""


class TrySession(HoldSession):
    """What tries have of their session."""

    __slots__ = ("_seat",)

    options: Options
    wall: Callable[[], float]
    owners: Owners
    holder: str
    """What owner values say of the holder."""
    attempt_limiter: AttemptLimiter
    in_flight: set[Attempt]
    """The tries that wait for their verdict."""
    _seat: Seat | None

    @property
    def seat(self) -> Seat:
        """The seat of this process in every line: one task waits there for all that want the name (R30)."""
        if self._seat is None:
            self._seat = self.new_seat()
        return self._seat

    def new_seat(self) -> Seat:
        """Make a seat; its name is the channel on which the process is told (R30)."""
        name = b"%b:%b" % (self.owners.new(), self.holder.encode())
        return Seat(mark_key(self.options.prefix, SEATS, name), life=seat_life(self.options.retry.cap))

    def read_clocks(self) -> TickContext:
        """Read what the tries of one turn of the loop have in common, before their first byte (R3)."""
        asked_at, wall, ahead = self.clock.now(), self.wall(), self.clocks.median_ahead
        # The nodes' time, as far as it is known; by the wall clock else.  It is only a hint.
        time = wall if ahead is None else asked_at + ahead
        # Behind the random part stand since when, in Unix milliseconds, a letter if the kind has one
        # (`signed`), and the holder's label.  They are for people that look at a lock: no decision rests on
        # them, and the value is compared as a whole.
        ends = b":%013d:%b" % (wall * 1000, self.holder.encode())
        return TickContext(asked_at, ballot(0, int(time * 1000)), ends)


@final
class Attempt:
    """A try to acquire `primitive` as the `request` says, with a block of so many fences (R43).

    `seen` is the greatest counter that is known of, `seat` what marks the call at the nodes while it waits.
    """

    # Of the class, as long as they are what nearly every try keeps.
    _undone: Round | None = None
    _raising: Round | None = None
    fence = 0
    """The fence, once there is a certificate for it (R10); of a block the last; 0 without fencing."""
    asked_at = 0.0
    owner = b""
    """Fresh for every try, and known before the first byte (R5)."""
    _suspicions = 0  # of nodes' clocks, when it was asked
    slot: int | None = None  # after a lost try for a semaphore: which is said to be free, or `ANY`

    def __init__(
        self,
        session: TrySession,
        primitive: Primitive,
        request: Request,
        *,
        seen: int,
        block: int = 1,
        seat: Seat = NO_SEAT,
    ) -> None:
        self._session = session
        self.primitive = primitive  # once it is won, what was won of it
        self._request = request
        self._seat = seat
        self.seen = seen
        self.fences_left = block - 1
        """How many fences of the block are left for others, below `fence`."""
        self._batched: AcquireRound | None = None
        self._single: GrantRound | None = None
        self.acquire_round: Round
        if primitive.batchable:
            self.acquire_round = self._batched = AcquireRound(
                session.outbox, primitive, request.ttl, block=block
            )
        else:
            self.acquire_round = self._single = grant_round(session.outbox, primitive)

    async def ask(self, timeout: float) -> Grant | None:
        """Ask all nodes; return what was won when a majority granted, and agrees on a fence.

        Takes `timeout` seconds at most.  What ends it otherwise undoes it, too.  The caller has taken a place
        for it (`AttemptLimiter`), which is given back with the verdict.
        """
        session, acquire_round, primitive = self._session, self.acquire_round, self.primitive
        try:
            self._ask(timeout)
            if acquire_round.verdict is Verdict.PENDING:
                await acquire_round.alarm(verdict_known)
            won = acquire_round.verdict is Verdict.WON
            if won and primitive.fenced:
                if self._certified():  # the nodes agree on a fence already: one round trip
                    session.counters.certified += 1
                else:
                    won = await self._certify(timeout)
        except BaseException:
            if self.owner:  # else nothing was asked: its clock has failed
                self.undo(timeout)
            raise
        finally:
            session.in_flight.discard(self)
            session.attempt_limiter.leave(acquire_round)
        if self._single is not None:
            self._single.fence, self.primitive = self.fence, self._single.won(primitive)
        if not won or self._undone is not None:
            return None
        asked_at, request = self.asked_at, self._request
        return Grant(
            self.primitive,
            self.owner,
            request.ttl,
            request.holder,
            self.fence,
            self.fences_left,
            acquire_round,
            asked_at,
            asked_at,
            asked_at + request.validity,
            acquire_round.unsent,
        )

    def _ask(self, timeout: float) -> None:
        """Have the question leave in this turn of the loop."""
        session, primitive, batched = self._session, self.primitive, self._batched
        outbox = session.outbox
        if (tick := outbox.tick) is None:
            tick = session.read_clocks()
        self.asked_at = tick.asked_at
        self.owner = owner = session.owners.new() + tick.owner_ends
        proposed = max(self.seen + 1, tick.ballot) if primitive.fenced else 0
        self._suspicions = session.clocks.suspicions
        session.in_flight.add(self)
        if batched is None:
            self.owner = owner = signed(owner, primitive.kind.letter, self._request.holder)
            self.acquire_round.ask(self._question(proposed), timeout)
            return
        batched.owner, batched.ballot = owner, proposed
        outbox.acquire(batched, tick)
        if timeout < outbox.node_timeout:
            batched.limit(timeout)

    def _question(self, proposed: int) -> Command:
        """Build what is asked alone."""
        ttl, block, chance = self._request.ttl, self.fences_left + 1, self._session.random.random
        return self.primitive.acquire(
            self.owner, ttl, proposed, block, seat=self._seat, named=self.slot, chance=chance
        )

    # -- the fence -----------------------------------------------------------------------------

    def _certified(self) -> bool:
        """Whether a majority stands at one fence (R10), by the answers that have come in."""
        batched = self._batched
        if (
            batched is not None
            and batched.agreed >= batched.quorum
            and self._suspicions == self._session.clocks.suspicions
        ):
            self.fence = range_end(batched.ballot, batched.block)
            return True
        fences = map(attrgetter("fence"), self._grants().values())
        self.fence = certified(fences, self.acquire_round.quorum) or 0
        return self.fence > 0

    def _grants(self) -> dict[int, Answer]:
        """Return the answers of the nodes that granted, but for those whose clock has jumped (R14)."""
        clocks, now = self._session.clocks, self._session.clock.now()
        return {
            node: answer
            for node, answer in enumerate(self.acquire_round.answers)
            if answer is not None and answer.vote is Vote.GRANTED and clocks.believes(node, now, answer.time)
        }

    async def _certify(self, timeout: float) -> bool:
        """Find the fence that a majority stands at after all, or raise the nodes to one (R10)."""
        # A node that has not answered yet is likely to agree; a round for that is saved at a small price.
        await self.acquire_round.wait(lambda tally: not tally.pending or self._certified(), within=STRAGGLERS)
        if self._certified():
            self._session.counters.certified += 1
            return True
        if self._undone is None and await self._raise(timeout):
            self._session.counters.raised += 1
            return True
        self._session.counters.uncertified += 1
        return False

    async def _raise(self, timeout: float) -> bool:
        """Raise the counters to one that most can follow; True when a majority stands there then."""
        session, tally, grants = self._session, self.acquire_round, self._grants()
        left = self.asked_at + timeout - session.clock.now()
        if len(grants) + tally.pending < tally.quorum or not grants or left <= 0:
            return False
        fence = agreeable([(answer.fence, int(answer.time * 1000)) for answer in grants.values()])
        self.seen = max(self.seen, fence)
        known: dict[int, Answer] = {}
        for node, answer in enumerate(self.acquire_round.answers):
            if node in grants:
                if grants[node].fence >= fence:
                    known[node] = GRANTED if grants[node].fence == fence else ABOVE_FENCE
            elif answer is not None:
                known[node] = Answer(Vote.SILENT, answer.reason or "its grant does not count")
            elif (unheard := self.primitive.kind.unheard) is not None:
                known[node] = unheard
            # Else it may well grant still: its raise is queued behind that.
        won = tally.won(self.primitive)
        round_ = self._raising = Round(session.outbox, won.kind.raise_.read)
        round_.ask(won.raise_(self.owner, fence), left, known=known)
        await round_.wait(verdict_known)
        self.fence = fence if round_.verdict is Verdict.WON else 0
        return self.fence > 0

    def unchanged_since(self, fence: int) -> bool:
        """Whether no writer came between a lease with that fence and this win (R23)."""
        befores = [answer.before for answer in self._grants().values()]
        return unchanged(befores, fence, self.acquire_round.quorum)

    # -- undone --------------------------------------------------------------------------------

    def undo(self, timeout: float) -> Round:
        """Release on every node that was asked, queued before anything is awaited; once (R5)."""
        if self._undone is None:
            self._session.outbox.drain()  # its release must not overtake it there
            self._undone = self._session.releases.release(
                self.primitive,
                self.owner,
                keeps=self._request.ttl,
                fence=0,
                unsent=self.acquire_round.unsent,
                timeout=timeout,
                seat=self.primitive.kind.seat_of_try(self.seat),
            )
        return self._undone

    @property
    def seat(self) -> Seat:
        """The call's seat with its place in line, the greatest that a node proposed (R28)."""
        if self._seat.ticket or not self._seat.name:
            return self._seat
        proposed = (answer.ticket for answer in self.acquire_round.answers if answer is not None)
        return self._seat._replace(ticket=max(proposed, default=0))

    @property
    def ahead(self) -> int:
        """So many come before it, or fewer, at a majority of the nodes, as far as they have answered."""
        ahead = sorted(answer.ahead for answer in self.acquire_round.answers if answer is not None)
        return ahead[: self.acquire_round.quorum][-1] if ahead else 0

    async def undo_and_explain(self, timeout: float) -> LockNotAcquiredError:
        """Undo, and return why it was no win."""
        undo = self.undo(timeout)
        await undo.wait(lambda _: knows_why(self.acquire_round, undo))
        await undo.wait(all_answered, within=STRAGGLERS)
        names = self.primitive.names
        if self.acquire_round.verdict is Verdict.WON and self.primitive.fenced and not self.fence:
            return without_fence(names, self.acquire_round if self._raising is None else self._raising)
        return refusal_by_nodes(names, self.acquire_round, undo, ahead=self.ahead)

    @property
    def undone(self) -> Round:
        """The round of its releases, which tells what was found under the keys."""
        assert self._undone is not None, "a refused try has been undone"
        return self._undone

    @property
    def free(self) -> list[int]:
        """The nodes that are free now that this try is undone: they granted it, or nothing is there any more.

        The latter are those whose holder went while this try was on its way.
        """
        return [
            node
            for node, (first, then) in enumerate(
                zip(self.acquire_round.answers, self.undone.answers, strict=True)
            )
            if first is not None
            and (
                first.vote is Vote.GRANTED
                or (first.vote is Vote.REFUSED and then is not None and then.wait == 0.0)
            )
        ]

    @property
    def listeners(self) -> int:
        """How many listen to releases of the lock, as its own releases were told; 0 when unknown (R33)."""
        told = (answer.reached for answer in self.undone.answers if answer is not None)
        return max(0, max(told, default=0))

    @property
    def foreign(self) -> frozenset[int]:
        """The nodes where another program's key is in the way."""
        answers = enumerate(self.undone.answers)
        return frozenset(node for node, answer in answers if answer is not None and answer.foreign)

    @property
    def no_expiry(self) -> str | None:
        """The node where a key without expiry is in the way, if there is one: no ttl frees it (R16)."""
        for vote, found in zip(self.acquire_round.votes(), self.undone.answers, strict=True):
            refused = vote.vote is Vote.REFUSED and found is not None and found.vote is Vote.REFUSED
            if refused and found is not None and found.wait is None:
                return vote.node
        return None
