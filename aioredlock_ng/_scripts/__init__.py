"""The Lua scripts, each opening with its keys, arguments and returns; loaded once at import.

None carries a ``#!lua`` shebang: without it a server at its `maxmemory` still lets a script delete.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

from .._core.command import Script


def _load(name: str) -> Script:
    return Script(name, resources.files(__package__).joinpath(f"{name}.lua").read_bytes())


ACQUIRE: Final = _load("acquire")
EXTEND: Final = _load("extend")
TOP_UP: Final = _load("top_up")
RELEASE: Final = _load("release")
INSPECT: Final = _load("inspect")

ALL: Final = (ACQUIRE, EXTEND, TOP_UP, RELEASE, INSPECT)
"""What a node loads in its handshake, so that the first use is not a NOSCRIPT."""
