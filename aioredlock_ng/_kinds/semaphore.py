"""The counting semaphore: a number of permits, each of them a slot that one holder has alone (R24 to R26).

Under a lock's key is a hash of slots, each with the moment by the node's clock until which it is held, and
the owner value.  Each request names the number of slots, so there is a kind for each number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, final

from .. import _scripts
from .._core.command import Answer, Reply
from .._core.keyspace import SLOTS
from .._core.rights import SLOT_RIGHTS
from .._core.seats import Seat
from .._core.slots import MAX_PERMITS, find_slot
from . import answers
from .kind import Holder, Kind, Operation
from .mutex import MUTEX

LETTER: Final = b"s"

_ENTRY: Final = 3
"""The parts of a slot in an inspection: its number, the owner, and the milliseconds left."""


def _read_acquire(reply: Reply) -> Answer:
    if type(reply) is not list:
        return answers.silent(reply)
    answer: list[Any] = reply
    return answers.read_grant(answer[:-1])._replace(slot=answer[-1])


def is_slots(found: object) -> bool:
    """Whether an inspection found slots, or none that is held; readers are another list."""
    if not isinstance(found, list) or len(found) % _ENTRY:
        return False
    types = (int, bytes, int)
    return all(isinstance(each, types[place % _ENTRY]) for place, each in enumerate(found))


def _read_key(found: object, _left_ms: int) -> tuple[Holder, ...] | None:
    """Read a node's list of the slots that are held."""
    if not isinstance(found, list) or not is_slots(found):
        return None
    entries = zip(found[::_ENTRY], found[1::_ENTRY], found[2::_ENTRY], strict=True)
    return tuple(
        answers.holder_of(value, left_ms, slot=slot, letter=LETTER) for slot, value, left_ms in entries
    )


@final
class _Semaphore(Kind):
    """A number of slots, each of which one holder has alone."""

    def full(self, holders: int) -> bool:
        """Whether all permits are taken."""
        return holders >= self.permits

    def admits(self, contenders: int, holders: int) -> bool:
        """Let tasks ask one after the other, in their order, as long as there are permits (R24)."""
        return not contenders and holders < self.permits

    def granted(self, fence: int, before: int) -> list[object]:
        """Add the slot."""
        return [1, fence, 0, 0]

    def acquire_words(self, seat: Seat, named: int | None, chance: Callable[[], float]) -> tuple[bytes, ...]:
        """Return the first slot to try, and how many to try from there on."""
        return tuple([b"%d" % number for number in find_slot(self.permits, chance(), named)])


@lru_cache(MAX_PERMITS)
def semaphore(permits: int) -> Kind:
    """Return the kind with this number of permits; the kinds of all numbers share a name."""
    of = (b"%d" % permits,)
    acquire = Operation(
        script=_scripts.SLOTS_ACQUIRE, fits=answers.fits_grant_and_number, read=_read_acquire, args=of
    )
    return _Semaphore(
        name="semaphore",
        noun="semaphore",
        letter=LETTER,
        shares_with=frozenset({"semaphore"}),
        permits=permits,
        passes_on=False,
        acquire=acquire,
        raise_=replace(MUTEX.raise_, script=_scripts.SLOTS_RAISE),
        extend=replace(MUTEX.extend, script=_scripts.SLOTS_EXTEND),
        repair=replace(MUTEX.repair, script=_scripts.SLOTS_REPAIR),
        release=replace(MUTEX.release, script=_scripts.SLOTS_RELEASE, args=of),
        no_slot=(b"-1",),
        counter=SLOTS,
        key_types=frozenset({b"hash"}),
        counter_type=b"hash",
        rights=SLOT_RIGHTS,
        read_key=_read_key,
    )


SEMAPHORE: Final = semaphore(1)
"""The kind to use where the number of permits does not matter."""
