"""The keys of one election, and the commands for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

from .. import _scripts
from .._core.command import Answer, Command, Proof, Purpose, Reply, Silence
from .._core.election import Leader, Look, read_announcement
from .._core.keyspace import LEADER, mark_key
from .._core.quarantine import INCARNATION_CHANGED
from .._core.quorum import Vote
from .._kinds.primitive import ms
from .._settings.options import Options, checked_names
from ..errors import ConfigurationError

_PARTS: Final = 3


@final
@dataclass(frozen=True, slots=True)
class Subject:
    """One election, as the nodes know it."""

    name: str
    lock: bytes
    """The key of the mutex that campaigns are about."""
    announced: bytes
    """The key of the announcement, and the channel of its notifications to observers."""
    incarnation: bytes
    keeps: float
    """Seconds that an announcement lives: as long as a counter (R11), and at least for a ttl.  By then the
    leader has announced again, or leads no more."""

    def announce(self, leader: Leader) -> Command:
        """Build the announcement, which a leader sends to all nodes once it has won, not before (R31)."""
        return Command(
            Purpose.OTHER,
            owner=b"",
            fits=lambda reply: type(reply) is int,
            keys=(self.announced,),
            args=(b"%d" % leader.term, leader.holder.encode(), ms(self.keeps)),
            script=_scripts.ANNOUNCE,
        )

    def look(self) -> Command:
        """Build the command by which observers poll a node (R32)."""
        return Command(
            Purpose.OTHER,
            owner=b"",
            fits=_fits_look,
            keys=(self.lock, self.announced, self.incarnation),
            script=_scripts.OBSERVE,
            proof=Proof.CONDITIONAL,
        )


def subject_of(name: str, ttl: float, options: Options) -> Subject:
    """Return the election of that name under a manager's settings; `ttl` is its leaders', in seconds.

    Raises:
        ConfigurationError: the manager makes no fences.
        ValueError, TypeError: the name is not valid.
    """
    (name,) = checked_names((name,))
    if not options.fencing or options.incarnation is None:
        raise ConfigurationError(
            f"election {name!r}: its terms are fences, and this manager was made with fencing=False: "
            "leave that option out"
        )
    key = options.key(name)
    announced = mark_key(options.prefix, LEADER, key)
    return Subject(name, key, announced, options.incarnation, max(options.fence_ttl, ttl))


def _fits_look(reply: object) -> bool:
    if not isinstance(reply, list) or len(reply) != _PARTS:
        return False
    votes, held, announced = reply
    return votes in (0, 1) and held in (0, 1) and isinstance(announced, bytes)


def read_look(reply: Reply) -> Answer:
    """Read what a node answered: GRANTED where it has a vote; `found` has the answer in either case."""
    if not isinstance(reply, list):
        reason = reply.reason if isinstance(reply, Silence) else ""
        return Answer(Vote.SILENT, reason)
    answer: list[Any] = reply  # as `fits` found it
    votes, held, announced = answer
    look = Look(votes == 1, held == 1, read_announcement(announced))
    if look.votes:
        return Answer(Vote.GRANTED, found=look)
    return Answer(Vote.SILENT, INCARNATION_CHANGED, found=look)
