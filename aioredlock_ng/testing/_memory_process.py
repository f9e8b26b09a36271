"""The process of a master in memory: which one it is, how it replies, and who listens to its channels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol, final

from ._memory_data import MemoryData, NodeClock


@final
class Push(tuple[Any, ...]):
    """What RESP3 tells beside the replies."""

    __slots__ = ()


def encode(reply: Any) -> bytes:
    """Encode a reply: str is a status, bytes a bulk string."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, str):
        return b"+%b\r\n" % reply.encode()
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    kind = b">" if isinstance(reply, Push) else b"*"
    return b"%b%d\r\n" % (kind, len(reply)) + b"".join(map(encode, reply))


_INFO: Final = b"\r\n".join(
    [
        b"redis_version:7.0.0",
        b"redis_mode:standalone",
        b"uptime_in_seconds:%d",
        b"maxmemory:0",
        b"maxmemory_policy:noeviction",
        b"aof_enabled:0",
        b"maxclients:10000",
        b"connected_slaves:0",
        b"connected_clients:%d",
        b"run_id:%b",
        b"role:master",
        b"master_replid:%b",
        b"master_replid2:" + b"0" * 40,
        b"second_repl_offset:-1",
        b"evicted_keys:0",
        b"cmdstat_info:calls=1",
        b"cmdstat_flushall:calls=%d",
        b"",
    ]
)


class Client(Protocol):
    """One end of a connection, which can be told what it has not asked for."""

    def push(self, data: bytes) -> None:
        """Send this, in order with the replies."""


class MemoryProcess(MemoryData):
    """A server process and its data: all that scripts reach by Lua's `redis.call`.

    Args:
        clients: tells how many are connected.
        clock: its wall clock.
        new_identity: draws a name for each process.
    """

    def __init__(
        self, clients: Callable[[], int], *, clock: NodeClock, new_identity: Callable[[], str]
    ) -> None:
        super().__init__(clock)
        self._clients = clients
        self._new_identity = new_identity
        self._channels: dict[bytes, dict[Client, None]] = {}
        """The listeners of a channel: first come, first told."""
        self._listening: dict[Client, dict[bytes, None]] = {}
        """To what a client listens."""
        MemoryProcess.new_process(self)

    def new_process(self) -> None:
        """Have another identity, and no past: what a restart changes besides the data."""
        self.run_id, self.replid = self._new_identity(), self._new_identity()
        self._flushes = 0
        self._started: float | None = None
        with contextlib.suppress(RuntimeError):  # no loop runs: it is started when it is first asked
            self._started = self.clock.now()

    def flush(self) -> None:
        """Do ``FLUSHALL``."""
        self.flush_all()
        self._flushes += 1

    def info(self) -> bytes:
        """Return all that ``INFO`` tells."""
        now = self.clock.now()
        self._started = now if self._started is None else self._started
        identity = self.run_id.encode(), self.replid.encode()
        return _INFO % (int(now) - int(self._started), self._clients(), *identity, self._flushes)

    # -- channels ------------------------------------------------------------------------------

    def publish(self, channel: bytes, message: bytes) -> int:
        """Tell all listeners of a channel; return how many they are.

        A client that publishes and listens is told before the reply, as by Redis 7.0; later ones tell it
        behind it.
        """
        clients = self._channels.get(channel, {})
        for client in clients:
            client.push(encode(Push((b"message", channel, message))))
        return len(clients)

    def subscribe(self, client: Client, channel: bytes) -> Push:
        """Have a client told what is published on a channel; return what confirms that."""
        self._channels.setdefault(channel, {})[client] = None
        listening = self._listening.setdefault(client, {})
        listening[channel] = None
        return Push((b"subscribe", channel, len(listening)))

    def unsubscribe(self, client: Client, channel: bytes) -> Push:
        """Take that back, if it was so."""
        listening = self._listening.get(client, {})
        if channel in listening:
            del listening[channel], self._channels[channel][client]
            if not self._channels[channel]:
                del self._channels[channel]
        return Push((b"unsubscribe", channel, len(listening)))

    def hang_up(self, client: Client) -> None:
        """Forget a client whose connection has ended."""
        for channel in list(self._listening.get(client, ())):
            self.unsubscribe(client, channel)
        self._listening.pop(client, None)

    def listening(self, channel: bytes) -> int:
        """Return how many listen to a channel."""
        return len(self._channels.get(channel, ()))

    def listeners(self, channels: list[bytes]) -> list[bytes | int]:
        """Do ``PUBSUB NUMSUB``."""
        counts = [(channel, self.listening(channel)) for channel in channels]
        return [part for pair in counts for part in pair]
