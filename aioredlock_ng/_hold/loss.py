"""The messages of `LockLostError`: why a lease is not held any more."""

from __future__ import annotations

from .._core.quorum import Vote, majority
from ..errors import LockLostError, LossReason, NodeVote, printable

_WHY = {
    LossReason.RELEASED: "was released",
    LossReason.EXPIRED: "was lost: its validity ended before a majority extended it",
    LossReason.REFUSED: "was lost: a majority of the nodes does not hold it any more",
    LossReason.EXTENSIONS_EXHAUSTED: (
        "was lost after {extensions} extensions, the limit set by ExtensionPolicy.max_extensions"
    ),
    LossReason.MANAGER_CLOSED: "was given up: its manager was closed",
    LossReason.LOOP_CLOSED: "was lost: its event loop was closed before it was released",
}


def lost_error(
    names: tuple[str, ...], reason: LossReason, votes: tuple[NodeVote, ...], *, extensions: int
) -> LockLostError:
    """Return the error; `votes` are what the nodes said in the round that explains it."""
    why = _WHY.get(reason, "was lost").format(extensions=extensions)
    granted = sum(vote.vote is Vote.GRANTED for vote in votes)
    # Lost by the clock although a majority agreed: this process took up their answers too late.
    if reason is LossReason.EXPIRED and votes and granted >= majority(len(votes)):
        why = "was lost: its validity had ended when a majority extended it; these votes came too late"
    return LockLostError(f"lock {printable(names)} {why}", reason=reason, names=names, votes=votes)
