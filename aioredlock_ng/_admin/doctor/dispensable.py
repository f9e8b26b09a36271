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
IN_FULL: Final = "send a script again"
READ_WRITE: Final = "read-write locks"
SEMAPHORES: Final = "semaphores"
FAIR: Final = "fair locks"

DISPENSABLE: Final = {
    PING: Dispensable("+ping", "the refusal itself shows that the node is alive"),
    IN_FULL: Dispensable("+eval", "after SCRIPT FLUSH it grants nothing until clients reconnect"),
    TYPE: Dispensable("+type", "errors cannot say what a key holds in place of a lock"),
    READ_WRITE: Dispensable(READER_RIGHTS, "other locks do not need this"),
    SEMAPHORES: Dispensable(SLOT_RIGHTS, "other locks do not need this"),
    FAIR: Dispensable(f"{READER_RIGHTS} {LINE_RIGHTS}", "other locks do not need this"),
}
"""Of what a diagnosis tries, what locks do without; to send scripts anew only on nodes by URL."""
