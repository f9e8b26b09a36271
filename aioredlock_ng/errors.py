"""The errors.

As a tree::

    redis.exceptions.RedisError
    └── LockError                        base of ours: `names`, `votes`
        ├── LockNotAcquiredError
        │   ├── LockTakenError           enough nodes answered: the lock is taken; `holder`, `retry_after`
        │   └── QuorumUnavailableError   too few nodes answered, or may vote, or agreed; `retry_after`
        ├── LockLostError                `reason`: a `LossReason`
        ├── WouldDeadlockError           the task would wait for a lock that it holds itself
        └── ManagerClosedError
    ValueError
    └── ConfigurationError               nodes or settings cannot work, or the name is something else's

The base is redis-py's `RedisError` and not its `LockError`: that one is a `ValueError`, and a body's
``except ValueError`` would swallow a lost lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, final

from redis.exceptions import RedisError

from ._core.quorum import Vote

__all__ = [
    "ConfigurationError",
    "LockError",
    "LockLostError",
    "LockNotAcquiredError",
    "LockTakenError",
    "LossReason",
    "ManagerClosedError",
    "NodeVote",
    "QuorumUnavailableError",
    "WouldDeadlockError",
]


@final
@dataclass(frozen=True, slots=True)
class NodeVote:
    """The answer of one node in a round."""

    node: str
    """The node's address, without user or password."""
    vote: Vote
    reason: str = ""
    """Why it was silent or refused, in words; empty when there is nothing to add."""
    retry_after: float | None = None
    """Seconds until the key in the way expires on this node; None when unknown."""

    def __str__(self) -> str:
        return f"{self.node} {self.vote.value}" + (f" ({self.reason})" if self.reason else "")


class LossReason(StrEnum):
    """Why a lease is not held any more."""

    EXPIRED = "expired"
    """Its validity ended without a won extension."""
    REFUSED = "refused"
    """A majority of the nodes said that the key is gone or has another owner."""
    EXTENSIONS_EXHAUSTED = "extensions_exhausted"
    """It was extended as often as its policy allows, and then ran out."""
    MANAGER_CLOSED = "manager_closed"
    """`aclose()` was called while it was held."""
    CANCELLED = "cancelled"
    """The background tasks of its manager were cancelled while it was held, by other code or at the end of
    the event loop."""
    LOOP_CLOSED = "loop_closed"
    """Its event loop was closed while it was held: neither extensions nor a release can leave any more."""
    RELEASED = "released"
    """`release()` was called."""


def printable(names: Iterable[str]) -> str:
    """Return lock names as they may stand in a message or log line: quoted, escaped, in ASCII."""
    return ", ".join(ascii(name) for name in names)


class LockError(RedisError):
    """Base of this package's lock errors.

    `names` are the lock's names.  `votes` has one entry per node for the round that decided, and is
    empty when no node was asked.
    """

    def __init__(self, message: str, *, names: tuple[str, ...] = (), votes: Iterable[NodeVote] = ()) -> None:
        super().__init__(message)
        self.names = names
        self.votes = tuple(votes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes with all they carry."""
        return _restore, (type(self), self.args, self.__dict__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} [{'; '.join(map(str, self.votes))}]" if self.votes else message


class LockNotAcquiredError(LockError):
    """The lock was not acquired in the time allowed."""


@final
class LockTakenError(LockNotAcquiredError):
    """Enough nodes answered: another client holds the lock.

    `retry_after` is the number of seconds after which the lock will be free unless its holder extends it,
    from the nodes' PTTL; None when the nodes name no moment (a key without expiry).  A holder that extends
    its lock every third of the ttl shows between two thirds of it and all of it, however long it works: then
    this is no forecast, but the time after which asking again is certainly worth it if the holder has died.

    `holder` is what the holder calls itself: the `holder` of its manager.  None when that is unknown: no
    majority names the same one, as when several clients try at once; another program holds it, or an
    older version of this package.
    """

    def __init__(
        self,
        message: str,
        *,
        names: tuple[str, ...] = (),
        votes: Iterable[NodeVote] = (),
        retry_after: float | None = None,
        holder: str | None = None,
    ) -> None:
        super().__init__(message, names=names, votes=votes)
        self.retry_after = retry_after
        self.holder = holder


@final
class QuorumUnavailableError(LockNotAcquiredError):
    """Too few nodes answered, may vote, or agree on a fence; `votes`: what each of them did, and why.

    `retry_after` is the number of seconds after which a majority may vote again, where nodes have no vote for
    a while (a restart quarantine); None when no moment is known.
    """

    retry_after: float | None = None


def _restore(kind: type[LockError], args: tuple[Any, ...], state: dict[str, Any]) -> LockError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


@final
class LockLostError(LockError):
    """The lock is not held any more; what was done after `valid_until` was not under the lock."""

    def __init__(
        self,
        message: str,
        *,
        reason: LossReason,
        names: tuple[str, ...] = (),
        votes: Iterable[NodeVote] = (),
    ) -> None:
        super().__init__(message, names=names, votes=votes)
        self.reason = reason


@final
class WouldDeadlockError(LockError):
    """The task, or the thread, would wait for a lock that it holds itself.

    It asked without ``reentrant=True``; or no single lease of its own covers what it asked for: each of the
    names, and to write if it is to write.
    """


@final
class ManagerClosedError(LockError):
    """The manager is closed, or closing."""


@final
class ConfigurationError(ValueError):
    """The nodes or the settings cannot work, or a lock's name is that of something else.

    The message names the node, or the setting, such as ``fencing=False`` where an election needs fences.  Or
    a majority could never grant what is wanted, because of what is under the keys (R19): it says both, and
    waiting would not help.  Then the refusal is its ``__cause__``, with the votes.
    """
