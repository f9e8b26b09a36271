"""The options of users, checked at the call: every error names the parameter and the value.

An option of a lock stands in the `TypedDict` of its kind, which type checkers and editors read, and in
`Options.request`, which has its default and its check.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, TypedDict, TypeVar, final

from .._clock import Clock
from .._core import keyspace
from .._core.fencing import MIN_FENCE_TTL
from .._core.keyspace import RESERVED_NAMES
from .._core.policy import ExtensionPolicy, RetryPolicy, number
from .._core.slots import MAX_PERMITS
from .._core.validity import min_validity, valid_until
from .._kinds.kind import Mode

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

Seconds: TypeAlias = float | timedelta
"""A span of time: seconds, or a `timedelta`."""

OnLost: TypeAlias = Literal["cancel", "raise"]
"""The effect of a loss on the body of an ``async with``: it is cancelled, or its end raises an error."""

_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}  # the longest first

_DURATION: Final = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in _UNITS), re.ASCII)
"""Each unit once at most, the longer ones first: another order is more likely a mistake than meant."""

_SHOWN: Final = 40  # characters of a wrong text

FORMS: Final = "a number of seconds, or one with units, such as 90s, 5m or 1h30m"


def parse_duration(text: str) -> float:
    """Return a duration, as people write it, in seconds: ``0.5``, ``90s``, ``5m``, ``1h30m``, ``250ms``.

    Units are d, h, m, s and ms, each once at most, the longer ones first.

    Raises:
        ValueError: the text is no duration, is below 0, or is not finite.
    """
    try:
        result = float(text)
    except ValueError:
        result = _with_units(text)
    if not 0 <= result < math.inf:
        raise ValueError(f"a duration is {FORMS}, got {text[:_SHOWN]!r}")
    return result


def _with_units(text: str) -> float:
    """Return the sum of the parts; NaN when the text has anything else in it."""
    parts = _DURATION.fullmatch(text)
    if not text or parts is None:
        return math.nan
    return sum(
        float(amount or 0) * unit for amount, unit in zip(parts.groups(), _UNITS.values(), strict=True)
    )


class ManagerOptions(TypedDict, total=False):
    """The options of `LockManager`, which describes them, for code that passes them on."""

    ttl: Seconds
    node_timeout: Seconds
    connect_timeout: Seconds
    prefix: str
    fencing: bool
    fence_ttl: Seconds
    restart_quarantine: Seconds | None
    retry: RetryPolicy
    extension: ExtensionPolicy
    on_lost: OnLost
    holder: str | None
    hooks: Iterable[object]
    clock: Clock | None
    random: Random | None


class TimeLimits(TypedDict, total=False):
    """The time limits of `ReadWriteLock.read` and `ReadWriteLock.write`, for code that passes them on."""

    blocking: bool | None
    blocking_timeout: Seconds | None
    quorum_timeout: Seconds | None


class SemaphoreOptions(TypedDict, total=False):
    """The options of `LockManager.semaphore` beside `permits`, for code that passes them on.

    `LockManager.lock` describes them.
    """

    ttl: Seconds | None
    blocking: bool
    blocking_timeout: Seconds | None
    quorum_timeout: Seconds | None
    extension: ExtensionPolicy | None
    on_lost: OnLost | None
    label: str | None


class ElectionOptions(SemaphoreOptions, total=False):
    """The options of `LockManager.election`, which describes them, for code that passes them on."""

    holder: str | None


class ReadWriteLockOptions(SemaphoreOptions, total=False):
    """The options of `LockManager.rwlock`, for code that passes them on: see `LockManager.lock`."""

    reentrant: bool


class LockOptions(ReadWriteLockOptions, total=False):
    """The options of `LockManager.lock`, for code that passes them on."""

    at_least: Seconds | None
    fair: bool


class LockedOptions(LockOptions, total=False):
    """The options of `LockManager.locked`, and of decorators like it: of a lock of any kind."""

    mode: Mode | None
    permits: int | None


OPTIONS_OF: Final[Mapping[str, Any]] = {
    "lock": LockOptions,
    "rwlock": ReadWriteLockOptions,
    "semaphore": SemaphoreOptions,
    "election": ElectionOptions,
}
"""The options that each method of `LockManager` has."""


def shows(known: Any, like: Callable[..., object], *left_out: str, **defaults: object) -> Callable[[F], F]:
    """Have `help` show the options of a function that takes them as ``**options: Unpack[known]``.

    Their `defaults` that are not given are those of `like`, which is a function that has all of them.
    """
    options = [
        option.replace(default=defaults.get(name, option.default))
        for name, option in inspect.signature(like).parameters.items()
        if name in known.__optional_keys__ and name not in left_out
    ]

    def show(function: F) -> F:
        signature = inspect.signature(function)
        *own, _ = signature.parameters.values()
        function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return function

    return show


DEFAULT_PREFIX: Final = "redlock:"
"""The beginning of every key and channel, unless a manager has another prefix (R16)."""

MIN_TTL: Final = 0.005
"""Seconds, rounded up: below 4.1 ms drift leaves less than half, and a round trip must fit in, too (R3)."""

MAX_TTL: Final = 24 * 3600.0
"""Seconds: a lock that is not extended must not outlive a day."""

MAX_FENCE_TTL: Final = 30 * 24 * 3600.0
"""Seconds that a counter may live unused."""

QUARANTINE_VARIABLE: Final = "REDLOCK_RESTART_QUARANTINE"
"""Environment variable: the restart quarantine of managers that are not given one; seconds, or such as 5m."""

DEFAULT_QUARANTINE: Final = 60.0
"""Seconds of restart quarantine, or the ttl where that is longer."""

QUARANTINE_FROM: Final = 3
"""Number of nodes from which on there is a restart quarantine by default: with fewer, one node that waits
costs the majority."""

MAX_NAME_BYTES: Final = 1024
"""Bytes of one lock name in UTF-8."""

MAX_NAMES: Final = 64
"""Names that one lock may span."""

MAX_HOLDER_CHARS: Final = 200
"""Characters of the holder label that is written beside the owner value."""


_IN_WORDS: Final = {
    str: "a str",
    bool: "True or False",
    ExtensionPolicy: "an ExtensionPolicy",
    RetryPolicy: "a RetryPolicy",
}


def typed(name: str, value: object, expected: type[T]) -> T:
    """Return an option that is of the `expected` type."""
    if not isinstance(value, expected):
        raise TypeError(f"{name} must be {_IN_WORDS[expected]}, got {value!r}")
    return value


def seconds(name: str, value: Seconds) -> float:
    """Return a span of time in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else number(name, value)


def positive(name: str, value: Seconds) -> float:
    """Return a span of time in seconds; it must be positive."""
    result = seconds(name, value)
    if result <= 0:
        raise ValueError(f"{name} must be positive seconds, got {value!r}")
    return result


def not_negative(name: str, value: Seconds) -> float:
    """Return a span of time in seconds; it may be 0."""
    result = seconds(name, value)
    if result < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}")
    return result


def _up_to_a_day(name: str, value: Seconds) -> float:
    """Return a span of time in seconds; it may be 0, and no longer than a lock that is not extended."""
    result = seconds(name, value)
    if not 0 <= result <= MAX_TTL:
        raise ValueError(f"{name} must be 0 to {MAX_TTL:.0f} seconds (24 h), got {value!r}")
    return result


def checked_ttl(value: Seconds, node_timeout: float) -> float:
    """Return a ttl in seconds; it must leave time to ask the nodes."""
    ttl = positive("ttl", value)
    if ttl < MIN_TTL:
        raise ValueError(
            f"ttl must be at least {MIN_TTL:g} s, got {value!r}; clock drift leaves too little of a "
            "shorter one"
        )
    if ttl > MAX_TTL:
        raise ValueError(
            f"ttl must be at most {MAX_TTL:.0f} s (24 h), got {value!r}; extend the lock instead"
        )
    if node_timeout >= ttl:
        raise ValueError(
            f"node_timeout must be shorter than the ttl, got node_timeout={node_timeout!r} and ttl={value!r}"
        )
    return ttl


def checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return lock names sorted and without duplicates."""
    if not names:
        raise ValueError("a lock needs at least one name, got none")
    for name in names:
        encoded(name)
    if len(names) == 1:
        return names
    unique = tuple(sorted(set(names)))
    if len(unique) > MAX_NAMES:
        raise ValueError(f"a lock spans at most {MAX_NAMES} names, got {len(unique)}")
    return unique


def encoded(name: str) -> bytes:
    """Return a lock name as bytes; raises if it cannot be one."""
    if type(name) is not str:
        typed("a lock name", name, str)
    if not name:
        raise ValueError("a lock name must not be empty, got ''")
    try:
        word = name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a lock name must be encodable as UTF-8, got {name!r}") from None
    if len(word) > MAX_NAME_BYTES:
        raise ValueError(
            f"a lock name must be at most {MAX_NAME_BYTES} bytes, got {len(word)}: {name[:60]!r}…"
        )
    if name.startswith(RESERVED_NAMES):
        raise ValueError(f"lock names that begin with one of {RESERVED_NAMES} are reserved, got {name!r}")
    return word


def checked_blocking(blocking: bool, blocking_timeout: Seconds | None) -> float | None:  # noqa: FBT001
    """Return how long an acquire may wait, in seconds; None: for ever, 0: one try."""
    if blocking_timeout is None:
        return None if blocking else 0.0
    result = not_negative("blocking_timeout", blocking_timeout)
    if not blocking and result > 0:
        raise ValueError(
            f"blocking=False does not wait, so it cannot have blocking_timeout={blocking_timeout!r}"
        )
    return result


def checked_on_lost(value: str) -> OnLost:
    """Return how the loss of a lease ends its body."""
    if value == "cancel":
        return "cancel"
    if value == "raise":
        return "raise"
    raise ValueError(f"on_lost must be 'cancel' or 'raise', got {value!r}")


def checked_holder(value: str) -> str:
    """Return the holder label as it may stand in a key's value: printable, one line."""
    typed("holder", value, str)
    if not value.isprintable() or len(value) > MAX_HOLDER_CHARS:
        raise ValueError(f"holder must be at most {MAX_HOLDER_CHARS} printable characters, got {value!r}")
    return value


def checked_prefix(prefix: str) -> bytes:
    """Return the beginning of every key as bytes."""
    typed("prefix", prefix, str)
    try:
        return prefix.encode()
    except UnicodeEncodeError:
        raise ValueError(f"prefix must be encodable as UTF-8, got {prefix!r}") from None


def checked_fence_ttl(value: Seconds) -> float:
    """Return how long a counter lives unused: at least until a missing one would start above it (R11)."""
    fence_ttl = seconds("fence_ttl", value)
    if not MIN_FENCE_TTL <= fence_ttl <= MAX_FENCE_TTL:
        raise ValueError(
            f"fence_ttl must be {MIN_FENCE_TTL:.0f} to {MAX_FENCE_TTL:.0f} seconds (30 days), got {value!r}"
        )
    return fence_ttl


def checked_quarantine(value: Seconds | None, ttl: float, size: int) -> float:
    """Return the restart quarantine in seconds; 0 switches the wait off (R12)."""
    name = "restart_quarantine"
    # Not given: the environment variable comes before the default.
    if value is None and (text := os.environ.get(QUARANTINE_VARIABLE)):
        name = QUARANTINE_VARIABLE
        try:
            value = parse_duration(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if value is None:
        return max(ttl, DEFAULT_QUARANTINE) if size >= QUARANTINE_FROM else 0.0
    quarantine = _up_to_a_day(name, value)
    refuse_longer(ttl, quarantine, name)
    return quarantine


def refuse_longer(
    value: float, quarantine: float, name: str = "restart_quarantine", *, what: str = "ttl"
) -> None:
    """Refuse a ttl, or an `at_least`, that a restarted node's quarantine would not outlast (R12, R34).

    A quarantine of 0 is none.
    """
    if 0 < quarantine < value:
        raise ValueError(
            f"{what} must not be longer than the restart quarantine, got {what}={value:g} and "
            f"{name}={quarantine:g}: make the quarantine longer, in all clients"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A manager's settings, checked; times in seconds."""

    ttl: float
    node_timeout: float
    connect_timeout: float
    prefix: bytes
    fencing: bool
    fence_ttl: float
    restart_quarantine: float
    retry: RetryPolicy
    extension: ExtensionPolicy
    on_lost: OnLost
    holder: str | None
    """None: host:pid of the process that uses the manager, which may be a fork of the one that made it."""

    @property
    def incarnation(self) -> bytes | None:
        """The key of the nodes' incarnation records; None when the manager uses none (R12, R16)."""
        return keyspace.incarnation_key(self.prefix) if self.fencing or self.restart_quarantine else None

    def key(self, name: str) -> bytes:
        """Return the key of the lock `name`, which is also the channel of its releases (R16)."""
        return keyspace.lock_key(self.prefix, name)

    def request(
        self,
        *,
        ttl: Seconds | None = None,
        blocking: bool = True,
        blocking_timeout: Seconds | None = None,
        quorum_timeout: Seconds | None = None,
        extension: ExtensionPolicy | None = None,
        on_lost: OnLost | None = None,
        label: str | None = None,
        at_least: Seconds | None = None,
        reentrant: bool = False,
        fair: bool = False,
        holder: str | None = None,
    ) -> Request:
        """Check the options of a lock of whichever kind: the one place of their defaults."""
        least = 0.0 if at_least is None else _up_to_a_day("at_least", at_least)
        refuse_longer(least, self.restart_quarantine, what="at_least")
        if typed("fair", fair, bool) and least:
            raise ValueError(f"a fair lock has no at_least, got at_least={at_least!r}")
        return Request(
            ttl=max(least, self.ttl if ttl is None else self.checked_ttl(ttl)),
            at_least=least,
            blocking_timeout=checked_blocking(blocking, blocking_timeout),
            quorum_timeout=None if quorum_timeout is None else not_negative("quorum_timeout", quorum_timeout),
            extension=self.extension if extension is None else typed("extension", extension, ExtensionPolicy),
            on_lost=self.on_lost if on_lost is None else checked_on_lost(on_lost),
            label="" if label is None else typed("label", label, str),
            holder=None if holder is None else checked_holder(holder),
            node_timeout=self.node_timeout,
            reentrant=typed("reentrant", reentrant, bool),
        )

    def request_of(self, method: str, **options: Any) -> Request:
        """Check the options that a method of `LockManager` was given, which has only some of them."""
        refuse_unknown(f"LockManager.{method}()", OPTIONS_OF[method], options)
        return self.request(**options)

    def checked_ttl(self, value: Seconds) -> float:
        """Return a ttl in seconds that suits the other settings."""
        ttl = checked_ttl(value, self.node_timeout)
        refuse_longer(ttl, self.restart_quarantine)
        return ttl


def refuse_unknown(call: str, known: Any, options: Iterable[str]) -> None:
    """Refuse options that a call cannot have; `known` is the `TypedDict` of those that it can have."""
    for name in options:
        if name not in known.__optional_keys__:
            said = f": {OPTIONS[name]}" if name in OPTIONS else ""
            raise TypeError(f"{call} got an unexpected keyword argument {name!r}{said}")


def checked_permits(permits: int) -> int:
    """Check how many may hold a semaphore at once."""
    if isinstance(permits, bool) or not isinstance(permits, int):
        raise TypeError(f"permits must be an int, got {permits!r}")
    if not 1 <= permits <= MAX_PERMITS:
        raise ValueError(f"permits must be 1 to {MAX_PERMITS}, got {permits!r}")
    return permits


def checked_weight(weight: int, permits: int) -> None:
    """Check how many of a semaphore's permits a call takes."""
    if isinstance(weight, bool) or not isinstance(weight, int):
        raise TypeError(f"weight must be an int, got {weight!r}")
    if not 1 <= weight <= permits:
        raise ValueError(f"weight must be 1 to permits={permits}, got {weight!r}")


# -- names from other lock libraries: the error says what to use here instead --------------------------

_RELEASE: Final = "leave the lock's block, or call `release()` of its lease"
_EXTEND: Final = "call `extend()` of the lease; in the background it is extended by itself"
_ACQUIRE: Final = (
    "write `manager.lock(name).acquire()`, of a read-write lock `.read().acquire()` or `.write().acquire()`, "
    "of an election `.campaign()` or `.try_campaign()`"
)
_HELD: Final = "`held` of the lease says whether it is held, without I/O"

CALLS: Final = {
    "unlock": _RELEASE,
    "release": _RELEASE,
    "extend": _EXTEND,
    "reacquire": _EXTEND,
    "renew": _EXTEND,
    "reset": "call `force_release(name)` of the manager",
    "owned": _HELD,
    "valid": _HELD,
    "validity": "`remaining` of the lease says for how many seconds it is held, without I/O",
    "is_locked": "call `locked()` of the lock, or `inspect(name)` of the manager",
    "destroy": "call `aclose()` of the manager, or `close()` of one for threads",
    "get_active_locks": "`statistics().leases` of the manager are its own, `survey()` finds all clients'",
    "acquire": _ACQUIRE,
    "try_acquire": _ACQUIRE,
    "locked": "write `await lock.locked()`, of what `lock(name)` of the manager returns",
    "get_lock": "a lease stays in the process that acquired it; make a lock with `lock(name)` of the manager",
}
"""Methods and attributes of other locks: of aioredlock, pottery, redis-py, redlock-py, asyncio, others."""

OPTIONS: Final = {
    "timeout": "`ttl` is the seconds until a lock ends by itself, `blocking_timeout` those to wait for it",
    "lock_timeout": "`ttl` is the seconds until a lock ends by itself",
    "expire": "`ttl` is the seconds until a lock ends by itself",
    "auto_release_time": "`ttl` is the seconds until a lock ends by itself",
    "num_extensions": "`extension=ExtensionPolicy(...)` says how often it is extended",
    "auto_renewal": "locks are extended by themselves; `extension=ExtensionPolicy(...)` says how often",
    "retry_interval": "`retry=RetryPolicy(...)` of the manager says how often nodes are asked",
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


@final
@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """The settings that a lock is asked for with, beside its names; times in seconds.  Never changed.

    Worked out once for all locks of a manager that have the same settings.
    """

    ttl: float
    at_least: float = 0.0
    blocking_timeout: float | None
    quorum_timeout: float | None
    extension: ExtensionPolicy
    on_lost: OnLost
    label: str
    holder: str | None = None
    """The holder's label, for people that inspect the lock; None: its manager's."""
    node_timeout: float
    reentrant: bool = False
    validity: float = field(init=False)
    """Seconds for which a win is valid, counted from the request (R3)."""
    least_validity: float = field(init=False)
    """Seconds of validity that must be left when a win is judged, or it is no win (R3)."""
    extended_after: float = field(init=False)
    """When the lease is first extended, counted from the request; infinity: never."""
    due_after: float = field(init=False)
    """When the watchdog must first check the lease, to extend it or to end it in time (R7)."""

    def __post_init__(self) -> None:
        ttl, extension = self.ttl, self.extension
        grace = extension.grace * ttl
        self.validity = valid_until(0.0, ttl)
        self.least_validity = min_validity(ttl, self.node_timeout, grace)
        self.extended_after = math.inf if extension.max_extensions == 0 else extension.every * ttl
        self.due_after = min(self.extended_after, self.validity - grace)
