"""The read-write lock: readers together, a writer alone (R20 to R23).

Under a lock's key is a writer's owner value, like a mutex's, so that the two exclude each other; or a sorted
set of readers, each with the moment by the node's clock until which it reads.  Beside it are the waiting
flags: a writer's keeps new readers out, and a writer that leaves lets the waiting readers in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, final

from .. import _scripts
from .._core.command import WRITER_WAITS, Answer, Reply
from .._core.keyspace import QUEUE
from .._core.quorum import Vote
from .._core.rights import READER_RIGHTS
from .._core.seats import SHARED_SEAT, Seat
from . import answers
from .kind import Holder, Kind, Mode, Operation
from .mutex import MUTEX


def _read_write(reply: Reply) -> Answer:
    if type(reply) is not list:
        return answers.silent(reply)
    answer: list[Any] = reply
    # Where the counter stood before tells a writer whether it is the first since a read lease (R23).
    read = answers.read_grant(answer[:-1])
    return read._replace(before=answer[-1]) if read.vote is Vote.GRANTED else read


def _read_release(reply: Reply) -> Answer:
    """Read the answer to a reader's release."""
    # It has to wait although no lock is in its way: a writer waits (R22).
    read = answers.read_release(reply)
    if (
        read.vote is Vote.REFUSED
        and read.wait
        and type(reply) is list
        and not answers.tells_of_holders(reply)
    ):
        return read._replace(reason=WRITER_WAITS)
    return read


def _read_key(found: object, _left_ms: int) -> tuple[Holder, ...] | None:
    """Read a node's list of readers, each with its milliseconds left."""
    if not isinstance(found, list):
        return None
    entries = zip(found[::2], found[1::2], strict=True)
    return tuple(answers.holder_of(value, left_ms, reads=True) for value, left_ms in entries)


@final
class _Read(Kind):
    """A reader, beside others."""

    def granted(self, fence: int, before: int) -> list[object]:
        """Grant an odd fence (R21)."""
        return [1, fence - 1, 0]


@final
class _Write(Kind):
    """A writer, which also listens for the last reader's release."""

    def channels(self, keys: tuple[bytes, ...], beside: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the channels of writers' releases, and those of readers'."""
        return keys + beside

    def granted(self, fence: int, before: int) -> list[object]:
        """Add where the counter stood before."""
        return [1, fence, 0, before]


def _kind(
    kind: type[Kind],
    name: Mode,
    acquire: Operation,
    read_release: Callable[[Reply], Answer] = answers.read_release,
    **more: Any,
) -> Kind:
    mode = (name.encode(),)
    return kind(
        name=name,
        noun=f"{name} lock",
        mode=name,
        letter=name[:1].encode(),
        passes_on=False,
        windows=False,
        acquire=acquire,
        raise_=replace(MUTEX.raise_, script=_scripts.RW_RAISE, args=mode),
        extend=replace(MUTEX.extend, script=_scripts.RW_EXTEND, args=mode),
        repair=replace(MUTEX.repair, script=_scripts.RW_REPAIR, args=mode),
        release=replace(MUTEX.release, script=_scripts.RW_RELEASE, read=read_release, args=mode),
        beside=(QUEUE,),
        rights=READER_RIGHTS,
        **more,
    )


READ: Final = _kind(
    _Read,
    "read",
    Operation(script=_scripts.READ, fits=answers.fits_grant, read=answers.read_grant),
    _read_release,
    shares_with=frozenset({"read"}),
    together=True,
    seat=lambda *_: SHARED_SEAT,
    unheard=Answer(Vote.SILENT, "no answer yet"),  # it may have granted above the fence, which no raise shows
    read_key=_read_key,
)

WRITE: Final = _kind(
    _Write,
    "write",
    Operation(script=_scripts.WRITE, fits=answers.fits_grant_and_number, read=_read_write),
    weaker=READ,
    claims=True,
    seat=lambda _, new_name: Seat(new_name()),
    read_key=MUTEX.read_key,
)
