"""What users may ask for, checked at the call: every error names the parameter and the value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias, TypedDict, final

from ._core.policy import ExtensionPolicy, RetryPolicy, number
from .errors import ConfigurationError

Seconds: TypeAlias = float | timedelta
"""A span of time: seconds, or a `timedelta`."""

OnLost: TypeAlias = Literal["cancel", "raise"]
"""What the loss of a lease does to the body of its ``async with``: cancel it, or only raise at its end."""


class LockOptions(TypedDict, total=False):
    """The options of `LockManager.lock`, which describes them, for whatever passes them on."""

    ttl: Seconds | None
    blocking: bool
    blocking_timeout: Seconds | None
    extension: ExtensionPolicy | None
    on_lost: OnLost | None
    label: str | None


MAX_TTL: Final = 24 * 3600.0
"""Seconds: a lock that nobody extends must not outlive a day."""

MAX_NAME_BYTES: Final = 1024
"""Bytes of one lock name in UTF-8."""

MAX_NAMES: Final = 64
"""Names that one lock may span."""

MAX_HOLDER_CHARS: Final = 200
"""Characters of the holder label that is written beside the owner value."""

RESERVED_NAMES: Final = ("fence:{", "{meta}")
"""How this package's own keys begin, behind the prefix (R16)."""


def seconds(name: str, value: Seconds) -> float:
    """Return a span of time in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else number(name, value)


def positive(name: str, value: Seconds) -> float:
    """Return a span of time that must be more than none."""
    result = seconds(name, value)
    if result <= 0:
        raise ValueError(f"{name} must be positive seconds, got {value!r}")
    return result


def checked_ttl(value: Seconds, node_timeout: float) -> float:
    """Return a ttl in seconds that leaves time to ask the nodes."""
    ttl = positive("ttl", value)
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
        _check_name(name)
    unique = tuple(sorted(set(names)))
    if len(unique) > MAX_NAMES:
        raise ValueError(f"a lock spans at most {MAX_NAMES} names, got {len(unique)}")
    return unique


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a lock name must be a str, got {name!r}")
    if not name:
        raise ValueError("a lock name must not be empty, got ''")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a lock name must be encodable as UTF-8, got {name!r}") from None
    if size > MAX_NAME_BYTES:
        raise ValueError(f"a lock name must be at most {MAX_NAME_BYTES} bytes, got {size}: {name[:60]!r}…")
    if name.startswith(RESERVED_NAMES):
        raise ValueError(f"lock names that begin with one of {RESERVED_NAMES} are reserved, got {name!r}")


def checked_blocking(blocking: bool, blocking_timeout: Seconds | None) -> float | None:  # noqa: FBT001
    """Return how long an acquire may wait, in seconds; None: for ever, 0: one try."""
    if blocking_timeout is None:
        return None if blocking else 0.0
    result = seconds("blocking_timeout", blocking_timeout)
    if result < 0:
        raise ValueError(f"blocking_timeout must not be negative, got {blocking_timeout!r}")
    if not blocking and result > 0:
        raise ValueError(f"blocking=False does not wait, got blocking_timeout={blocking_timeout!r} with it")
    return result


def checked_on_lost(value: str) -> OnLost:
    """Return what to do with the body of a lost lease."""
    if value == "cancel":
        return "cancel"
    if value == "raise":
        return "raise"
    raise ValueError(f"on_lost must be 'cancel' or 'raise', got {value!r}")


def checked_holder(value: str) -> str:
    """Return the holder label as it may stand in a key's value: printable, one line."""
    if not isinstance(value, str):
        raise TypeError(f"holder must be a str, got {value!r}")
    if not value.isprintable() or len(value) > MAX_HOLDER_CHARS:
        raise ValueError(f"holder must be at most {MAX_HOLDER_CHARS} printable characters, got {value!r}")
    return value


def checked_label(value: str | None) -> str:
    """Return the label for metrics; empty when there is none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"label must be a str, got {value!r}")
    return value


def checked_policy(extension: object) -> None:
    """Refuse anything that is not an extension policy."""
    if not isinstance(extension, ExtensionPolicy):
        raise TypeError(f"extension must be an ExtensionPolicy, got {extension!r}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A manager's settings, checked; times in seconds."""

    ttl: float
    node_timeout: float
    connect_timeout: float
    prefix: bytes
    retry: RetryPolicy
    extension: ExtensionPolicy
    on_lost: OnLost
    holder: str | None
    """None: host:pid of the process that uses the manager, which may be a fork of the one that made it."""


def checked_options(
    *,
    ttl: Seconds,
    node_timeout: Seconds,
    connect_timeout: Seconds,
    prefix: str,
    retry: RetryPolicy,
    extension: ExtensionPolicy,
    on_lost: str,
    holder: str | None,
) -> Options:
    """Check a manager's settings, or fail with the parameter and the value."""
    timeout = positive("node_timeout", node_timeout)
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be a str, got {prefix!r}")
    try:
        prefix_bytes = prefix.encode()
    except UnicodeEncodeError:
        raise ValueError(f"prefix must be encodable as UTF-8, got {prefix!r}") from None
    if not isinstance(retry, RetryPolicy):
        raise TypeError(f"retry must be a RetryPolicy, got {retry!r}")
    checked_policy(extension)
    return Options(
        ttl=checked_ttl(ttl, timeout),
        node_timeout=timeout,
        connect_timeout=positive("connect_timeout", connect_timeout),
        prefix=prefix_bytes,
        retry=retry,
        extension=extension,
        on_lost=checked_on_lost(on_lost),
        holder=None if holder is None else checked_holder(holder),
    )


def refuse_what_is_missing(*, fencing: bool, restart_quarantine: Seconds | None) -> None:
    """Fail rather than let somebody rely on what this version does not do."""
    if fencing:
        raise ConfigurationError("fencing=True: this version makes no fences; leave it out")
    if restart_quarantine is not None and seconds("restart_quarantine", restart_quarantine) != 0:
        raise ConfigurationError(
            f"restart_quarantine={restart_quarantine!r}: this version has no restart quarantine; leave it out"
        )
