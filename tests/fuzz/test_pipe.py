"""Whatever a server sends, the pipe and its link take it: right, or as the end of the connection (R15)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioredlock_ng._core.command import Command, Silence
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.channels import listening
from aioredlock_ng._node.link import Link, heartbeat
from aioredlock_ng._node.pipe import REQUEST_IDS
from aioredlock_ng.testing import SimLoop
from tests.fuzz import resp
from tests.fuzz.profile import no_hurry, profile

pytestmark = no_hurry

OWNER = b"0123456789abcdef0123456789abcdef01234567:host:1"
PLAIN = Primitive(MUTEX, ("a",), (b"redlock:a",))
FENCED = Primitive(
    MUTEX, ("a",), (b"redlock:a",), counters=(b"redlock:fence:{redlock:a}",), incarnation=b"redlock:{meta}"
)
ACQUIRE_PLAIN, ACQUIRE = PLAIN.acquire(OWNER, 9.0), FENCED.acquire(OWNER, 9.0, 1)
EXTEND, RELEASE = FENCED.extend(OWNER, 9.0, 1), FENCED.release(OWNER, 9.0, 1)

Asked = tuple[Command, Any]  # a command, and a reply that fits it, as values

integers = st.integers(-(2**63), 2**63 - 1)
asked: st.SearchStrategy[Asked] = st.one_of(
    st.sampled_from([(ACQUIRE_PLAIN, resp.Status(b"OK")), (ACQUIRE_PLAIN, None)]),
    st.tuples(st.just(ACQUIRE), st.lists(integers, min_size=3, max_size=3)),
    st.tuples(st.just(EXTEND), integers),
    st.tuples(st.just(RELEASE), st.lists(integers, min_size=3, max_size=3)),
    st.binary(max_size=9).map(lambda nonce: (heartbeat(nonce), nonce)),
    st.sampled_from([b"SUBSCRIBE", b"UNSUBSCRIBE"]).map(
        lambda verb: (listening(verb, b"redlock:a"), resp.Push([verb.lower(), b"redlock:a", 1]))
    ),
    st.tuples(st.sampled_from([ACQUIRE, EXTEND]), st.just(resp.Error(b"ERR no"))),
)
notices = st.binary(max_size=5).map(lambda name: resp.Push([b"message", name, b""]))


def with_tags(commands: list[Command], replies: list[Any]) -> list[Any]:
    """Have the answers to scripts begin with their tags; what is no answer by its type stays as it is."""
    answered = iter(enumerate(commands, 1))
    received = []
    for reply in replies:
        if isinstance(reply, resp.Push) and reply[:1] == [b"message"]:
            received.append(reply)  # a notice answers no command
        else:
            received.append(tagged(reply, *next(answered, (0, None))))
    return received


def tagged(reply: Any, number: int, command: Command | None) -> Any:
    """Return the answer to the command of that number on its connection."""
    if command is None or command.script is None or isinstance(reply, (resp.Error, resp.Push)):
        return reply
    return [REQUEST_IDS[number], *reply] if type(reply) is list else [REQUEST_IDS[number], reply]


class Wire(asyncio.Transport):
    """The other end of a link: nothing arrives, and what ends is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[str] = []

    def write(self, data: Any) -> None:
        """Drop it."""

    def close(self) -> None:
        """Note it."""
        self.ends.append("close")

    def abort(self) -> None:
        """Note it."""
        self.ends.append("abort")


@dataclass(eq=False)
class Receiver:
    """The sink that waits for one reply."""

    awaited: bool = True
    received: list[Any] = field(default_factory=list)

    def on_reply(self, node: int, reply: object) -> None:
        """Write it down."""
        self.received.append(reply)


class Line:
    """A link with commands in flight, and the replies."""

    def __init__(self, commands: list[Command]) -> None:
        self.wire = Wire()
        self.failures: list[str] = []
        self.notices: list[bytes] = []
        self.link = Link(self.wire, lambda _, message: self.failures.append(message))
        self.link.pipe.on_notice = lambda channel, _: self.notices.append(channel)
        self.sinks = [Receiver(awaited=False) for _ in commands]
        for command, sink in zip(commands, self.sinks, strict=True):
            assert self.link.pipe.put(command, sink, 0)
        self.link.flush()

    def hear(self, pieces: list[bytes]) -> None:
        """Receive these pieces, as a transport does: nothing more once it was aborted."""
        for piece in pieces:
            if not self.wire.ends:
                self.link.data_received(piece)

    def settle(self) -> None:
        """Do what a node does when its connection has ended: answer for all that was in flight."""
        for _, sink, node in self.link.pipe.abandon():
            sink.on_reply(node, Silence("the connection has ended"))

    @property
    def replies(self) -> list[Any]:
        """The reply of each sink, which must be one."""
        assert all(len(sink.received) <= 1 for sink in self.sinks), [sink.received for sink in self.sinks]
        return [sink.received[0] if sink.received else ... for sink in self.sinks]


def on_a_loop(test: Callable[..., None]) -> None:
    """Run a check inside a loop, which a link needs; nothing may end up in the loop's handler."""

    async def main() -> None:
        stray: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
        test()
        await asyncio.sleep(0)
        assert not stray, stray

    SimLoop.run(main())


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Cut a stream at these places."""
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[a:b] for a, b in itertools.pairwise(places)]


@profile(150)
@given(st.lists(st.one_of(asked, asked, notices), max_size=12), st.lists(st.integers(0, 2000), max_size=30))
def test_valid_streams_are_taken_however_they_are_cut(said: list[Any], cuts: list[int]) -> None:
    """Replies, errors, confirmations and notices between them reach the sinks they are for, each once."""

    def check() -> None:
        talk = [one for one in said if isinstance(one, tuple)]
        commands = [command for command, _ in talk]
        line = Line(commands)
        replies = with_tags(commands, [one[1] if isinstance(one, tuple) else one for one in said])
        stream = b"".join(map(resp.encode, replies))
        line.hear(pieces_of(stream, cuts))
        assert line.replies == [resp.decoded(reply) for _, reply in talk]
        assert line.notices == [one[1] for one in said if isinstance(one, resp.Push)]
        assert line.failures == ["ERR no"] * sum(isinstance(reply, resp.Error) for _, reply in talk)
        assert not line.link.mismatched
        assert line.wire.ends == []

    on_a_loop(check)


def takes_it(commands: list[Command], pieces: list[bytes]) -> Line:
    """Have a link hear what it cannot understand: it ends, or waits for more; every sink gets one reply."""
    line = Line(commands)
    line.hear(pieces)
    assert line.link.mismatched == bool(line.wire.ends) == line.link.lost.done()
    assert line.wire.ends in ([], ["abort"]), line.wire.ends
    assert line.link.pipe.closed == bool(line.wire.ends)
    served = [bool(sink.received) for sink in line.sinks]
    assert served == sorted(served, reverse=True), "in order"
    for command, sink in zip(commands, line.sinks, strict=True):
        for reply in sink.received:
            assert isinstance(reply, Silence) or command.fits(reply), (command, reply)
    line.settle()
    assert all(len(sink.received) == 1 for sink in line.sinks)
    return line


commands = st.lists(asked.map(lambda one: one[0]), max_size=6)


@profile(250)
@given(commands, st.lists(resp.values, max_size=8), st.lists(st.integers(0, 500), max_size=6))
@pytest.mark.heavy
def test_any_well_formed_replies_end_in_order(
    commands: list[Command], replies: list[Any], cuts: list[int]
) -> None:
    """Replies too many, of the wrong shape, nested, of RESP3: never an exception, never a wrong match."""
    stream = b"".join(map(resp.encode, with_tags(commands, replies)))
    on_a_loop(lambda: takes_it(commands, pieces_of(stream, cuts)) and None)


@profile(250)
@pytest.mark.heavy
@given(commands, st.lists(asked, max_size=3), resp.garbage, st.lists(st.integers(0, 500), max_size=6))
@example([EXTEND], [], b"*" + b"9" * 400 + b"\r\n", [])
@example([EXTEND], [], b"$-2\r\n", [])
@example([EXTEND], [], b"*1\r\n" * 5000, [3])
def test_garbage_ends_the_connection_or_waits(
    commands: list[Command], before: list[Asked], garbage: bytes, cuts: list[int]
) -> None:
    """Cut off, mangled, endless or random bytes, behind answers that are right: those count, and no other."""

    def check() -> None:
        asked = [command for command, _ in before] + commands
        stream = b"".join(map(resp.encode, with_tags(asked, [reply for _, reply in before]))) + garbage
        line = takes_it(asked, pieces_of(stream, cuts))
        assert line.replies[: len(before)] == [resp.decoded(reply) for _, reply in before]

    on_a_loop(check)


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Let this process have no more than 2 GB more than it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("reply", resp.POISON.values(), ids=resp.POISON)
def test_what_the_parser_chokes_on_ends_the_connection(reply: bytes) -> None:
    """Maps whose keys cannot be keys, and arrays beyond all memory, are garbage like any other."""

    def check() -> None:
        with little_memory():
            line = takes_it([EXTEND, RELEASE], [reply])
        assert line.link.mismatched
        assert all(isinstance(received, Silence) for [received] in (sink.received for sink in line.sinks))

    on_a_loop(check)
