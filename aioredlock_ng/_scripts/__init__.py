"""The Lua scripts, each opening with its keys, arguments and returns; loaded once at import.

The rules in them are those of `_core.fencing` and `_core.quarantine`, which say why.

None carries a ``#!lua`` shebang: without it a server at its `maxmemory` still lets a script delete.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

from .._core.command import Script

_FILES: Final = resources.files(__package__)


def _load(name: str, *parts: str) -> Script:
    """Read a script; `parts` are what it shares with others, put before it."""
    sources = [_FILES.joinpath("parts", f"{part}.lua") for part in parts] + [_FILES.joinpath(f"{name}.lua")]
    return Script(name, b"".join(source.read_bytes() for source in sources))


_VOTE: Final = ("identity", "sentinel_matches")
_RAISES: Final = ("clock", "counter", "stand", "raise")
_SLOT: Final = ("prolong", "take_slot", "slot_counter")

ACQUIRE: Final = _load("acquire", *_VOTE, "clock", "counter", "owner")
ACQUIRE_MANY: Final = _load("acquire_many", *_VOTE, "clock", "counter", "replaced", "owner")
RAISE: Final = _load("raise", *_VOTE, *_RAISES, "owner")
SET_ALL: Final = _load("set_all", *_VOTE)
EXTEND: Final = _load("extend", *_VOTE, *_RAISES, "owner")
EXTEND_MANY: Final = _load("extend_many", *_VOTE, *_RAISES, "owner")
TOP_UP: Final = _load("top_up", *_RAISES, "owner")
RELEASE: Final = _load("release", *_RAISES, "holder", "owner", "tell")
RELEASE_MANY: Final = _load("release_many", "holder", "owner")
READ: Final = _load("read", *_VOTE, "clock", "counter", "stand", "longer", "queue", "readers", "taken")
WRITE: Final = _load("write", *_VOTE, "clock", "counter", "longer", "queue", "taken")
RW_RAISE: Final = _load("rw_raise", *_VOTE, *_RAISES, "readers")
RW_EXTEND: Final = _load(
    "rw_extend", *_VOTE, *_RAISES, "queue", "turn", "tell", "prolong", "readers", "taken"
)
RW_TOP_UP: Final = _load("rw_top_up", *_RAISES, "prolong", "readers", "taken")
RW_RELEASE: Final = _load("rw_release", *_RAISES, "holder", "longer", "queue", "turn", "tell")
SLOTS_ACQUIRE: Final = _load("slots_acquire", *_VOTE, "clock", "counter", "slots", *_SLOT)
SLOTS_RAISE: Final = _load("slots_raise", *_VOTE, "clock", "counter", "slots", *_SLOT)
SLOTS_EXTEND: Final = _load("slots_extend", *_VOTE, "clock", "counter", "slots", *_SLOT)
SLOTS_TOP_UP: Final = _load("slots_top_up", "clock", "counter", "slots", *_SLOT)
SLOTS_RELEASE: Final = _load("slots_release", "clock", "counter", "slots", *_SLOT, "tell")
FAIR_ACQUIRE: Final = _load("fair_acquire", *_VOTE, "clock", "counter", "taken", "prolong", "seats")
FAIR_RELEASE: Final = _load("fair_release", *_RAISES, "holder", "owner", "tell", "prolong", "seats")
QUEUE: Final = _load("queue", "clock")
ANNOUNCE: Final = _load("announce")
OBSERVE: Final = _load("observe", *_VOTE)
GREET: Final = _load("greet", "identity", "clock", "sentinel", "refusal")
TAKE_BACK: Final = _load("take_back", "identity", "clock", "sentinel")
INIT: Final = _load("init", "identity", "clock", "sentinel")
INSPECT: Final = _load("inspect", "clock", "owner", "slots")

_LOCKING: Final = (ACQUIRE, RAISE, SET_ALL, EXTEND, TOP_UP, RELEASE)
_BATCHES: Final = (ACQUIRE_MANY, EXTEND_MANY, RELEASE_MANY)
_READ_WRITE: Final = (READ, WRITE, RW_RAISE, RW_EXTEND, RW_TOP_UP, RW_RELEASE)
_SLOTS: Final = (SLOTS_ACQUIRE, SLOTS_RAISE, SLOTS_EXTEND, SLOTS_TOP_UP, SLOTS_RELEASE)
_FAIR: Final = (FAIR_ACQUIRE, FAIR_RELEASE)
_ELECTION: Final = (ANNOUNCE, OBSERVE)
_NODES: Final = (GREET, TAKE_BACK, INIT, INSPECT, QUEUE)

ALL: Final = (*_LOCKING, *_BATCHES, *_READ_WRITE, *_SLOTS, *_FAIR, *_ELECTION, *_NODES)
"""What a node loads in its handshake, so that the first use is not a NOSCRIPT."""
