"""The rounds of single names, which the outbox asks in batches (R42)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import final

from .._core.command import Answer, Command, Reply
from .._core.fencing import range_end
from .._core.quorum import Vote
from .._kinds.primitive import Primitive
from .round import Asks, Round


class Asked(Round):
    """The question for one lock; `command` is the same as a command of its own."""

    primitive: Primitive
    owner: bytes

    @property
    @abstractmethod
    def command(self) -> Command:
        """The same as a command of its own."""


class Granting(Round):
    """The question for a lock, alone or in a batch."""

    _behind: bool | None = None  # whether there are stragglers, once the answers do not tell it any more

    def _differs_from(self, fence: int) -> bool:
        """Whether a node granted that stands at another fence."""
        return any(a is not None and a.vote is Vote.GRANTED and a.fence != fence for a in self.answers)

    def thin_out(self) -> None:
        """As in `Round`."""
        self._behind = self.stragglers
        super().thin_out()


@final
class AcquireRound(Asked, Granting):
    """The question for one name."""

    owner = b""  # this and the ballot come with the turn of the loop in which it is asked
    ballot = 0
    """The fence that is proposed, of a block the first; 0 without fences."""
    agreed = 0
    """Nodes that granted with the fences that were proposed, and count for their certificate (R10)."""

    def __init__(self, outbox: Asks, primitive: Primitive, ttl: float, *, block: int) -> None:
        self._begin(outbox)
        self.primitive = primitive
        self.ttl = ttl
        self.block = block

    def read(self, reply: Reply) -> Answer:
        """Read the answer to that command."""
        return self.primitive.read_acquire(reply)

    @property
    def command(self) -> Command:
        """The same as a command of its own."""
        return self.primitive.acquire(self.owner, self.ttl, self.ballot, self.block)

    @property
    def stragglers(self) -> bool:  # type: ignore[override]
        """Whether nodes granted that stand at another fence."""
        if self._behind is not None:
            return self._behind
        if not self.ballot or self.agreed == self.granted:
            return False
        return self._differs_from(range_end(self.ballot, self.block))  # one that was asked alone may, too


class GrantRound(Granting):
    """The acquire that is no batch's."""

    fence = 0
    """The fence of the win, once there is a certificate for it."""

    @property
    def stragglers(self) -> bool:  # type: ignore[override]
        """As in `AcquireRound`."""
        return self._differs_from(self.fence) if self._behind is None else self._behind


@final
class ReleaseRound(Asked):
    """The release of one name, without a counter to be raised."""

    learns = True

    def __init__(
        self,
        outbox: Asks,
        primitive: Primitive,
        owner: bytes,
        keeps: float,
        *,
        quiet: bool,
        unsent: Sequence[int],
    ) -> None:
        self._begin(outbox)
        self.primitive = primitive
        self.owner = owner
        self.keeps = keeps
        self.quiet = quiet
        if unsent:
            self.unsent = unsent

    def read(self, reply: Reply) -> Answer:
        """Read the answer to that command."""
        return self.primitive.kind.release.read(reply)

    @property
    def command(self) -> Command:
        """The same as a command of its own."""
        return self.primitive.release(self.owner, self.keeps, quiet=self.quiet)


@final
class ExtendRound(Asked):
    """The extension of one name."""

    stragglers = False  # raised in passing; a node that was silent then is at the next acquire

    def __init__(
        self,
        outbox: Asks,
        primitive: Primitive,
        owner: bytes,
        ttl: float,
        *,
        fence: int,
        on_answer: Callable[[int, Answer], None],
    ) -> None:
        self._begin(outbox)
        self._on_answer = on_answer
        self.primitive = primitive
        self.owner = owner
        self.ttl = ttl
        self.fence = fence
        self.fenced = fence > 0

    def read(self, reply: Reply) -> Answer:
        """Read the answer to that command."""
        return self.primitive.kind.extend.read(reply)

    @property
    def command(self) -> Command:
        """The same as a command of its own."""
        return self.primitive.extend(self.owner, self.ttl, self.fence)
