"""The pipe: commands in, bytes out; bytes in, replies to their callers (rule R15).  No I/O."""

from __future__ import annotations

from types import SimpleNamespace

import hiredis
import pytest

from aioredlock_ng._admin.look import look_for
from aioredlock_ng._core.command import Command, Purpose, Silence
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._lock.holding import Repair
from aioredlock_ng._node.link import heartbeat
from aioredlock_ng._node.pipe import (
    MAX_IN_FLIGHT,
    REQUEST_IDS,
    RESERVED_FOR_EXTENSIONS,
    RESERVED_FOR_RELEASES,
    DesynchronisedError,
    Pipe,
    without_secrets,
    words,
)

OWNER = b"0123456789abcdef0123456789abcdef01234567:host:1"
OTHER = b"fedcba9876543210fedcba9876543210fedcba98:host:2"
ONE = Primitive(MUTEX, ("a",), (b"redlock:a",))
TWO = Primitive(MUTEX, ("a", "b"), (b"redlock:a", b"redlock:b"))
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


class Recorder:
    """A sink that writes down the answers that it gets."""

    def __init__(self, *, awaited: bool = True) -> None:
        self.awaited = awaited
        self.replies: list[tuple[int, object]] = []

    def on_reply(self, node: int, reply: object) -> None:
        """Write it down."""
        self.replies.append((node, reply))

    @property
    def reply(self) -> object:
        """The only reply."""
        ((_, reply),) = self.replies
        return reply


def raised(error: DesynchronisedError) -> None:
    """Raise what a pipe reports of a reply that cannot belong to its request."""
    raise error


class Watched:
    """A pipe together with the failures that it reported."""

    def __init__(self) -> None:
        self.failures: list[tuple[object, str]] = []
        self.pipe = Pipe(lambda entry, message: self.failures.append((entry, message)), lambda: None, raised)

    def put(self, command: Command, *, awaited: bool = True, index: int = 0) -> Recorder:
        """Put a command and return its sink."""
        sink = Recorder(awaited=awaited)
        assert self.pipe.put(command, sink, index)
        return sink

    def sent(self) -> list[tuple[bytes, ...]]:
        """Take the bytes to be written, as commands."""
        reader = hiredis.Reader()
        reader.feed(self.pipe.take())
        commands = []
        while (words := reader.gets()) is not False:
            commands.append(tuple(words))
        return commands


@pytest.fixture
def watched() -> Watched:
    """Give an empty pipe."""
    return Watched()


def tagged(number: int, answer: bytes) -> bytes:
    """Return a script's answer, with the tag of the command of that number on its connection (from 1)."""
    count, rest = 1, answer
    if answer.startswith(b"*"):
        head, _, rest = answer[1:].partition(b"\r\n")
        count = int(head)
    return b"*%d\r\n$3\r\n%b\r\n%b" % (count + 1, REQUEST_IDS[number], rest)


def echo(number: int) -> Command:
    """Build a command whose reply is any integer."""
    return Command(
        Purpose.OTHER, owner=b"", fits=lambda it: isinstance(it, int), keys=(b"key:%d" % number,), verb=b"DEL"
    )


def scripted(purpose: str, owner: bytes = OWNER) -> Command:
    """Build the script of two names for `purpose`."""
    if purpose == "release":
        return TWO.release(owner, 10.0)
    return getattr(TWO, purpose)(owner, 10.0)


# -- bytes in, replies out -----------------------------------------------------------------------


STREAM = (
    b"+OK\r\n$-1\r\n"
    + tagged(3, b":-1\r\n")
    + tagged(4, b"*3\r\n:1\r\n:0\r\n:0\r\n")
    + tagged(5, b"*3\r\n$6\r\nab\r\ncd\r\n:42\r\n$-1\r\n")
    + b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
    + b":7\r\n"
)


def put_stream(watched: Watched) -> list[Recorder]:
    """Put the commands that STREAM answers."""
    look = look_for(b"redlock:", b"redlock:a")
    commands = [ONE.acquire(OWNER, 1.0), ONE.acquire(OTHER, 1.0), scripted("extend")]
    commands += [scripted("release"), look, ONE.acquire(OTHER, 1.0), echo(0)]
    return [watched.put(command) for command in commands]


EXPECTED = [
    b"OK", None, -1, [1, 0, 0], [b"ab\r\ncd", 42, None],
    Silence("OOM command not allowed when used memory > 'maxmemory'."), 7,
]  # fmt: skip


def test_a_late_reply_goes_to_its_own_sink_and_not_to_the_next(watched: Watched) -> None:
    """A caller that has stopped waiting keeps its place in the queue, so that no other gets its reply."""
    gave_up = watched.put(echo(0), awaited=False)
    waits = watched.put(echo(1))
    watched.pipe.feed(b":100\r\n")
    assert gave_up.replies == [(0, 100)]
    assert waits.replies == []
    watched.pipe.feed(b":200\r\n")
    assert waits.replies == [(0, 200)]


# -- what cannot be trusted ----------------------------------------------------------------------

INSPECTION = look_for(b"redlock:", b"redlock:a", b"redlock:b")
WRONG_SHAPES = [
    pytest.param(command, reply, id=f"{name}-{reply.decode()}")
    for name, command, replies in (
        ("set", ONE.acquire(OWNER, 1.0), (b":1", b"+PONG", b"*0", b"#f")),
        ("acquire", scripted("acquire"), (b"+OK", b"$-1")),
        ("extend", scripted("extend"), (b"+OK", b"*2\r\n:1\r\n:0", b"$-1")),
        ("repair", scripted("repair"), (b"+OK",)),
        ("release", scripted("release"), (
            b":1", b"$-1", b"*0", b"*1\r\n:1", b"*2\r\n:1\r\n:0", b"*2\r\n$1\r\nx\r\n:7",
            b"*2\r\n$-1\r\n:-2", b"*3\r\n:1\r\n$-1\r\n:0", b"*3\r\n-ERR x\r\n:0\r\n:0",
        )),
        ("inspect", INSPECTION, (b"+OK", b"*3\r\n:1\r\n:0\r\n:0", b"*2\r\n$1\r\nx\r\n$1\r\ny")),
        ("ping", heartbeat(b"nonce"), (b"+PONG", b"$5\r\nother")),
    )
    for reply in replies
]  # fmt: skip


@pytest.mark.parametrize(("command", "reply"), WRONG_SHAPES)
def test_a_reply_of_the_wrong_shape_counts_nothing(watched: Watched, command: Command, reply: bytes) -> None:
    """It belongs to another command, so the connection is desynchronised and its command unanswered.  What
    came before it counts; the message, which may end in a log, names no owner (A5).
    """
    before, sink, behind = watched.put(echo(0)), watched.put(command), watched.put(echo(1))
    reply += b"\r\n"
    if command.script is not None:
        reply = tagged(2, reply)
    with pytest.raises(DesynchronisedError, match="cannot belong to") as caught:
        watched.pipe.feed(b":5\r\n" + reply + b":1\r\n")
    assert before.reply == 5
    assert sink.replies == behind.replies == []
    assert [sink for _, sink, _ in watched.pipe.abandon()] == [sink, behind]
    assert OWNER[:40].decode() not in str(caught.value)
    assert command.keys == () or repr(command.keys[0]) in str(caught.value)


def test_abandoning_returns_the_unanswered_oldest_first_and_nothing_leaves(watched: Watched) -> None:
    """Commands that were never written are forgotten with the rest."""
    sinks = [watched.put(echo(i), index=i) for i in range(3)]
    watched.pipe.feed(b":0\r\n")
    abandoned = watched.pipe.abandon()
    assert [(sink, node) for _, sink, node in abandoned] == [(sinks[1], 1), (sinks[2], 2)]
    assert watched.pipe.take() == b""
    assert len(watched.pipe) == 0


# -- bounds --------------------------------------------------------------------------------------


def test_commands_in_flight_are_bounded(watched: Watched) -> None:
    """Beyond the bound only releases have room, then only extensions; theirs is bounded too.  An answer makes
    room, and one that has a command repeated gives it its place.
    """
    sink, bound = Recorder(), MAX_IN_FLIGHT
    acquire, release, extend = ONE.acquire(OWNER, 1.0), ONE.release(OWNER, 1.0), ONE.extend(OWNER, 1.0)
    assert watched.pipe.put(scripted("acquire", OTHER), sink, 0)
    assert all(watched.pipe.put(acquire, sink, 0) for _ in range(bound - 1))
    assert not watched.pipe.put(scripted("acquire"), sink, 0)
    assert not watched.pipe.put(echo(0), sink, 0)
    assert all(watched.pipe.put(release, sink, 0) for _ in range(RESERVED_FOR_RELEASES))
    assert not watched.pipe.put(release, sink, 0)
    assert watched.pipe.put(ONE.repair(OWNER, 1.0), sink, 0)
    assert all(watched.pipe.put(extend, sink, 0) for _ in range(RESERVED_FOR_EXTENSIONS - 1))
    assert not watched.pipe.put(extend, sink, 0)
    whole = bound + RESERVED_FOR_RELEASES + RESERVED_FOR_EXTENSIONS
    assert len(watched.pipe) == len(watched.sent()) == whole
    watched.pipe.feed(NOSCRIPT)
    assert (len(watched.pipe), sink.replies) == (whole, [])
    watched.pipe.feed(b"+OK\r\n")
    assert watched.pipe.put(extend, sink, 0)
    assert not watched.pipe.put(extend, sink, 0)


# -- NOSCRIPT ------------------------------------------------------------------------------------


@pytest.mark.parametrize("awaited", [True, False])
def test_a_release_goes_again_in_full(watched: Watched, awaited: bool) -> None:
    """A release that met NOSCRIPT is always sent once more, and its caller notices nothing."""
    command = scripted("release")
    sink = watched.put(command, awaited=awaited)
    watched.pipe.take()
    watched.pipe.feed(NOSCRIPT)
    assert watched.sent() == [(*words(command, in_full=True), REQUEST_IDS[2])]
    assert sink.replies == watched.failures == []
    watched.pipe.feed(tagged(2, b"*3\r\n:2\r\n:0\r\n:0\r\n"))
    assert sink.reply == [2, 0, 0]


@pytest.mark.parametrize("purpose", ["acquire", "extend", "repair"])
@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("queued", [None, OTHER, OWNER], ids=["nothing", "other's release", "own release"])
def test_anything_else_goes_again_only_while_it_is_waited_for(
    watched: Watched, purpose: str, awaited: bool, queued: bytes | None
) -> None:
    """It is sent once more while its round is awaited and no release of its owner is queued."""
    command = scripted(purpose)
    sink = watched.put(command, awaited=awaited)
    if queued is not None:
        watched.put(scripted("release", queued))
    watched.pipe.take()
    watched.pipe.feed(NOSCRIPT)
    if awaited and queued != OWNER:
        tag = 2 if queued is None else 3
        assert watched.sent() == [(*words(command, in_full=True), REQUEST_IDS[tag])]
        assert sink.replies == watched.failures == []
        if queued is not None:  # in the queue, the release came first
            watched.pipe.feed(tagged(2, b"*3\r\n:0\r\n:0\r\n:0\r\n"))
        watched.pipe.feed(tagged(tag, b":1\r\n"))
        assert sink.reply == 1
    else:
        assert watched.pipe.take() == b""
        assert isinstance(sink.reply, Silence)
        assert sink.reply.reason.startswith("NOSCRIPT")
        assert [entry[1] for entry, _ in watched.failures] == [sink]


@pytest.mark.parametrize("held", [True, False])
def test_a_repair_goes_again_only_while_its_lease_is_held(watched: Watched, held: bool) -> None:
    """One that met NOSCRIPT after the loss would bring keys back, and perhaps no release follows (R9)."""
    lease, command = SimpleNamespace(held=True), scripted("repair")
    watched.pipe.put(command, Repair(lease), 0)
    watched.pipe.take()
    lease.held = held
    watched.pipe.feed(NOSCRIPT)
    assert watched.sent() == ([(*words(command, in_full=True), REQUEST_IDS[2])] if held else [])


def test_repetitions_keep_the_order_of_an_owners_commands(watched: Watched) -> None:
    """A command behind one that met NOSCRIPT follows it again."""
    commands = [scripted("repair"), scripted("extend")]
    sinks = [watched.put(command) for command in commands]
    watched.pipe.take()
    watched.pipe.feed(NOSCRIPT * 2)
    assert watched.sent() == [
        (*words(command, in_full=True), REQUEST_IDS[tag])
        for command, tag in zip(commands, (3, 4), strict=True)
    ]
    watched.pipe.feed(tagged(3, b":0\r\n") + tagged(4, b":1\r\n"))
    assert [sink.reply for sink in sinks] == [0, 1]


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        f"ERR unknown command 'SET', with args beginning with: 'redlock:a' '{OWNER.decode()}' 'NX' 'PX' ",
        f"ERR unknown command 'SET', with args beginning with: 'redlock:a' '{OWNER[:30].decode()}",
        f"ERR no such thing: {OWNER.decode()} (twice: {OWNER.decode()})",
        f"ERR no such thing: {OWNER[:40].decode()}",
        f"ERR {OWNER[:40].decode()}:host\\x3a1 is odd",
    ],
)
def test_an_error_message_never_holds_an_owner_value(watched: Watched, message: str) -> None:
    """Some servers echo the arguments of what they refuse; the random part is a secret (A5)."""
    sink = watched.put(ONE.acquire(OWNER, 1.0))
    watched.pipe.feed(f"-{message}\r\n".encode())
    assert isinstance(sink.reply, Silence)
    assert OWNER[:30].decode() not in sink.reply.reason
    assert sink.reply.reason.startswith("ERR ")
    assert without_secrets("ERR went wrong", echo(0)) == "ERR went wrong", (
        "without an owner, nothing is hidden"
    )
