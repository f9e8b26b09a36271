"""The Lua scripts, each opening with its keys, arguments and returns; loaded once at import.

The rules in them are those of `_core.fencing` and `_core.quarantine`, which say why.

None carries a ``#!lua`` shebang: without it a server at its `maxmemory` still lets a script delete.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

from .._core.command import Script

_FILES: Final = resources.files(__package__)


def _load(name: str, *parts: str, file: str = "") -> Script:
    """Read a script from the file of its name, or another one; `parts` are what it shares, put before it."""
    sources = [_FILES.joinpath("parts", f"{part}.lua") for part in parts]
    sources.append(_FILES.joinpath(f"{file or name}.lua"))
    return Script(name, b"".join(source.read_bytes() for source in sources))


_COUNTS: Final = ("counter", "raise")
_MUTEX: Final = (*_COUNTS, "owner", "mutex")
_READERS: Final = ("counter", "queue", "readers")
_READ_WRITE: Final = (*_READERS, "raise", "notices", "read_write")
_SLOTS_OF: Final = (*_COUNTS, "slots")

ACQUIRE: Final = _load("acquire", "vote", "counter", "owner")
ACQUIRE_MANY: Final = _load("acquire_many", "vote", "counter", "owner")
RAISE: Final = _load("raise", "vote", *_MUTEX)
SET_ALL: Final = _load("set_all", "vote")
EXTEND: Final = _load("extend", "vote", *_MUTEX)
EXTEND_MANY: Final = _load("extend_many", "vote", *_COUNTS, "owner")
REPAIR: Final = _load("repair", *_MUTEX)
RELEASE: Final = _load("release", *_COUNTS, "owner", "notices")
RELEASE_MANY: Final = _load("release_many", "owner", "notices")
READ: Final = _load("read", "vote", *_READERS, "raise")
WRITE: Final = _load("write", "vote", *_READERS, "notices")
RW_RAISE: Final = _load("rw_raise", "vote", *_READ_WRITE, file="raise")
RW_EXTEND: Final = _load("rw_extend", "vote", *_READ_WRITE, file="extend")
RW_REPAIR: Final = _load("rw_repair", *_READ_WRITE, file="repair")
RW_RELEASE: Final = _load("rw_release", *_READERS, "raise", "owner", "notices")
SLOTS_ACQUIRE: Final = _load("slots_acquire", "vote", *_SLOTS_OF)
SLOTS_RAISE: Final = _load("slots_raise", "vote", *_SLOTS_OF, file="raise")
SLOTS_EXTEND: Final = _load("slots_extend", "vote", *_SLOTS_OF, file="extend")
SLOTS_REPAIR: Final = _load("slots_repair", *_SLOTS_OF, file="repair")
SLOTS_RELEASE: Final = _load("slots_release", *_SLOTS_OF, "notices")
FAIR_ACQUIRE: Final = _load("fair_acquire", "vote", "counter", "raise", "readers", "seats")
FAIR_RELEASE: Final = _load("fair_release", *_COUNTS, "owner", "notices", "seats")
QUEUE: Final = _load("queue", "counter")
ANNOUNCE: Final = _load("announce")
OBSERVE: Final = _load("observe", "vote")
GREET: Final = _load("greet", "counter", "incarnation", "memory", "members")
INIT: Final = _load("init", "counter", "incarnation")
INSPECT: Final = _load("inspect", "counter", "owner", "raise", "slots")

_LOCKING: Final = (ACQUIRE, RAISE, SET_ALL, EXTEND, REPAIR, RELEASE)
_BATCHES: Final = (ACQUIRE_MANY, EXTEND_MANY, RELEASE_MANY)
_SHARED: Final = (READ, WRITE, RW_RAISE, RW_EXTEND, RW_REPAIR, RW_RELEASE)
_SLOTS: Final = (SLOTS_ACQUIRE, SLOTS_RAISE, SLOTS_EXTEND, SLOTS_REPAIR, SLOTS_RELEASE)
_FAIR: Final = (FAIR_ACQUIRE, FAIR_RELEASE)
_ELECTION: Final = (ANNOUNCE, OBSERVE)
_NODES: Final = (GREET, INIT, INSPECT, QUEUE)

ALL: Final = (*_LOCKING, *_BATCHES, *_SHARED, *_SLOTS, *_FAIR, *_ELECTION, *_NODES)
"""The scripts that a node loads in its handshake, so that the first use is not a NOSCRIPT."""
