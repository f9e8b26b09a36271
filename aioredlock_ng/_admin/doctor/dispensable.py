"""What locks do without, of all that a diagnosis tries on a node."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..._core.rights import LINE_RIGHTS, READER_RIGHTS, SLOT_RIGHTS


class Dispensable(NamedTuple):
    """Something that locks do without."""

    right: str
    without: str
    """How they do."""


PING: Final = "ping"
TYPE: Final = "type"
IN_FULL: Final = "send a script anew"
READ_WRITE: Final = "read-write locks"
SEMAPHORES: Final = "semaphores"
FAIR: Final = "fair locks"

DISPENSABLE: Final = {
    PING: Dispensable("+ping", "which is a sign of life, too"),
    IN_FULL: Dispensable("+eval", "so that after SCRIPT FLUSH it grants nothing until we reconnect"),
    TYPE: Dispensable("+type", "so that no error tells what is under a key in the place of a lock"),
    READ_WRITE: Dispensable(READER_RIGHTS, "which other locks do without"),
    SEMAPHORES: Dispensable(SLOT_RIGHTS, "which other locks do without"),
    FAIR: Dispensable(f"{READER_RIGHTS} {LINE_RIGHTS}", "which other locks do without"),
}
"""Of what a diagnosis tries, what locks do without; to send scripts anew only on nodes by URL."""
