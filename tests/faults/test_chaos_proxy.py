"""Each fault of the proxy really happens, and happens to nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest

from tests.behaviour.tools import PATIENCE, quiet
from tests.faults.chaos_proxy import ChaosProxy, proxied
from tests.servers import eventually

PING, PONG = b"PING\r\n", b"+PONG\r\n"


class Peer(asyncio.Protocol):
    """One end of a connection, which keeps what it hears as it came."""

    transport: asyncio.Transport

    def __init__(self, among: list[Peer] | None = None) -> None:
        self.heard: list[bytes] = []
        self.ended = ""
        self._among = [] if among is None else among

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what to write to."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._among.append(self)

    def data_received(self, data: bytes) -> None:
        """Keep it."""
        self.heard.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep how it ended."""
        self.ended = "reset" if isinstance(exc, ConnectionResetError) else "closed"

    def say(self, data: bytes) -> None:
        """Send something."""
        self.transport.write(data)

    async def hears(self, data: bytes) -> None:
        """Wait until it has heard exactly this."""
        await eventually(lambda: b"".join(self.heard) == data, what=f"{data!r}, not {self.heard}")

    async def ends(self, how: str) -> None:
        """Wait until the connection has ended in this way."""
        await eventually(lambda: self.ended == how, what=f"{how}, not {self.ended!r}")


class World:
    """A server that says nothing by itself, and a proxy in front of it."""

    def __init__(self) -> None:
        self.served: list[Peer] = []
        self.proxy: ChaosProxy

    async def pair(self) -> tuple[Peer, Peer]:
        """Connect; return the client and what the server has of it."""
        number = len(self.served)
        client = await self.connect()
        await eventually(lambda: len(self.served) > number, what="it reaches the server")
        return client, self.served[number]

    async def connect(self) -> Peer:
        """Connect a client to the proxy."""
        host, _, port = self.proxy.url.removeprefix("redis://").partition(":")
        loop = asyncio.get_running_loop()
        _, client = await asyncio.wait_for(loop.create_connection(Peer, host, int(port)), PATIENCE)
        return client

    def serve(self) -> Peer:
        """Take a connection at the server."""
        return Peer(self.served)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[World]:
    """Run a world; nothing is left of it."""
    world = World()
    async with quiet():
        server = await asyncio.get_running_loop().create_server(world.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with proxied([f"redis://127.0.0.1:{port}"]) as (world.proxy,):
            yield world
        assert not world.proxy.connections
        server.close()
        for peer in world.served:
            await eventually(lambda ended=peer: ended.ended, what="the server's end has ended")


async def test_without_faults_all_passes_and_all_is_closed() -> None:
    """In both directions, in order, and the end as well, whichever side hangs up."""
    async with running() as world:
        for first in (0, 1):
            pair = await world.pair()
            for one, two in itertools.permutations(pair):
                one.say(b"a" * 100_000)
                one.say(b"b")
                await two.hears(b"a" * 100_000 + b"b")
            pair[first].transport.close()
            await pair[1 - first].ends("closed")
            await eventually(lambda: not world.proxy.connections, what="nothing is kept of it")
        assert world.proxy.accepted == 2


async def test_a_delay_throttles_nothing_and_a_jitter_keeps_the_order() -> None:
    """Hundred messages take as long as one; none comes early."""
    async with running() as world:
        client, server = await world.pair()
        loop = asyncio.get_running_loop()
        world.proxy.requests.delay, world.proxy.requests.jitter = 0.1, 0.1
        began = loop.time()
        for number in range(100):
            client.say(b"%d," % number)
            await asyncio.sleep(0)
        sent = loop.time()

        await server.hears(b"".join(b"%d," % number for number in range(100)))
        assert loop.time() - began >= 0.1
        assert loop.time() - sent < 100 * 0.1 / 4
        server.say(b"at once")
        await client.hears(b"at once")


async def test_one_direction_stalls_and_goes_on() -> None:
    """The other one goes on meanwhile; the end of a connection stalls like all the rest."""
    async with running() as world:
        client, server = await world.pair()
        world.proxy.requests.stall()
        for number in range(10):
            client.say(b"%d" % number)
            server.say(b"%d" % number)
            await client.hears(b"0123456789"[: number + 1])
        client.transport.close()
        await client.ends("closed")
        other, other_server = await world.pair()
        other_server.say(b"there was time")
        await other.hears(b"there was time")
        assert not server.heard
        assert not server.ended

        world.proxy.requests.flow()

        await server.hears(b"0123456789")
        await server.ends("closed")


async def test_connections_that_are_there_stall_and_later_ones_do_not() -> None:
    """So that what is under way on an old one arrives behind what is sent on a new one."""
    async with running() as world:
        client, server = await world.pair()
        world.proxy.requests.stall_present()
        client.say(b"old")
        client.transport.close()
        later, later_server = await world.pair()
        later.say(b"new")
        await later_server.hears(b"new")
        assert not server.heard

        world.proxy.requests.flow()

        await server.hears(b"old")
        await server.ends("closed")


async def test_pieces_are_what_a_reader_gets() -> None:
    """Byte by byte, or of any other size; and what was kept comes merged."""
    async with running() as world:
        client, server = await world.pair()
        world.proxy.replies.piece = lambda: 1
        server.say(b"abcdef")
        await client.hears(b"abcdef")
        assert client.heard == [b"a", b"b", b"c", b"d", b"e", b"f"]

        sizes = itertools.cycle((1, 3))
        world.proxy.replies.piece = lambda: next(sizes)
        server.say(b"ghijkl")
        await client.hears(b"abcdefghijkl")
        assert client.heard[6:] == [b"g", b"hij", b"k", b"l"]

        world.proxy.replies.piece = None
        world.proxy.replies.stall()
        passed = world.proxy.requests.passed
        for number in range(5):
            server.say(b"%d" % number)
            client.say(b"x")  # a turn for the other direction shows that this one has had its turn
            await eventually(lambda n=number: world.proxy.requests.passed == passed + n + 1)
        client.heard.clear()
        world.proxy.replies.flow()
        await client.hears(b"01234")


async def test_half_open() -> None:
    """The server has hung up, the client hears nothing of it and speaks into the void; others go on."""
    async with running() as world:
        client, server = await world.pair()
        world.proxy.half_open()
        await server.ends("closed")
        client.say(b"is it there?")
        other, other_server = await world.pair()
        other.say(b"hello")
        await other_server.hears(b"hello")
        other_server.say(b"hello")
        await other.hears(b"hello")

        assert not client.ended
        assert not client.heard
        assert not server.heard


@pytest.mark.parametrize("number", [0, 3])
async def test_a_reset_after_so_many_bytes(number: int) -> None:
    """The server gets the bytes before, the client a reset; the next connection goes on."""
    async with running() as world:
        client, server = await world.pair()
        world.proxy.requests.reset_after(number)
        client.say(b"abcdef")

        await client.ends("reset")
        await eventually(lambda: server.ended, what="the server's end is over, too")
        assert b"".join(server.heard) == b"abcdef"[:number]
        later, later_server = await world.pair()
        later.say(b"abcdef")
        await later_server.hears(b"abcdef")


async def test_a_reset_between_request_and_reply() -> None:
    """The server has got all of the request, the client nothing of the reply."""
    async with running() as world:
        client, server = await world.pair()
        world.proxy.replies.reset_after(0)
        client.say(PING)
        await server.hears(PING)
        assert not client.ended

        server.say(PONG)

        await client.ends("reset")
        assert not client.heard


async def test_all_connections_are_reset_at_once() -> None:
    """Those that come later are not."""
    async with running() as world:
        pairs = [await world.pair() for _ in range(3)]
        world.proxy.reset()
        for client, _ in pairs:
            await client.ends("reset")
        client, server = await world.pair()
        client.say(b"hello")
        await server.hears(b"hello")


async def test_what_a_client_has_sent_may_arrive_when_its_connection_is_gone() -> None:
    """It was under way, and the end of the connection is behind it."""
    async with running() as world:
        client, server = await world.pair()
        world.proxy.requests.stall_present()
        client.say(b"the last words")
        later, _ = await world.pair()
        later.transport.close()  # a turn for the proxy to have taken them
        world.proxy.reset_clients()
        await client.ends("reset")
        assert not server.heard
        assert not server.ended

        world.proxy.requests.flow()

        await server.hears(b"the last words")
        await server.ends("closed")


async def test_exactly_one_reply_is_dropped() -> None:
    """The first one that is meant, wherever its bytes end; all before and behind it arrive."""
    async with running() as world:
        client, server = await world.pair()
        world.proxy.replies.drop(lambda reply: reply.startswith(b"$"))
        replies = [b":1\r\n", b"*2\r\n$1\r\na\r\n:2\r\n", b"$3\r\n\r\nx\r\n", b"$1\r\nb\r\n", b"+OK\r\n"]
        stream = b"".join(replies)
        for at in range(0, len(stream), 7):
            server.say(stream[at : at + 7])
            await asyncio.sleep(0)

        await client.hears(b"".join([*replies[:2], *replies[3:]]))
        assert world.proxy.replies.dropped == [replies[2]]


async def test_a_port_that_is_closed_and_one_that_resets() -> None:
    """The first refuses, the second takes a connection and ends it; connections that are there go on."""
    async with running() as world:
        client, server = await world.pair()
        world.proxy.rejects = True
        rejected = await world.connect()
        await rejected.ends("reset")
        assert world.proxy.accepted == 2

        world.proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        client.say(b"still here")
        await server.hears(b"still here")
        assert world.proxy.accepted == 2

        world.proxy.rejects = False
        await world.proxy.open()
        await world.pair()


async def test_a_server_that_is_not_there() -> None:
    """Its client's connection is closed."""
    async with quiet(), proxied(["redis://127.0.0.1:1"]) as (proxy,):
        world = World()
        world.proxy = proxy
        client = await world.connect()
        await client.ends("closed")
