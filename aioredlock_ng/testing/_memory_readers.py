"""What a master in memory has of a read-write lock: as ``parts/readers.lua`` and ``parts/queue.lua``.

Under a lock's key is a writer's owner value, or readers with the millisecond until which each reads.  Beside
it, under the queue's key, are marks with the millisecond at which each ends: hints, never read for safety.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final, final

from ._memory_data import CommandError
from ._memory_process import MemoryProcess

MARK_MS: Final = 1000
AWAITED_MS: Final = 250
TURN_MS: Final = 25

WRITER: Final = b"w"
READERS: Final = b"r"
_TURN: Final = b"turn"


@final
@dataclass(frozen=True, slots=True)
class ReadWriteEntry:
    """One name: its key and its queue."""

    server: MemoryProcess
    key: bytes
    queue: bytes

    @property
    def now(self) -> int:
        """The node's time in milliseconds."""
        return self.server.time_us() // 1000

    # -- the holder ------------------------------------------------------------------------------

    @property
    def writer(self) -> bytes | None:
        """The owner value of the writer; fails where neither a writer nor readers can be."""
        with suppress(CommandError):
            return self.server.get(self.key)
        self.server.scores(self.key)
        return None

    def reads_until(self, owner: bytes) -> int | None:
        """Until when `owner` reads; None where it does not."""
        try:
            ends = self.server.scores(self.key).get(owner, 0)
        except CommandError:  # a writer is there
            return None
        return ends if ends >= self.now else None

    def taken(self, mine: bytes | None = None, *, reads: bool = False) -> int:
        """For how long what is there stays in the way; -1 for ever, 0: nothing is.

        The owner `mine` is not, and readers are in the way of writers only, not of one that `reads`.
        """
        writer, left = self.writer, self.server.pttl(self.key)
        if not self.server.exists(self.key) or (writer is not None and writer == mine):
            return 0
        if reads and writer is None and left != -1:  # a set without expiry is another program's
            return 0
        return -1 if left == -1 else max(left, 1)

    # -- readers -------------------------------------------------------------------------------

    def read_on(self, owner: bytes, ttl: int) -> None:
        """Have `owner` read for at least so long from now."""
        self.server.zadd(self.key, owner, max(self.now + ttl, self.reads_until(owner) or 0))
        self.prolong(ttl)

    def prolong(self, ttl: int) -> None:
        """Let the key live for at least so long from now."""
        if self.server.pttl(self.key) < ttl:
            self.server.pexpire(self.key, ttl)

    def prune(self) -> None:
        """Drop the readers that have ended."""
        _prune(self.server, self.key)

    def read_no_more(self, owner: bytes) -> tuple[bool, bool]:
        """Take a reader out; say whether it was in, and whether others read.

        The key ends with the last of the others.
        """
        scores = self.server.scores(self.key)
        ended_last = _last(scores) == owner
        if not self.server.zrem(self.key, owner):
            return False, True
        if not ended_last:
            return True, True
        left = scores.get(_last(scores), 0) - self.now
        if left < 0:
            self.server.delete(self.key)
            return True, False
        self.server.pexpire(self.key, max(left, 1))
        return True, True

    # -- marks ---------------------------------------------------------------------------------

    @property
    def marks(self) -> dict[bytes, int]:
        """The marks, each with the moment at which it ends; what cannot be read is none."""
        with suppress(CommandError):
            if self.server.pttl(self.queue) > 0:
                return self.server.scores(self.queue)
        return {}

    def mark(self, what: bytes, span: int) -> None:
        """Leave a mark for so long, and drop those that have ended."""
        self.server.zadd(self.queue, what, self.now + span)
        _prune(self.server, self.queue)
        if self.server.pttl(self.queue) < span:
            self.server.pexpire(self.queue, span)

    def unmark(self, what: bytes) -> bool:
        """Take a mark away; False when there was none."""
        with suppress(CommandError):
            return self.server.zrem(self.queue, what)
        return False

    def marked(self, what: bytes) -> int:
        """For how long a mark stands yet; 0: it does not."""
        return max(0, self.marks.get(what, 0) - self.now + 1)

    def kept_out(self) -> int:
        """For how long a waiting writer keeps new readers out; 0: none does."""
        if self.turns_away():
            return 0
        return max((self.marked(mark) for mark in self.marks if mark.startswith(WRITER)), default=0)

    def turns_away(self) -> int:
        """For how long readers come before writers; 0: they do not."""
        return self.marked(_TURN)

    def give_turn(self) -> None:
        """Let the readers that wait come before the next writer, if any wait."""
        if self.marked(READERS):
            self.unmark(READERS)
            self.mark(_TURN, AWAITED_MS)

    def take_turn(self) -> None:
        """Note that a reader has come, perhaps the first one in its turn: the others are near."""
        if self.marked(_TURN) > TURN_MS + 1:
            self.mark(_TURN, TURN_MS)

    def tell(self, channel: bytes) -> int:
        """Publish that it is free."""
        return self.server.publish(channel, b"%d" % self.server.listening(channel))


def _prune(server: MemoryProcess, key: bytes) -> None:
    """Drop from a sorted set what has ended."""
    now = server.time_us() // 1000
    for member, ends in list(server.scores(key).items()):
        if ends < now:
            server.zrem(key, member)


def _last(scores: dict[bytes, int]) -> bytes:
    """Return the member that ends last; of several the last by its name."""
    return max(scores, key=lambda member: (scores[member], member), default=b"")
