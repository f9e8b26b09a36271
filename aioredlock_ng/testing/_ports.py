"""Ports for servers that may be down for a while: reserved among all processes of this machine.

A server that was killed comes back on its port, so no other may be given it meanwhile, in another worker of
pytest-xdist, say. The token is the UDP port of the same number, bound for as long as the TCP port is
reserved: it disturbs neither the server nor its clients, and the kernel frees it when the process ends.
"""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final, final

from ._errors import ServerStartError

HOST: Final = "127.0.0.1"
# Below the ports that Linux (32768) and macOS (49152) hand out to outgoing connections: a client that
# keeps connecting to a dead node's port could otherwise be given that very port, and connect to itself.
PORTS: Final = range(20_000, 32_000)
_PROBES: Final = 1_000


@final
class ReservedPort:
    """A TCP port that had no listener when it was picked; it is not picked again until it is released."""

    def __init__(self) -> None:
        """Pick one.

        Raises:
            ServerStartError: None of many ports at random is free.
        """
        for number in random.sample(PORTS, min(_PROBES, len(PORTS))):
            if (token := _reserve(number)) is not None:
                self.number, self._token = number, token
                return
        raise ServerStartError(
            f"none of {_PROBES} random ports between {PORTS.start} and {PORTS.stop} is free"
        )

    def release(self) -> None:
        """Let others pick it; idempotent."""
        self._token.close()


def _reserve(number: int) -> socket.socket | None:
    """Return what holds a port; None when it is in use or reserved.

    The token comes first: a probe of TCP would be in the way of a server that comes back to a reserved port.
    """
    token = socket.socket(type=socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        token.bind((HOST, number))
        with socket.socket() as probe:
            probe.bind((HOST, number))
            return token
    token.close()
    return None
