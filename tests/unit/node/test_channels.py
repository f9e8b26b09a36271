"""What one node listens to: told to the server in every order of events, forgotten when it is not wanted."""

from __future__ import annotations

import random

import pytest

from aioredlock_ng._core.command import Command, Reply, Silence, Sink
from aioredlock_ng._node.channels import MAX_CHANNELS, SENT_AT_ONCE, Channels, is_refusal, listening
from aioredlock_ng._node.link import heartbeat
from aioredlock_ng._node.packing import words
from aioredlock_ng._node.pipe import PUSH

A, B = b"redlock:a", b"redlock:b"


class Server:
    """A connection that can be full or away, and the server behind it, which answers when it is told to."""

    def __init__(self) -> None:
        self.channels = Channels(self._send)
        self.sent: list[tuple[Command, Sink]] = []
        self.room = True
        self.listening: set[bytes] = set()
        """To what this connection is subscribed, by what the server has executed."""
        self.refuses = ""
        """The error that it answers with, if any."""

    def _send(self, command: Command, sink: Sink) -> bool:
        if self.room:
            self.sent.append((command, sink))
        return self.room

    @property
    def words(self) -> list[tuple[bytes, ...]]:
        """What waits for its answer."""
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


def test_a_subscription_stands_once_it_is_confirmed(server: Server) -> None:
    """Until then what is published may not be heard."""
    server.channels.add(A)
    assert server.words == [(b"SUBSCRIBE", A)]
    assert not server.channels.stands(A)
    server.answer()
    assert server.channels.stands(A)
    assert not server.channels.stands(B)


def test_a_subscription_is_sent_once(server: Server) -> None:
    """The next listener has it already, confirmed or not."""
    server.channels.add(A)
    server.channels.add(A)
    server.answer()
    server.channels.add(A)
    assert server.sent == []
    assert server.channels.stands(A)


def test_what_is_removed_is_forgotten_once_the_server_has_done_so(server: Server) -> None:
    """It does not stand from the moment that it is removed."""
    server.channels.add(A)
    server.answer()
    server.channels.remove(A)
    assert not server.channels.stands(A)
    assert not server.channels.wants(A)
    assert server.words == [(b"UNSUBSCRIBE", A)]
    assert len(server.channels) == 1
    server.answer()
    assert len(server.channels) == 0
    server.channels.remove(A)
    assert server.sent == []


def test_the_last_word_counts(server: Server) -> None:
    """In and out again while answers are on their way: it stands when the last command is confirmed."""
    for _ in range(3):
        server.channels.add(A)
        server.channels.remove(A)
    server.channels.add(A)
    for _ in range(6):
        server.answer()
        assert not server.channels.stands(A)
    server.answer()
    assert server.channels.stands(A)


def test_a_new_connection_is_told_all_that_is_wanted(server: Server) -> None:
    """And until it has confirmed that, nothing stands; what was not wanted any more is forgotten."""
    for channel in (A, B):
        server.channels.add(channel)
    server.answer(2)
    server.channels.remove(A)
    server.break_()
    assert not server.channels.stands(B)
    assert len(server.channels) == 1
    assert server.sent == []
    server.channels.send_unsent()
    assert server.words == [(b"SUBSCRIBE", B)]
    server.answer()
    assert server.channels.stands(B)
    server.channels.send_unsent()
    assert server.sent == []


def test_what_finds_no_room_is_sent_later(server: Server) -> None:
    """Both ways; what is taken back before it could be sent is not sent at all."""
    server.room = False
    server.channels.add(A)
    server.channels.add(B)
    server.channels.remove(B)
    assert len(server.channels) == 1
    server.room = True
    server.channels.send_unsent()
    assert server.words == [(b"SUBSCRIBE", A)]
    server.answer()
    server.room = False
    server.channels.remove(A)
    assert not server.channels.stands(A)
    server.room = True
    server.channels.send_unsent()
    assert server.words == [(b"UNSUBSCRIBE", A)]
    server.answer()
    assert len(server.channels) == 0


def test_what_still_stands_need_not_be_sent_again(server: Server) -> None:
    """Taken back, without room to say so, and wanted again: the server has never heard of it."""
    server.channels.add(A)
    server.answer()
    server.room = False
    server.channels.remove(A)
    server.channels.add(A)
    server.room = True
    server.channels.send_unsent()
    assert server.sent == []
    assert server.channels.stands(A)


def test_a_refusal_is_taken_for_the_connections_life(server: Server) -> None:
    """Without the right to subscribe nothing stands, and nothing is asked until the next connection."""
    server.refuses = "NOPERM this user has no permissions"
    server.channels.add(A)
    server.answer()
    for _ in range(3):
        server.channels.send_unsent()
        server.channels.add(A)
    assert server.sent == []
    assert not server.channels.stands(A)
    server.refuses = ""
    server.break_()
    server.channels.send_unsent()
    server.answer()
    assert server.channels.stands(A)


@pytest.mark.parametrize("words", ["NOPERM this user has no permissions", "ERR unknown command 'subscribe'"])
def test_what_was_refused_need_not_be_taken_back(server: Server, words: str) -> None:
    """It is forgotten at once; a later listener finds out what is allowed by then."""
    server.refuses = words
    server.channels.add(A)
    server.answer()
    server.channels.remove(A)
    assert server.sent == []
    assert len(server.channels) == 0
    server.refuses = ""
    server.channels.add(A)
    server.answer()
    assert server.channels.stands(A)


def test_an_error_that_passes_is_answered_by_asking_again(server: Server) -> None:
    """A server that is busy with a script takes no subscription; at the next look it may."""
    server.refuses = "BUSY Redis is busy running a script."
    server.channels.add(A)
    server.answer()
    assert server.sent == []
    server.refuses = ""
    server.channels.send_unsent()
    assert server.words == [(b"SUBSCRIBE", A)]
    server.answer()
    assert server.channels.stands(A)


@pytest.mark.parametrize(("words", "again"), [("NOPERM this user", []), ("BUSY", [(b"UNSUBSCRIBE", A)])])
def test_what_could_not_be_taken_back_stands(
    server: Server, words: str, again: list[tuple[bytes, ...]]
) -> None:
    """It is not heard, but a new listener has it without asking."""
    server.channels.add(A)
    server.answer()
    server.refuses = words
    server.channels.remove(A)
    server.answer()
    assert not server.channels.stands(A)
    assert not server.channels.wants(A)
    server.channels.add(A)
    assert server.channels.stands(A)
    server.channels.remove(A)
    server.channels.send_unsent()
    assert server.words == again


def test_without_room_one_channel_is_tried_at_each_look(server: Server) -> None:
    """One that cannot be sent is enough to know; the next look begins with another."""
    server.room = False
    for channel in (A, B):
        server.channels.add(channel)
    tried: list[tuple[bytes, ...]] = []
    server.channels._send = lambda command, _: bool(tried.append(words(command)))
    for _ in range(3):
        server.channels.send_unsent()
    assert tried == [(b"SUBSCRIBE", A), (b"SUBSCRIBE", B), (b"SUBSCRIBE", A)]


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


def test_a_new_connection_is_not_flooded(server: Server) -> None:
    """Many subscriptions leave in several looks."""
    for number in range(2 * SENT_AT_ONCE + 1):
        server.channels.add(b"redlock:%d" % number)
    server.break_()
    for expected in (SENT_AT_ONCE, SENT_AT_ONCE, 1, 0):
        server.channels.send_unsent()
        assert len(server.sent) == expected
        server.answer(expected)


@pytest.mark.parametrize(
    "reply",
    [
        PUSH([b"subscribe", B, 1]),
        PUSH([b"unsubscribe", A, 0]),
        PUSH([b"message", A, b""]),
        PUSH([]),
        [b"subscribe", A, 1],
        b"OK",
        1,
        None,
    ],
    ids=repr,
)
def test_nothing_but_its_own_confirmation_fits(server: Server, reply: object) -> None:
    """The confirmation is the reply, and takes its turn (R15)."""
    server.channels.add(A)
    command, _ = server.sent[0]
    assert not command.fits(reply)
    assert command.fits(PUSH([b"subscribe", A, 17]))


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
        match chance.randrange(13):
            case 0 | 1 | 2:
                server.channels.add(name)
                wanted.add(name)
            case 3 | 4 | 5:
                server.channels.remove(name)
                wanted.discard(name)
            case 6:
                server.break_()
            case 7:
                server.room = not server.room
            case 8:
                server.channels.send_unsent()
            case 9:
                server.refuses = "" if server.refuses else chance.choice(errors)
            case _:
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


@pytest.mark.parametrize(
    ("command", "message", "refused"),
    [
        (listening(b"SUBSCRIBE", A), "NOPERM no permissions", True),
        (listening(b"UNSUBSCRIBE", A), "NOPERM no permissions", True),
        (listening(b"SUBSCRIBE", A), "ERR unknown command", True),
        (listening(b"SUBSCRIBE", A), "LOADING the data set", False),
        (heartbeat(b"x"), "NOPERM no permissions", False),
        (heartbeat(b"x"), "ERR unknown command", False),
    ],
    ids=lambda value: words(value)[0].decode() if isinstance(value, Command) else None,
)
def test_only_a_subscription_can_be_refused_for_good(command: Command, message: str, refused: bool) -> None:
    """An error of another command, or one that passes, does not keep a node from being listened to (R13)."""
    assert is_refusal(command, message) is refused
