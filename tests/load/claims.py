"""Which client holds what, as seen from outside the package: exclusion and fences, checked at every grant."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from aioredlock_ng import Lease

NAMES_KEPT = 4096  # names whose last fence is remembered; they must not grow with the load


class Claims:
    """The leases of all managers of one process, which share a clock: so every overlap is seen."""

    def __init__(self) -> None:
        self._inside: dict[str, list[Lease]] = {}
        self._fences: dict[str, int] = {}
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()

    @contextlib.contextmanager
    def claim(self, lease: Lease) -> Iterator[None]:
        """Check a new lease against all that are held, and against the fences before it."""
        self.counts["grants"] += 1
        for name in lease.names:
            others = self._inside.setdefault(name, [])
            for other in others:
                if other.held and lease.held:
                    self.violations.append(f"two hold {name!a}: {other!r} and {lease!r}")
            others.append(lease)
            self._check_fence(name, lease.fence)
        try:
            yield
        finally:
            for name in lease.names:
                self._inside[name].remove(lease)
                if not self._inside[name]:
                    del self._inside[name]

    def _check_fence(self, name: str, fence: int | None) -> None:
        last = self._fences.pop(name, 0)
        if fence is None or fence <= last:
            self.violations.append(f"{name!a}: fence {fence} after {last}")
        self._fences[name] = max(fence or 0, last)
        if len(self._fences) > NAMES_KEPT:
            del self._fences[next(iter(self._fences))]
