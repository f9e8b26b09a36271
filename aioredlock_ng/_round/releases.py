"""Releases of one manager: queued on all nodes at once, and kept until they have been answered (R5, R6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, final

from .._core.command import Answer, Command, Purpose
from .._core.quorum import Vote
from .._core.seats import NO_SEAT, Seat
from .._kinds.primitive import Primitive
from .batch import Asked
from .batch import Releases as ReleaseBatch
from .outbox import NOT_HELD, Outbox
from .round import Round, all_answered

HANDED_OFF: Final = Answer(Vote.GRANTED, "another task of this process has the lock now", wait=0.0)
"""Stands for every node's answer after a hand-off, for which no node is asked (R43)."""

STILL_HELD: Final = Answer(Vote.GRANTED, "its task still has another lease of the lock", wait=0.0)
"""The same for a reentrant lock that another lease still needs (R27)."""


@final
class Releases:
    """Makes the release rounds of one manager."""

    __slots__ = ("_handed_off", "_outbox", "_rounds", "_still_held")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._handed_off: Round | None = None
        self._still_held: Round | None = None
        # Releases that have not been answered, and some that have.
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
        """Queue the release of `owner` on all nodes, except for those that were never sent its acquire.

        The round takes at most `timeout` seconds, by default a `node_timeout`.  A `quiet` release notifies no
        other process.  With `stays`, in seconds, the keys expire after that time instead of being deleted.
        With a `fence`, counters that are behind are raised.  With a `seat`, the call's marks are taken away,
        or its place in the queue is kept.
        """
        outbox = self._outbox
        limit = outbox.node_timeout if timeout is None else timeout
        # A mutex whose counters agree: it leaves in a batch.
        if primitive.batchable and not fence and not stays:
            batched = Asked(outbox, ReleaseBatch, primitive, owner, keeps, 0, 1, quiet, unsent)
            # Behind a quiet release, a task of this process asks for the name in the same write.
            outbox.ask(batched, limit, waits=quiet)
            round_: Round = batched
        # Every other release: a command of its own.
        else:
            round_ = Round(outbox, primitive.kind.release.read)
            command = primitive.release(owner, keeps, fence, quiet=quiet, stays=stays, seat=seat)
            assert command.purpose is Purpose.RELEASE
            round_.ask(command, limit, known=dict.fromkeys(unsent, NOT_HELD))
        round_.learns = True
        rounds = self._rounds
        rounds.append(round_)
        # Forget those at the head that have been answered.  Some further ones stay behind one that is slow.
        while rounds and not rounds[0].pending:
            rounds.popleft()
        return round_

    def leave_queue(self, primitive: Primitive, seat: Seat) -> None:
        """Take away the mark of a call that has stopped waiting, without waiting for the nodes (R22)."""
        Round(self._outbox, lambda _: NOT_HELD).ask(primitive.leave_queue(seat), self._outbox.node_timeout)

    @property
    def handed_off(self) -> Round:
        """The round of every lock that is handed to another task of this process: nothing is sent (R43)."""
        # Made once: it is complete from the start, and the same for all.
        if self._handed_off is None:
            self._handed_off = self._unasked(HANDED_OFF)
        return self._handed_off

    @property
    def still_held(self) -> Round:
        """The round of every lease that is not the last one of its lock: nothing is sent (R27)."""
        if self._still_held is None:
            self._still_held = self._unasked(STILL_HELD)
        return self._still_held

    def _unasked(self, answer: Answer) -> Round:
        round_ = Round(self._outbox, lambda _: answer)
        for node in range(self._outbox.size):
            round_.on_reply(node, None)
        return round_

    def announce(self, key: bytes) -> None:
        """Publish that `key` is free, after a quiet release whose next task has not asked."""
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
        """Wait until every node has answered every release, at most one `node_timeout`."""
        self._outbox.drain()
        for round_ in tuple(self._rounds):
            await round_.wait(all_answered)
