"""Hand-off windows: a process that hands a name from task to task lets other processes have it (rule R13).

When a task of the process is next, its acquire leaves in the same write as the release before it, and no
other process is told.  So that others get in, a window is bounded in time and in count.  The
release that ends it is told to all that listen, and the next contender of this process lets them ask first:
for `YIELD` seconds, or until the next release, if others listened or cannot be told; else for
`YIELD_WITHOUT_LISTENERS`.

The life of a quiet release:

1. The leaving `Contender` finds that the next in line asks at once (`Ticket.keep_quiet`).  It keeps a place
   among the tries in flight for that question, and its release is quiet: `notice_pending`.
2. It leaves, and the flag goes on to the contender that is let in.
3. That one asks: it takes the place, and the flag is down.  Other processes hear of its own release.
4. Or it leaves without having asked, since it was cancelled, say: then the place is given back, and the
   release is announced after all.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, final

from .._round.round import Round

WINDOW: Final = 0.05
"""Seconds for which one process may hand a name from task to task before it lets others ask."""

MAX_HAND_OFFS: Final = 1024
"""How often it may do so in one window."""

YIELD: Final = 0.025
"""Seconds for which it then keeps from asking, at most: a process that began to poll lately has asked."""

YIELD_WITHOUT_LISTENERS: Final = 0.001
"""Seconds for which it keeps from asking when no other process listens: one that polls may still be there."""

MAX_WINDOWS: Final = 1024
"""Names whose windows are remembered after their last release; the oldest gives way."""


@final
@dataclass(slots=True, eq=False)
class HandoffWindow:
    """A stretch of time in which this process has had a name again and again."""

    began: float
    used: float
    """When the name was last given back."""
    count: int = 0
    """How often it was given back."""
    ended: bool = False
    release: Round | None = None
    """The release that ended it: set by the holding that was told that it is over."""
    listened: bool = False
    """Whether this process itself listened to that release."""


@final
class HandoffWindows:
    """The windows of one process, by name.  Times are the manager's clock."""

    __slots__ = ("windows",)

    def __init__(self) -> None:
        self.windows: OrderedDict[str, HandoffWindow] = OrderedDict()
        """By name; a name that is not in it need not be asked about."""

    def take(self, name: str, now: float) -> HandoffWindow | None:
        """Note that this process is about to ask for `name`; returns a window that is over, once."""
        window = self.windows.get(name)
        if window is None or not window.ended:
            return None
        del self.windows[name]
        return None if now - window.used >= YIELD else window  # else others had their moment

    def give_back(self, name: str, asked: float, now: float) -> HandoffWindow | None:
        """Note that this process gives `name` back, which it asked for when it was `asked`.

        Returns its window if this release ends it.
        """
        window = self.windows.get(name)
        if window is None or asked - window.used >= YIELD:  # others had their moment
            window = self.windows[name] = HandoffWindow(asked, now)
            self.windows.move_to_end(name)
            if len(self.windows) > MAX_WINDOWS:
                self.windows.popitem(last=False)
        window.used = now
        window.count += 1
        window.ended = now - window.began >= WINDOW or window.count >= MAX_HAND_OFFS
        return window if window.ended else None

    def end(self, name: str) -> None:
        """Note that another process has `name`: this one has had its time."""
        self.windows.pop(name, None)
