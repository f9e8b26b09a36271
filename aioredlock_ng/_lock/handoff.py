"""Hand-off windows: a process that passes a name between its own tasks lets others have it, too (rule R13).

When another task of the process is next, its acquire leaves in the same write as the release before it, and
no other process is notified.  So that other processes get the lock, too, such a window is limited in time and
in number of releases.  The release that ends the window notifies all listeners, and the next contender of
this process lets them ask first.  It waits for `YIELD` seconds, or until the next release, if other processes
listened or cannot be notified; otherwise for `YIELD_WITHOUT_LISTENERS`.

The steps of a quiet release, which notifies no other process:

1. The leaving `Contender` finds that the next waiter asks at once (`Contender.keep_quiet`).  It keeps a place
   among the attempts in flight for that waiter, sets `notice_pending`, and its release is quiet.
2. It leaves, and `notice_pending` moves to the contender that is let in.
3. That contender asks: it uses the place, and clears `notice_pending`.  Other processes are notified of its
   own release.
4. Or it leaves without having asked, since it was cancelled, say.  Then the place is given back, and the
   release is published after all.
"""

from __future__ import annotations

from typing import Final, final

from .._round.round import Round

WINDOW: Final = 0.05
"""Seconds that one process may pass a name between its tasks before it lets other processes ask."""

MAX_HAND_OFFS: Final = 1024
"""Most releases in one window."""

YIELD: Final = 0.025
"""Most seconds that the process then waits before it asks: a process that polls since lately has asked."""

YIELD_WITHOUT_LISTENERS: Final = 0.001
"""Seconds that it waits when no other process listens: there may still be one that polls."""

MAX_WINDOWS: Final = 1024
"""Names whose windows are remembered after their last release; beyond that the oldest are forgotten."""

SPARE_WINDOWS: Final = 64
"""Windows that may say nothing any more, beside two for each that does, before they are forgotten."""


@final
class HandoffWindow:
    """A period in which this process has had a name again and again, with short gaps at most."""

    # Defaults on the class, and no `__init__`: most names are used once, and a window is made for each.
    began = 0.0
    """When the name was asked for first."""
    used = 0.0
    """When the name was last released."""
    count = 0
    """Number of releases."""
    ended = False
    fence = 0
    """Where the counter stands since the last release: the next acquire proposes a greater fence (R10)."""
    release: Round | None = None
    """The release that ended the window; set by the holding that made it."""
    listened = False
    """Whether this process itself was subscribed when that release was sent."""


@final
class HandoffWindows:
    """The windows of one process, by name.  Times are from the manager's clock."""

    __slots__ = ("_room", "windows")

    def __init__(self) -> None:
        self.windows: dict[str, HandoffWindow] = {}
        """By name, in the order in which they began.  Callers may skip `take` for a name without a window, or
        with one that has not ended."""
        self._room = min(SPARE_WINDOWS, MAX_WINDOWS)

    def take(self, name: str, now: float) -> HandoffWindow | None:
        """Return the window of `name` if it has ended and others are to ask first; forget it then.

        Called when this process is about to ask for `name`.
        """
        window = self.windows.get(name)
        # Not had lately, or the window goes on: ask at once.
        if window is None or not window.ended:
            return None
        del self.windows[name]
        # Nothing of this process has asked since the release that ended the window: if that is a while ago,
        # other processes have had their time without a wait.
        return None if now - window.used >= YIELD else window

    def give_back(self, name: str, asked: float, now: float, fence: int) -> HandoffWindow | None:
        """Count a release of `name`, which was acquired with `fence` by a question at `asked`.

        Returns its window if this release ends it.
        """
        windows = self.windows
        window = windows.get(name)
        # A new window: the first release, or a gap before the acquire in which other processes could ask.
        # Example: released at 10.000 s.  Asked for again at 10.001 s, the window goes on; at 10.030 s, a new
        # one begins.
        if window is None or asked - window.used >= YIELD:
            if window is not None:
                del windows[name]
            elif len(windows) >= self._room:
                self._forget(now)
            window = windows[name] = HandoffWindow()
            window.began = asked
        window.used = now
        window.fence = fence
        window.count += 1
        window.ended = now - window.began >= WINDOW or window.count >= MAX_HAND_OFFS
        return window if window.ended else None

    def _forget(self, now: float) -> None:
        """Forget windows that say nothing any more, and of too many the oldest."""
        excess = len(self.windows) - MAX_WINDOWS * 7 // 8
        for number, (name, window) in enumerate(list(self.windows.items())):
            # Not sooner than this: the name may be held since before, and a new window for it has to end with
            # its first release.
            if number >= excess and now - window.used < YIELD + WINDOW:
                break
            del self.windows[name]
        self._room = min(2 * len(self.windows) + SPARE_WINDOWS, MAX_WINDOWS)

    def end(self, name: str) -> None:
        """Forget the window of `name`: another process has had the lock."""
        self.windows.pop(name, None)
