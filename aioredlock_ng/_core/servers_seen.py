"""Which servers the name of one node has led to (A4)."""

from __future__ import annotations

from typing import Final, final

from .quarantine import UNKNOWN_IDENTITY

MAX_SERVERS: Final = 16
"""Servers of one name that are remembered; restarts and failovers make new ones."""

SEVERAL_SERVERS: Final = (
    "its name leads to different servers on successive connections; they do not know each other's locks, "
    "so two clients can hold the same lock (A4)"
)

ONE_SERVER_EACH: Final = (
    "give each node the address of one server (in Kubernetes that of its pod, not of the service), "
    "without a load balancer in front of several servers"
)
"""What to do about it."""


@final
class ServersSeen:
    """The servers behind one name, in the order in which they answered.

    A restart or a failover makes a new server, and the old one never comes back under its identity: a server
    that was left for another one and answers again was alive all the time, and so are both now.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}

    def returns(self, identity: bytes) -> bool:
        """Take a server's answer, by its identity; return whether another one has answered since its last."""
        if not identity or identity == UNKNOWN_IDENTITY:
            return False
        returned = identity in self._seen and identity != next(reversed(self._seen))
        self._seen.pop(identity, None)
        self._seen[identity] = None
        if len(self._seen) > MAX_SERVERS:
            del self._seen[next(iter(self._seen))]
        return returned
