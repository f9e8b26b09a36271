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
_RAISES: Final = ("clock", "counter", "raise")

ACQUIRE: Final = _load("acquire", *_VOTE, "clock", "counter")
ACQUIRE_MANY: Final = _load("acquire_many", *_VOTE, "clock", "counter", "replaced")
RAISE: Final = _load("raise", *_VOTE, *_RAISES)
SET_ALL: Final = _load("set_all", *_VOTE)
EXTEND: Final = _load("extend", *_VOTE, *_RAISES)
EXTEND_MANY: Final = _load("extend_many", *_VOTE, *_RAISES)
TOP_UP: Final = _load("top_up", *_RAISES)
RELEASE: Final = _load("release", *_RAISES, "holder")
RELEASE_MANY: Final = _load("release_many", "holder")
GREET: Final = _load("greet", "identity", "clock", "sentinel")
TAKE_BACK: Final = _load("take_back", "identity", "clock", "sentinel")
INIT: Final = _load("init", "identity", "clock", "sentinel")
INSPECT: Final = _load("inspect")

_LOCKING: Final = (ACQUIRE, RAISE, SET_ALL, EXTEND, TOP_UP, RELEASE)
_BATCHES: Final = (ACQUIRE_MANY, EXTEND_MANY, RELEASE_MANY)
_NODES: Final = (GREET, TAKE_BACK, INIT, INSPECT)

ALL: Final = (*_LOCKING, *_BATCHES, *_NODES)
"""What a node loads in its handshake, so that the first use is not a NOSCRIPT."""
