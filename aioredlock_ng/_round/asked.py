"""The rounds of one name each, which the outbox groups into batches (R42)."""

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
    """A round for one lock, which is sent in a batch or as its `command`."""

    primitive: Primitive
    owner: bytes

    @property
    @abstractmethod
    def command(self) -> Command:
        """The round's operation as a command for this lock alone."""


class Granting(Round):
    """A round that acquires, in a batch or as a command of its own."""

    # The value of `stragglers` from the moment at which `thin_out` has removed the fences.
    _stragglers_found: bool | None = None

    def _differs_from(self, fence: int) -> bool:
        """Whether a node granted at another fence."""
        return any(a is not None and a.vote is Vote.GRANTED and a.fence != fence for a in self.answers)

    def thin_out(self) -> None:
        """As in `Round`."""
        # Before the fences go: the release still has to know whether to raise a counter (R10).
        self._stragglers_found = self.stragglers
        super().thin_out()


@final
class AcquireRound(Asked, Granting):
    """The acquire of one name, in a batch."""

    # Set in the turn of the event loop in which the round is sent, as is the ballot.
    owner = b""
    ballot = 0
    """The proposed fence, or the first of the proposed fence range; 0 without fencing."""
    agreed = 0
    """Number of nodes that granted the proposed fences and count for their certificate (R10)."""

    def __init__(self, outbox: Asks, primitive: Primitive, ttl: float, *, block: int) -> None:
        self._begin(outbox)
        self.primitive = primitive
        self.ttl = ttl
        self.block = block

    def read(self, reply: Reply) -> Answer:
        """Read the reply to `command`."""
        return self.primitive.read_acquire(reply)

    @property
    def command(self) -> Command:
        """As in `Asked`."""
        return self.primitive.acquire(self.owner, self.ttl, self.ballot, self.block)

    @property
    def stragglers(self) -> bool:  # type: ignore[override]
        """Whether a node granted at another fence."""
        if self._stragglers_found is not None:
            return self._stragglers_found
        # No fences; or every grant came in a batch with the proposed fences, the usual case.
        if not self.ballot or self.agreed == self.granted:
            return False
        # Some grants were not counted as agreed: nodes that got a command for this lock alone may still
        # stand at the proposed fence, so compare each.
        return self._differs_from(range_end(self.ballot, self.block))


class GrantRound(Granting):
    """The acquire of a lock that is not batched."""

    fence = 0
    """The fence of the win, once there is a certificate for it."""

    @property
    def stragglers(self) -> bool:  # type: ignore[override]
        """As in `AcquireRound`."""
        return self._differs_from(self.fence) if self._stragglers_found is None else self._stragglers_found


@final
class ReleaseRound(Asked):
    """The release of one name, without a counter to raise."""

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
        """Read the reply to `command`."""
        return self.primitive.kind.release.read(reply)

    @property
    def command(self) -> Command:
        """As in `Asked`."""
        return self.primitive.release(self.owner, self.keeps, quiet=self.quiet)


@final
class ExtendRound(Asked):
    """The extension of one name."""

    # An extension raises the counters of the nodes that it reaches; a silent node's is raised at the next
    # acquire.
    stragglers = False

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
        """Read the reply to `command`."""
        return self.primitive.kind.extend.read(reply)

    @property
    def command(self) -> Command:
        """As in `Asked`."""
        return self.primitive.extend(self.owner, self.ttl, self.fence)
