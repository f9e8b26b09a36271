"""The data that locks protect: a resource that compares fences, and one that trusts its writers."""

from __future__ import annotations

from tests.simulation.history import History, Look, Update, Write


class Resources:
    """For each name one of both sorts; all that is written goes into the history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._written: dict[str, int] = {}
        self._put_down: dict[str, int] = {}
        self._counters: dict[str, int] = {}

    def write(
        self, at: float, client: int, name: str, owner: bytes, fence: int, *, reads: bool = False
    ) -> bool:
        """Write where a fence is refused when a greater one has been seen; return whether it was accepted.

        Or put a reader's fence down, which is refused for a writer's alone: those of readers that are there
        at the same time may differ.
        """
        accepted = not self.refuses(name, fence, reads=reads)
        if accepted:
            seen = self._put_down if reads else self._written
            seen[name] = max(fence, seen.get(name, 0))
        self._history.writes.append(
            Write(at=at, client=client, name=name, owner=owner, fence=fence, accepted=accepted, reads=reads)
        )
        return accepted

    def refuses(self, name: str, fence: int, *, reads: bool = False) -> bool:
        """Whether a greater fence has been seen."""
        return fence < self._written.get(name, 0) or (not reads and fence < self._put_down.get(name, 0))

    def read(self, name: str) -> int:
        """Read a counter that any client may write."""
        return self._counters.get(name, 0)

    def update(self, at: float, client: int, name: str, read: int) -> None:
        """Write one more than what was read, whatever has happened since."""
        self._counters[name] = read + 1
        self._history.updates.append(Update(at=at, client=client, name=name, read=read, wrote=read + 1))

    def look(self, at: float, client: int, name: str, first: int) -> None:
        """Read a counter again, which was read before."""
        then = self.read(name)
        self._history.looks.append(Look(at=at, client=client, name=name, first=first, then=then))
