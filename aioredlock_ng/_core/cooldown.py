"""Names that stay taken for a while after this process has released them (rule R34).

The keys that stay on the nodes already exclude all other clients.  This only saves requests: a task of this
process need not ask the nodes for what is known here.  Another process may have deleted the keys by force, so
an entry expires after a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, final

MAX_COOLING: Final = 4096
"""Names that are remembered; the one that was released first gives way, and the nodes are asked for it."""

KNOWN_FOR: Final = 60.0
"""Seconds after a release from which on the nodes are asked, whatever is left."""


@final
class Cooldowns:
    """Until when names stay taken that this process has released; `now` is the manager's clock."""

    def __init__(self) -> None:
        self.until: OrderedDict[str, tuple[float, float]] = OrderedDict()  # and until when that is known

    def begin(self, names: Iterable[str], until: float, now: float) -> None:
        """Note that these names stay taken `until` then."""
        for name in names:
            self.until.pop(name, None)
            self.until[name] = until, min(until, now + KNOWN_FOR)
        while len(self.until) > MAX_COOLING:
            self.until.popitem(last=False)

    def left(self, names: Iterable[str], now: float) -> float:
        """Return the seconds until the last of these names is free; forget what is over."""
        longest = 0.0
        for name in names:
            if (known := self.until.get(name)) is not None:
                until, known_until = known
                if known_until <= now:
                    del self.until[name]
                else:
                    longest = max(longest, until - now)
        return longest

    def end(self, name: str) -> None:
        """Forget a name: its keys have been deleted."""
        self.until.pop(name, None)
