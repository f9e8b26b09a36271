"""What the integrations share to show the page of nodes and locks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from .access import Access, host_of
from .feed import Feed
from .site import Site

if TYPE_CHECKING:
    from .. import LockManager

WRITE_TIME: Final = 30.0
"""Seconds that a browser may take for what it was sent, before its stream is ended."""

SHORTEST: Final = 0.2
LONGEST: Final = 3600.0
"""Seconds between two looks."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """The options of a page, checked when it is made."""

    access: Access
    interval: float
    quarantine: float | None
    counted: bool
    trust_proxy: bool

    @classmethod
    def checked(
        cls,
        *,
        token: str | None,
        allow_release: bool,
        hosts: Iterable[str] | None,
        interval: float,
        quarantine: float | None = None,
        counted: bool = True,
        trust_proxy: bool = False,
    ) -> PageOptions:
        """Return them.

        Raises:
            TypeError, ValueError: one of them cannot be; the message has it, and what would be right.
        """
        if token is not None and not isinstance(token, str):
            raise TypeError(f"token must be a str, got {type(token).__name__}")  # and not what it is
        if not isinstance(interval, (int, float)):
            raise TypeError(f"interval must be a number of seconds, got {interval!r}")
        if not SHORTEST <= interval <= LONGEST:
            raise ValueError(f"interval must be {SHORTEST:g} to {LONGEST:g} seconds, got {interval!r}")
        names = None if hosts is None else _names(hosts)
        access = Access(token=token, may_release=allow_release, hosts=names, clock=_now)
        return cls(
            access=access,
            interval=interval,
            quarantine=quarantine,
            counted=counted,
            trust_proxy=trust_proxy,
        )

    def site(self, manager: LockManager) -> Site:
        """Make the site that shows what a manager sees."""
        feed = Feed(manager, interval=self.interval, quarantine=self.quarantine, counted=self.counted)
        return Site(manager, feed, self.access, trusts_proxy=self.trust_proxy)


def _names(hosts: Iterable[str]) -> frozenset[str]:
    """Return the names as they stand in Host headers, where no other would ever be found."""
    if isinstance(hosts, (str, bytes)):
        raise TypeError(f"hosts must be several names, got {hosts!r}")
    names = frozenset(hosts)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"hosts must be names, got {name!r}")
        if not name or host_of(f"[{name}]" if name.count(":") > 1 else name) != name.lower():
            raise ValueError(f"hosts must be names without ports, got {name!r}")
    return names


def _now() -> float:
    return asyncio.get_running_loop().time()
