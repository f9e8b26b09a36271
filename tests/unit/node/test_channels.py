"""Subscriptions of one node: made in every order of events, forgotten when they are not wanted."""

from __future__ import annotations

import random

import pytest

from aioredlock_ng._core.command import Command, Receiver, Reply, Silence
from aioredlock_ng._node.channels import MAX_CHANNELS, Channels
from aioredlock_ng._node.pipe import PUSH, words

A, B = b"A", b"B"


class Server:
    """A connection that can be full or away, and the server behind it, which answers on request."""

    def __init__(self) -> None:
        self.channels = Channels(self._send)
        self.sent: list[tuple[Command, Receiver]] = []
        self.room = True
        self.listening: set[bytes] = set()
        """To what this connection is subscribed, by what the server has executed."""
        self.refuses = ""
        """The error that it answers with, if any."""

    def _send(self, command: Command, sink: Receiver) -> bool:
        if self.room:
            self.sent.append((command, sink))
        return self.room

    @property
    def words(self) -> list[tuple[bytes, ...]]:
        """The commands that wait for an answer."""
        return [words(command) for command, _ in self.sent]

    def answer(self, count: int = 1) -> None:
        """Execute and confirm the oldest commands."""
        for _ in range(count):
            command, sink = self.sent.pop(0)
            verb, channel = words(command)
            if self.refuses:
                sink.on_reply(0, Silence(self.refuses))
                continue
            (self.listening.add if verb == b"SUBSCRIBE" else self.listening.discard)(channel)
            confirmation: Reply = PUSH([verb.lower(), channel, len(self.listening)])
            assert command.fits(confirmation)
            sink.on_reply(0, confirmation)

    def break_(self) -> None:
        """Lose the connection: nothing that was sent is answered."""
        lost, self.sent = self.sent, []
        self.listening.clear()
        self.channels.disconnected()
        for _, sink in lost:
            sink.on_reply(0, Silence("connection lost"))


@pytest.fixture
def server() -> Server:
    """Give a connection with nothing on it."""
    return Server()


STORIES = {
    "a subscription stands once it is confirmed": "add A, sent SUBSCRIBE A, hears, answer 1, hears A",
    "a subscription is sent once": "add A, add A, answer 1, add A, sent, hears A",
    "what is removed does not stand, and is forgotten once the server has done so": (
        "add A, answer 1, remove A, hears, sent UNSUBSCRIBE A, knows 1, answer 1, knows 0, remove A, sent"
    ),
    "the last word counts, in and out again while answers are on their way": (
        "add A, remove A, add A, remove A, add A, answer 4, hears, answer 1, hears A"
    ),
    "a new connection gets what is wanted, and nothing stands before it has confirmed that": (
        "add A, add B, answer 2, remove A, break, hears, knows 1, sent, look, sent SUBSCRIBE B, answer 1, "
        "hears B, look, sent"
    ),
    "what finds no room is sent later, unless it is taken back before": (
        "full, add A, add B, remove B, knows 1, room, look, sent SUBSCRIBE A, answer 1, full, remove A, "
        "hears, room, look, sent UNSUBSCRIBE A, answer 1, knows 0"
    ),
    "what still stands need not be sent again": (
        "add A, answer 1, full, remove A, add A, room, look, sent, hears A"
    ),
    "a refusal is taken for the connection's life": (
        "refuses NOPERM, add A, answer 1, look, add A, sent, hears, allows, break, look, answer 1, hears A"
    ),
    "what was refused need not be taken back": (
        "refuses NOPERM, add A, answer 1, remove A, sent, knows 0, allows, add A, answer 1, hears A"
    ),
    "a command that is unknown is refused like one that is forbidden": (
        "refuses ERR unknown command, add A, answer 1, remove A, sent, knows 0, look, sent"
    ),
    "an error that passes is answered by asking again": (
        "refuses BUSY, add A, answer 1, sent, allows, look, sent SUBSCRIBE A, answer 1, hears A"
    ),
    "what may not be taken back stands, and is not tried again": (
        "add A, answer 1, refuses NOPERM, remove A, answer 1, hears, add A, hears A, remove A, look, sent"
    ),
    "what could not be taken back for now stands, and is tried again": (
        "add A, answer 1, refuses BUSY, remove A, answer 1, hears, add A, hears A, remove A, look, "
        "sent UNSUBSCRIBE A"
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_stories(server: Server, story: str) -> None:
    """Step by step: the commands in flight, the channels that are heard, and the number that is known."""
    for step in STORIES[story].split(", "):
        match step.split():
            case ["add" | "remove" as what, name]:
                getattr(server.channels, what)(name.encode())
            case ["look" | "break" as what]:
                {"look": server.channels.send_unsent, "break": server.break_}[what]()
            case ["answer", number]:
                server.answer(int(number))
            case ["full" | "room" as what]:
                server.room = what == "room"
            case ["refuses" | "allows", *error]:
                server.refuses = " ".join(error)
            case ["sent", *command]:
                assert server.words == [tuple(map(str.encode, command))] * bool(command), step
            case ["hears", *names]:
                assert [name for name in "AB" if server.channels.stands(name.encode())] == names, step
            case ["knows", number]:
                assert len(server.channels) == int(number), step
            case _:
                pytest.fail(step)


def test_there_is_a_limit(server: Server) -> None:
    """One more is not heard, and takes no place; one that leaves makes room."""
    names = [b"redlock:%d" % number for number in range(MAX_CHANNELS + 1)]
    for name in names:
        server.channels.add(name)
    assert len(server.sent) == len(server.channels) == MAX_CHANNELS
    server.answer(MAX_CHANNELS)
    assert [server.channels.stands(name) for name in names[-2:]] == [True, False]
    server.channels.remove(names[0])
    server.answer()
    server.channels.add(names[-1])
    server.answer()
    assert server.channels.stands(names[-1])


@pytest.mark.parametrize("seed", range(50))
def test_in_every_order_what_stands_is_true_and_what_is_wanted_comes_to_stand(seed: int) -> None:
    """Random wishes, answers, errors, breaks and shortages: the server agrees whenever a channel is said to
    stand, and in the end with all that is wanted.
    """
    chance, server = random.Random(seed), Server()
    wanted: set[bytes] = set()
    names = [b"redlock:%d" % number for number in range(4)]
    errors = ["BUSY"] if seed % 2 else ["BUSY", "NOPERM"]
    for _ in range(400):
        name = chance.choice(names)
        draw = chance.randrange(13)
        if draw < 3:
            server.channels.add(name)
            wanted.add(name)
        elif draw < 6:
            server.channels.remove(name)
            wanted.discard(name)
        elif draw == 6:
            server.break_()
        elif draw == 7:
            server.room = not server.room
        elif draw == 8:
            server.channels.send_unsent()
        elif draw == 9:
            server.refuses = "" if server.refuses else chance.choice(errors)
        else:
            server.answer(min(1, len(server.sent)))
        assert {one for one in names if server.channels.wants(one)} == wanted
        standing = {one for one in names if server.channels.stands(one)}
        assert standing <= server.listening & wanted
        assert not standing & {channel for _, channel in server.words}
    server.room, server.refuses = True, ""
    if "NOPERM" in errors:
        server.break_()  # the next connection has the right
    for _ in range(2):  # the first may tell what the errors left open
        server.answer(len(server.sent))
        server.channels.send_unsent()
    server.answer(len(server.sent))
    assert {one for one in names if server.channels.stands(one)} == server.listening == wanted
    assert len(server.channels) == len(wanted)
