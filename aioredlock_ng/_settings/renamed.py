"""Names from other lock libraries: the error says what to use here instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NoReturn

_RELEASE: Final = "leave the lock's block, or call `release()` of its lease"
_EXTEND: Final = "call `extend()` of the lease; in the background it is extended by itself"
_HELD: Final = "`held` of the lease says whether it is held, without I/O"

CALLS: Final = {
    "unlock": _RELEASE,
    "release": _RELEASE,
    "extend": _EXTEND,
    "reacquire": _EXTEND,
    "owned": _HELD,
    "valid": _HELD,
    "validity": "`remaining` of the lease says for how many seconds it is held, without I/O",
    "is_locked": "call `locked()` of the lock, or `inspect(name)` of the manager",
    "destroy": "call `aclose()` of the manager, or `close()` of one for threads",
    "get_active_locks": "`statistics().leases` of the manager are its own, `survey()` finds all clients'",
    "get_lock": "a lease stays in the process that acquired it; make a lock with `lock(name)` of the manager",
}
"""Methods and attributes of aioredlock, pottery, redis-py and redlock-py."""

OPTIONS: Final = {
    "timeout": "`ttl` is the seconds until a lock ends by itself, `blocking_timeout` those to wait for it",
    "lock_timeout": "`ttl` is the seconds until a lock ends by itself",
    "auto_release_time": "`ttl` is the seconds until a lock ends by itself",
    "num_extensions": "`extension=ExtensionPolicy(...)` says how often it is extended",
    "sleep": "`retry=RetryPolicy(...)` of the manager says how often nodes are asked",
}
"""Options of these libraries."""


class Renamed:
    """Raises an error with our name for another library's method or attribute."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers would take any attribute for one that is there

        def __getattr__(self, name: str) -> NoReturn:
            said = f": {CALLS[name]}" if name in CALLS else ""
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{said}", name=name, obj=self
            )


def refuse_options(function: str, names: Iterable[str]) -> NoReturn:
    """Raise for the first of these options, which a function does not have."""
    name = next(iter(names))
    said = f": {OPTIONS[name]}" if name in OPTIONS else ""
    raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{said}")
