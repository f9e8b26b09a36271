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


ACQUIRE: Final = _load("acquire", "identity", "sentinel_matches", "counter")
RAISE: Final = _load("raise", "identity", "sentinel_matches", "counter")
SET_ALL: Final = _load("set_all", "identity", "sentinel_matches")
EXTEND: Final = _load("extend", "identity", "sentinel_matches", "counter")
TOP_UP: Final = _load("top_up", "counter")
RELEASE: Final = _load("release", "counter")
GREET: Final = _load("greet", "identity", "counter", "sentinel")
TAKE_BACK: Final = _load("take_back", "identity", "counter", "sentinel")
INIT: Final = _load("init", "identity", "counter", "sentinel")
INSPECT: Final = _load("inspect")

ALL: Final = (ACQUIRE, RAISE, SET_ALL, EXTEND, TOP_UP, RELEASE, GREET, TAKE_BACK, INIT, INSPECT)
"""What a node loads in its handshake, so that the first use is not a NOSCRIPT."""
