"""The end of a connection over real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest

from aioredlock_ng._node.link import Link, heartbeat

RESET = struct.pack("ii", 1, 0)


class Caller:
    """Waits for a reply."""

    awaited = True

    def on_reply(self, node: int, reply: object) -> None:
        """Take it."""


def new_loop(name: str) -> Any:
    """Return what makes event loops of a kind."""
    return asyncio.new_event_loop if name == "asyncio" else pytest.importorskip("uvloop").new_event_loop


async def connected() -> tuple[Link, asyncio.WriteTransport, socket.socket]:
    """Return a link, its transport and the other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, *listener.getsockname()
        )
        peer, _ = listener.accept()
    link = Link(transport, lambda _entry, _message: None)
    transport.set_protocol(link)
    return link, transport, peer


@pytest.mark.parametrize("noticed", [False, True], ids=["just now", "before"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_that_was_reset_is_closed_all_the_same(loop, noticed):
    """Our half cannot be closed any more, with a question open: that is no error, and nothing stays open."""

    async def main():
        link, transport, peer = await connected()
        assert link.pipe.put(heartbeat(b"nonce"), Caller(), 0)
        link.flush()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        peer.close()  # the loop has had no turn since
        if noticed:
            await asyncio.wait_for(asyncio.shield(link.lost), 5)
        assert len(link.pipe) == 1

        await asyncio.wait_for(link.aclose(60.0), 30)  # nothing has to be waited for

        assert transport.is_closing()
        assert link.lost.done()

    with asyncio.Runner(loop_factory=new_loop(loop)) as runner:
        runner.run(main())
