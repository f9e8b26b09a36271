"""Releases of one manager: queued on all nodes at once, and remembered until they are answered (R5, R6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, final

from .._core.command import Answer, Command, Purpose
from .._core.quorum import Vote
from .._core.seats import NO_SEAT, Seat
from .._kinds.primitive import Primitive
from .asked import ReleaseRound
from .outbox import NOT_HELD, Outbox
from .round import NOTHING_KNOWN, Round, all_answered

HANDED_OFF: Final = Answer(Vote.GRANTED, "a task of this process has it now", wait=0.0)
"""Stands for what no node was asked (R43)."""

STILL_HELD: Final = Answer(Vote.GRANTED, "its task has the lock by another lease yet", wait=0.0)
"""Likewise, of a reentrant lock (R27)."""


@final
class Releases:
    """Makes the release rounds of one manager."""

    __slots__ = ("_handed_off", "_outbox", "_rounds", "_still_held")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._handed_off: Round | None = None
        self._still_held: Round | None = None
        # Those not asked in batches that have not been answered, and some that have.
        self._rounds: deque[Round] = deque()

    def release(
        self,
        primitive: Primitive,
        owner: bytes,
        *,
        keeps: float,
        fence: int,
        unsent: Sequence[int],
        timeout: float | None = None,
        quiet: bool = False,
        stays: float = 0.0,
        seat: Seat = NO_SEAT,
    ) -> Round:
        """Queue the release of `owner` on all nodes; those that were never sent its acquire need not have it.

        Takes `timeout` seconds, a `node_timeout` if not given.  A `quiet` one is not published to other
        processes.  When `stays` is not 0, the keys end after so long.  With a `fence` it raises counters that
        are behind, and with a `seat` it takes away the call's marks, or keeps its place in line.
        """
        outbox = self._outbox
        if primitive.batchable and not fence and not stays:
            batched = ReleaseRound(outbox, primitive, owner, keeps, quiet=quiet, unsent=unsent)
            outbox.release(batched)
            if timeout is not None and timeout < outbox.node_timeout:
                batched.limit(timeout)
            return batched
        round_ = Round(outbox, primitive.kind.release.read)
        round_.learns = True
        command = primitive.release(owner, keeps, fence, quiet=quiet, stays=stays, seat=seat)
        assert command.purpose is Purpose.RELEASE
        known = dict.fromkeys(unsent, NOT_HELD) if unsent else NOTHING_KNOWN
        round_.ask(command, outbox.node_timeout if timeout is None else timeout, known=known)
        rounds = self._rounds
        rounds.append(round_)
        while rounds and not rounds[0].pending:
            rounds.popleft()
        return round_

    def leave_queue(self, primitive: Primitive, seat: Seat) -> None:
        """Take away what marked a call at the nodes that waits no more (R22)."""
        Round(self._outbox, lambda _: NOT_HELD).ask(primitive.leave_queue(seat), self._outbox.node_timeout)

    @property
    def handed_off(self) -> Round:
        """The round of every lock that goes on to another task of this process: nothing is sent (R43)."""
        if self._handed_off is None:
            self._handed_off = self._unasked(HANDED_OFF)
        return self._handed_off

    @property
    def still_held(self) -> Round:
        """The round of every lease that is not the last one of its lock: likewise (R27)."""
        if self._still_held is None:
            self._still_held = self._unasked(STILL_HELD)
        return self._still_held

    def _unasked(self, answer: Answer) -> Round:
        round_ = Round(self._outbox, lambda _: answer)
        for node in range(self._outbox.size):
            round_.on_reply(node, None)
        return round_

    def announce(self, key: bytes) -> None:
        """Publish that `key` is free, after a quiet release that no task of this process followed."""
        command = Command(
            Purpose.OTHER,
            owner=b"",
            fits=lambda reply: type(reply) is int,
            keys=(key,),
            args=(b"",),
            verb=b"PUBLISH",
        )
        Round(self._outbox, lambda _: NOT_HELD).ask(command, self._outbox.node_timeout)

    async def answered(self) -> None:
        """Wait until every node has answered to every release, at most one `node_timeout`.

        What else is asked in batches is waited for, too.
        """
        self._outbox.drain()
        for round_ in [*self._rounds, *self._outbox.unanswered()]:
            await round_.wait(all_answered)
