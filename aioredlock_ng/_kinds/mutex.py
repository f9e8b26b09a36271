"""The mutex: one holder, over one name or over several at once (all or nothing)."""

from __future__ import annotations

from typing import cast, final

from .. import _scripts
from .._core.command import Answer, Command, Purpose, Reply, Script, Silence, milliseconds
from .._core.quorum import Vote

GRANTED = Answer(Vote.GRANTED)
REFUSED = Answer(Vote.REFUSED)


def _fits_set(reply: object) -> bool:
    return reply is None or reply == b"OK"


def _fits_int(reply: object) -> bool:
    return isinstance(reply, int)


def _fits_pair(reply: object) -> bool:
    pair = isinstance(reply, list) and len(reply) == 2  # noqa: PLR2004
    return pair and all(isinstance(part, int) for part in cast("list[object]", reply))


def _seconds(wait_ms: int) -> float | None:
    """Return what a script says of the key in the way: seconds, or None when it has no expiry."""
    return None if wait_ms < 0 else wait_ms / 1000


@final
class Mutex:
    """A primitive over `names`, which are sorted and unique; `keys` are their keys in that order."""

    __slots__ = ("keys", "names")

    def __init__(self, names: tuple[str, ...], keys: tuple[bytes, ...]) -> None:
        self.names = names
        self.keys = keys

    def _script(
        self, purpose: Purpose, script: Script, owner: bytes, *, ttl: float | None = None, keeps: float = 0.0
    ) -> Command:
        return Command(
            purpose,
            owner=owner,
            fits=_fits_pair if purpose is Purpose.RELEASE else _fits_int,
            keys=self.keys,
            args=(owner,) if ttl is None else (owner, b"%d" % milliseconds(ttl)),
            script=script,
            keeps=keeps,
        )

    def acquire(self, owner: bytes, ttl: float) -> Command:
        """Build the page's ``SET key owner NX PX ttl``, or its script for several names."""
        if len(self.keys) > 1:
            return self._script(Purpose.ACQUIRE, _scripts.ACQUIRE, owner, ttl=ttl, keeps=ttl)
        args = (owner, b"NX", b"PX", b"%d" % milliseconds(ttl))
        return Command(
            Purpose.ACQUIRE, owner=owner, fits=_fits_set, keys=self.keys, args=args, verb=b"SET", keeps=ttl
        )

    def extend(self, owner: bytes, ttl: float) -> Command:
        """Build the owner-checked extension."""
        return self._script(Purpose.EXTEND, _scripts.EXTEND, owner, ttl=ttl)

    def top_up(self, owner: bytes, ttl: float) -> Command:
        """Build the command that gives a node its lost keys back (R9)."""
        return self._script(Purpose.TOP_UP, _scripts.TOP_UP, owner, ttl=ttl, keeps=ttl)

    def release(self, owner: bytes, keeps: float) -> Command:
        """Build the owner-checked delete; `keeps` as in `Command`."""
        return self._script(Purpose.RELEASE, _scripts.RELEASE, owner, keeps=keeps)

    def read_acquire(self, reply: Reply) -> Answer:
        """Read the answer to `acquire` or `top_up`."""
        if reply == b"OK" or reply == 0:  # noqa: PLR1714 (a set lookup would hash lists)
            return GRANTED
        if reply is None:
            return REFUSED
        if isinstance(reply, Silence):
            return Answer(Vote.SILENT, reply.reason, sent=reply.sent)
        assert isinstance(reply, int), "checked by `fits`"
        return Answer(Vote.REFUSED, wait=_seconds(reply))

    def read_extend(self, reply: Reply) -> Answer:
        """Read the answer to `extend`."""
        if reply == 1:
            return GRANTED
        if isinstance(reply, Silence):
            return Answer(Vote.SILENT, reply.reason)
        if reply == 0:
            return Answer(Vote.REFUSED, "the key is gone", missing=True)
        return Answer(Vote.REFUSED, "the key is held by somebody else")

    def read_release(self, reply: Reply) -> Answer:
        """Read the answer to `release`."""
        if isinstance(reply, Silence):
            return Answer(Vote.SILENT, reply.reason)
        assert isinstance(reply, list), "checked by `fits`"
        deleted, wait = reply
        assert isinstance(deleted, int)
        assert isinstance(wait, int)
        if deleted:
            return Answer(Vote.GRANTED, "released", wait=_seconds(wait))
        return Answer(Vote.REFUSED, "was not held", wait=_seconds(wait))
