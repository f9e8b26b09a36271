"""The mutex: one holder, over one name or over several at once (all or nothing)."""

from __future__ import annotations

from typing import Any, Final, final

from .. import _scripts
from .._core.command import (
    ABOVE_FENCE,
    GRANTED,
    Answer,
    Command,
    Proof,
    Purpose,
    Reply,
    Script,
    Silence,
    milliseconds,
)
from .._core.quarantine import SENTINEL_CHANGED
from .._core.quorum import Vote

_GRANT: Final = Vote.GRANTED
_REFUSAL: Final = Vote.REFUSED
"""Both have names of their own here: looking up the member of an enumeration takes its time."""

REFUSED: Final = Answer(_REFUSAL)
RELEASED: Final = Answer(_GRANT, "released", wait=0.0)

NO_VOTE: Final = Answer(Vote.SILENT, SENTINEL_CHANGED)
"""What a node says whose sentinel is not the one that was vowed by (R12)."""

WITHOUT_VOTE: Final = 10
"""Added to what `extend.lua` says on such a node."""

PLAIN_WITHOUT_VOTE: Final = -2
"""What `set_all.lua` says there."""

_FOREIGN: Final = -2
"""What `release.lua` says when another program's key is in the way; 1 less for each who listens."""

_TRIPLE: Final = 3
"""Numbers in the answers of `acquire.lua` and `release.lua`."""

_RAISED: Final = {
    1: GRANTED,
    0: Answer(Vote.REFUSED, "the key is not ours any more"),
    -1: NO_VOTE,
    -2: Answer(Vote.SILENT, "the fence is too far ahead of the node's clock: see `aioredlock-ng doctor`"),
    -3: ABOVE_FENCE,
}
"""What the answers of `raise.lua` mean.  Only the first makes a certificate."""


def _fits_set(reply: object) -> bool:
    return reply is None or reply == b"OK"


def _fits_int(reply: object) -> bool:
    return type(reply) is int


def _fits_triple(reply: object) -> bool:
    # Of exactly these types: a push is a list, too, of a class of its own.
    if type(reply) is not list or len(reply) != _TRIPLE:
        return False
    first, second, third = reply
    return type(first) is int and type(second) is int and type(third) is int


def _fits_release(reply: object) -> bool:
    if type(reply) is list and len(reply) > _TRIPLE:
        return len(reply) == _TRIPLE + 1 and type(reply[_TRIPLE]) is bytes and _fits_triple(reply[:_TRIPLE])
    return _fits_triple(reply)


def _seconds(wait_ms: int) -> float | None:
    """Return what a script says of the key in the way: seconds, or None when it has no expiry."""
    return None if wait_ms < 0 else wait_ms / 1000


@final
class Mutex:
    """A primitive over `names`, which are sorted and unique; `keys` are their keys in that order.

    With `counters`, one per key, it makes fences; they live `fence_ttl` seconds after their last use.  With
    a `sentinel` only nodes vote that have not lost their memory; fences cannot do without.
    """

    __slots__ = ("_behind", "_fence_ttl_ms", "_sentinel", "fenced", "keys", "names")

    def __init__(
        self,
        names: tuple[str, ...],
        keys: tuple[bytes, ...],
        *,
        counters: tuple[bytes, ...] = (),
        sentinel: bytes | None = None,
        fence_ttl: float = 0.0,
    ) -> None:
        assert not counters or sentinel is not None, "a fence rests on the sentinel's floor"
        self.names = names
        self.keys = keys
        self.fenced = bool(counters)
        self._behind = counters
        self._sentinel = () if sentinel is None else (sentinel,)
        self._fence_ttl_ms = b"%d" % milliseconds(fence_ttl)

    # -- what to send --------------------------------------------------------------------------

    def acquire(self, owner: bytes, ttl: float, ballot: int = 0) -> Command:
        """Build the fenced acquire; without a fence the page's ``SET key owner NX PX ttl``."""
        ttl_ms = b"%d" % milliseconds(ttl)
        if self.fenced:
            return Command(
                Purpose.ACQUIRE,
                owner=owner,
                fits=_fits_triple,
                keys=self.keys + self._behind + self._sentinel,
                args=(owner, ttl_ms, b"%d" % ballot, self._fence_ttl_ms),
                script=_scripts.ACQUIRE,
                keeps=ttl,
                proof=Proof.STAMPED,
            )
        if len(self.keys) > 1:
            args = (owner, ttl_ms)
            return self._script(
                Purpose.ACQUIRE, _scripts.SET_ALL, args, counters=False, vouched=True, keeps=ttl
            )
        return Command(
            Purpose.ACQUIRE,
            owner=owner,
            fits=_fits_set,
            keys=self.keys,
            args=(owner, b"NX", b"PX", ttl_ms),
            verb=b"SET",
            keeps=ttl,
            proof=Proof.PROBED if self._sentinel else Proof.NONE,
        )

    def raise_(self, owner: bytes, fence: int) -> Command:
        """Build the owner-checked raise (R10)."""
        args = (owner, b"%d" % fence, self._fence_ttl_ms)
        return self._script(Purpose.RAISE, _scripts.RAISE, args, counters=True, vouched=True)

    def extend(self, owner: bytes, ttl: float, fence: int = 0) -> Command:
        """Build the owner-checked extension."""
        args = (owner, b"%d" % milliseconds(ttl), b"%d" % fence, self._fence_ttl_ms)
        return self._script(Purpose.EXTEND, _scripts.EXTEND, args, counters=fence > 0, vouched=True)

    def top_up(self, owner: bytes, ttl: float, fence: int = 0) -> Command:
        """Build the command that gives a node its lost keys back (R9)."""
        args = (owner, b"%d" % milliseconds(ttl), b"%d" % fence, self._fence_ttl_ms)
        return self._script(Purpose.TOP_UP, _scripts.TOP_UP, args, counters=fence > 0, keeps=ttl)

    def release(
        self, owner: bytes, keeps: float, fence: int = 0, *, quiet: bool = False, stays: float = 0.0
    ) -> Command:
        """Build the owner-checked delete; `keeps` as in `Command`, `quiet` and `stays` as in `Primitive`."""
        stay = (b"%d" % milliseconds(stays),) if stays > 0 else ()
        loud = b"" if quiet or stay else b"1"  # what is not free yet is not announced
        args = (owner, b"%d" % fence, self._fence_ttl_ms, loud, *stay)
        return self._script(Purpose.RELEASE, _scripts.RELEASE, args, counters=fence > 0, keeps=keeps)

    def _script(
        self,
        purpose: Purpose,
        script: Script,
        args: tuple[bytes, ...],
        *,
        counters: bool,
        vouched: bool = False,
        keeps: float = 0.0,
    ) -> Command:
        keys = self.keys + self._behind if counters else self.keys
        stamped = vouched and bool(self._sentinel)
        return Command(
            purpose,
            owner=args[0],
            fits=_fits_release if purpose is Purpose.RELEASE else _fits_int,
            keys=keys + self._sentinel if stamped else keys,
            args=args,
            script=script,
            keeps=keeps,
            proof=Proof.STAMPED if stamped else Proof.NONE,
        )

    # -- how to read the answers ---------------------------------------------------------------

    def read_acquire(self, reply: Reply) -> Answer:
        """Read the answer to `acquire` or `top_up`."""
        if type(reply) is list:
            return _read_fenced(reply)
        if reply == b"OK" or reply == 0:  # noqa: PLR1714 (a set lookup would hash lists)
            return GRANTED
        if reply is None:
            return REFUSED
        if isinstance(reply, Silence):
            return Answer(Vote.SILENT, reply.reason, sent=reply.sent)
        assert isinstance(reply, int), "checked by `fits`"
        return NO_VOTE if reply == PLAIN_WITHOUT_VOTE else Answer(Vote.REFUSED, wait=_seconds(reply))

    def read_raise(self, reply: Reply) -> Answer:
        """Read the answer to `raise_`."""
        if isinstance(reply, Silence):
            return Answer(Vote.SILENT, reply.reason)
        assert isinstance(reply, int), "checked by `fits`"
        return _RAISED.get(reply, NO_VOTE)

    def read_extend(self, reply: Reply) -> Answer:
        """Read the answer to `extend`."""
        if reply == 1:
            return GRANTED
        if isinstance(reply, Silence):
            return Answer(Vote.SILENT, reply.reason)
        assert isinstance(reply, int), "checked by `fits`"
        if reply >= WITHOUT_VOTE - 1:
            return Answer(Vote.SILENT, NO_VOTE.reason, missing=reply == WITHOUT_VOTE)
        if reply == 0:
            return Answer(Vote.REFUSED, "the key is gone", missing=True)
        return Answer(Vote.REFUSED, "the key is held by somebody else")

    def read_release(self, reply: Reply) -> Answer:
        """Read the answer to `release`."""
        if type(reply) is list:
            return _read_release(reply)
        assert isinstance(reply, Silence), "checked by `fits`"
        return Answer(Vote.SILENT, reply.reason)


def _read_fenced(reply: list[Any]) -> Answer:
    code, value, time_us = reply
    if code == 1:  # with all its fields in their order, which is the fastest way to make one
        return Answer._make((_GRANT, "", None, True, False, value, time_us / 1_000_000, None, 0, False))
    if code == 0:
        return Answer(_REFUSAL, "", _seconds(value))
    return NO_VOTE


def _read_release(reply: list[Any]) -> Answer:
    deleted, wait, told, *holder = reply
    if deleted and not wait and not told:
        return RELEASED
    foreign = told <= _FOREIGN
    reached = _FOREIGN - told if foreign else told
    if deleted:
        return Answer(_GRANT, "released", _seconds(wait), reached=reached, foreign=foreign)
    found = holder[0] if holder else None
    return Answer(_REFUSAL, "was not held", _seconds(wait), found=found, reached=reached, foreign=foreign)
