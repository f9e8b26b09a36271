"""What the locks of a run protect: a resource that compares fences, and one that trusts its writers."""

from __future__ import annotations

from tests.simulation.history import History, Update, Write


class Resources:
    """For each name one of both sorts; all that is written goes into the history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._greatest: dict[str, int] = {}
        self._counters: dict[str, int] = {}

    def write(self, at: float, client: int, name: str, owner: bytes, fence: int) -> bool:
        """Write where a fence is refused when a greater one has been seen; return whether it was accepted."""
        accepted = not self.refuses(name, fence)
        if accepted:
            self._greatest[name] = fence
        self._history.writes.append(
            Write(at=at, client=client, name=name, owner=owner, fence=fence, accepted=accepted)
        )
        return accepted

    def refuses(self, name: str, fence: int) -> bool:
        """Whether a greater fence has been seen."""
        return fence < self._greatest.get(name, 0)

    def read(self, name: str) -> int:
        """Read a counter that any client may write."""
        return self._counters.get(name, 0)

    def update(self, at: float, client: int, name: str, read: int) -> None:
        """Write one more than what was read, whatever has happened since."""
        self._counters[name] = read + 1
        self._history.updates.append(Update(at=at, client=client, name=name, read=read, wrote=read + 1))
