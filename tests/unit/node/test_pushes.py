"""Pushes of a server between the replies of a pipe (rules R13, R15).  No I/O."""

from __future__ import annotations

import pytest

from aioredlock_ng._core.command import Command, Purpose, Silence
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.channels import Channels
from aioredlock_ng._node.link import heartbeat
from aioredlock_ng._node.pipe import REQUEST_IDS, DesynchronisedError, Pipe
from tests.unit.node.test_pipe import raised

A, B = b"redlock:a", b"redlock:b"
OWNER = b"0123456789abcdef0123456789abcdef01234567:host:1"
NAME = Primitive(MUTEX, ("a",), (A,))
ANYTHING = Command(Purpose.OTHER, owner=b"", fits=lambda _: True, keys=(), verb=b"INFO")


class Recorder:
    """A sink that writes down the answers that it gets."""

    awaited = True

    def __init__(self, told: list[object]) -> None:
        self.told = told

    def on_reply(self, node: int, reply: object) -> None:
        """Write it down."""
        self.told.append(reply)


class Listening:
    """A pipe whose server pushes, and all that it hands over, in order."""

    def __init__(self) -> None:
        self.told: list[object] = []
        """Replies as they are, notices as texts, failures as pairs."""
        self.pipe = Pipe(lambda entry, text: self.told.append((entry[0].verb, text)), lambda: None, raised)
        self.pipe.on_notice = lambda channel, _: self.told.append(channel.decode())
        self.channels = Channels(lambda command, sink: self.pipe.put(command, sink, 0))

    def put(self, command: Command) -> None:
        """Put a command."""
        assert self.pipe.put(command, Recorder(self.told), 0)


@pytest.fixture
def it() -> Listening:
    """Give an empty pipe."""
    return Listening()


def push(kind: bytes, *parts: bytes | int) -> bytes:
    """Return a push as a server sends it."""
    texts = [
        b":%d\r\n" % part if isinstance(part, int) else b"$%d\r\n%b\r\n" % (len(part), part) for part in parts
    ]
    return b">%d\r\n$%d\r\n%b\r\n" % (len(parts) + 1, len(kind), kind) + b"".join(texts)


def message(channel: bytes) -> bytes:
    """Return a message on a channel."""
    return push(b"message", channel, b"")


# -- notices -------------------------------------------------------------------------------------------


STREAM = (
    push(b"subscribe", A, 1),
    b"+OK\r\n",
    push(b"unsubscribe", A, 0),
    b"_\r\n",
    b"-OOM command not allowed\r\n",
    b"*4\r\n$3\r\n%b\r\n:1\r\n:0\r\n:2\r\n" % REQUEST_IDS[6],
)


def put_stream(it: Listening) -> None:
    """Put the commands that STREAM answers."""
    it.channels.add(A)
    it.put(NAME.acquire(OWNER, 1.0))
    it.channels.remove(A)
    it.put(NAME.acquire(OWNER, 1.0))
    it.put(NAME.acquire(OWNER, 1.0))
    it.put(NAME.release(OWNER, 1.0))


REPLIES = [b"OK", None, (b"SET", "OOM command not allowed"), Silence("OOM command not allowed"), [1, 0, 2]]


@pytest.mark.parametrize("place", range(len(STREAM) + 1))
@pytest.mark.parametrize("number", [1, 3])
def test_notices_come_before_between_and_behind_replies(place: int, number: int) -> None:
    """Wherever they are, every command gets its own reply, once."""
    it = Listening()
    put_stream(it)
    parts = list(STREAM)
    parts[place:place] = [message(B)] * number
    it.pipe.feed(b"".join(parts))
    assert [one for one in it.told if one != "redlock:b"] == REPLIES
    assert it.told.count("redlock:b") == number
    assert len(it.pipe) == 0
    assert it.pipe.answered == len(STREAM)


# -- confirmations -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "confirmation",
    [push(b"subscribe", A, 1), push(b"unsubscribe", A, 0), push(b"subscribe", B, 1), b">1\r\n+subscribe\r\n"],
    ids=repr,
)
@pytest.mark.parametrize("head", [None, ANYTHING, heartbeat(b"x")], ids=["nothing", "anything", "a ping"])
def test_a_confirmation_of_nothing_drops_the_connection(
    it: Listening, confirmation: bytes, head: Command | None
) -> None:
    """It never counts as the reply of another command, not even of one that takes any (R15)."""
    if head is not None:
        it.put(head)
    it.channels.add(A)  # its turn has not come, where there is one before it
    if head is None:
        it.pipe.feed(push(b"subscribe", A, 1))
    with pytest.raises(DesynchronisedError):
        it.pipe.feed(confirmation)
    assert it.told == []
    assert [command for command, _, _ in it.pipe.abandon()][:1] == ([head] if head else [])


@pytest.mark.parametrize("allowed", [True, False])
def test_an_answer_to_a_subscription_takes_its_turn_among_the_replies(it: Listening, allowed: bool) -> None:
    """It is the answer to the command that subscribed, and to no other; so is an error, which refuses it."""
    it.put(heartbeat(b"x"))
    it.channels.add(A)
    it.put(heartbeat(b"y"))
    it.pipe.feed(b"$1\r\nx\r\n")
    assert not it.channels.stands(A)
    it.pipe.feed(push(b"subscribe", A, 1) if allowed else b"-NOPERM no permissions\r\n")
    assert it.channels.stands(A) is allowed
    it.pipe.feed(message(A) + b"$1\r\ny\r\n")
    assert it.told == [
        b"x",
        *([] if allowed else [(b"SUBSCRIBE", "NOPERM no permissions")]),
        "redlock:a",
        b"y",
    ]
