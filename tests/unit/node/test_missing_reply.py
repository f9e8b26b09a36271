"""A reply is taken out of a pipeline: those behind it are taken for no other's, not even once (R15, N13)."""

from __future__ import annotations

from typing import Any, Final

import hiredis
import pytest

from aioredlock_ng._admin.look import look_for
from aioredlock_ng._core.command import Command, Proof, Silence
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.greeting import _fits_incarnation
from aioredlock_ng._node.link import heartbeat
from aioredlock_ng._node.pipe import DesynchronisedError, Pipe
from aioredlock_ng._node.probe import Probe
from aioredlock_ng.testing import MemoryNode
from tests.unit.node.test_pipe import Recorder, raised

OURS, THEIRS = (b"%040x:1700000000000:%b" % (number, label) for number, label in ((1, b"us"), (2, b"them")))
SENTINEL: Final = b"redlock:{meta}"
EXPECTED: Final = b"1:somebody:0:0:5:0:0:use:us"
NAMES: Final = ("free", "taken", "ours", "free too", "ours too", "taken too")


def mutex(name: str, *, fenced: bool) -> Primitive:
    """Return the primitive of one name."""
    key = b"redlock:" + name.encode()
    counters = (b"redlock:fence:{" + key + b"}",) if fenced else ()
    return Primitive(MUTEX, (name,), (key,), counters=counters, incarnation=SENTINEL, fence_ttl=600.0)


def look() -> Command:
    """Build the question that follows a plain vote."""
    command = look_for(b"redlock:", SENTINEL)
    return Command(command.purpose, owner=b"", fits=_fits_incarnation, keys=(SENTINEL,), verb=b"GET")


def fenced_commands() -> list[Command]:
    """Build what one connection carries for several locks, several of a kind behind one another."""
    locks = [mutex(name, fenced=True) for name in NAMES]
    fence = 1 << 50
    return [
        *(lock.acquire(OURS, 10.0, fence) for lock in locks),
        *(lock.extend(OURS, 10.0, fence) for lock in locks),
        *(lock.raise_(OURS, fence) for lock in locks),
        heartbeat(b"nonce"),
        *(lock.repair(OURS, 10.0, fence) for lock in locks),
        *(look_for(b"redlock:", lock.keys[0]) for lock in locks),
        *(lock.release(OURS, 10.0, fence) for lock in locks),
    ]


class Talk:
    """Commands on one connection to a master in memory, and what it answers to each."""

    def __init__(self, commands: list[Command]) -> None:
        node = MemoryNode()
        node.set(SENTINEL, EXPECTED)
        for name in NAMES:
            if not name.startswith("free"):
                node.set(b"redlock:" + name.encode(), OURS if name.startswith("ours") else THEIRS, 30.0)
        node._server.load_all()
        self.commands = commands
        self.pipe = Pipe(lambda _entry, _message: None, lambda: None, raised)
        self.pipe.precondition = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in (EXPECTED, b"0"))
        self.sinks = [Recorder() for _ in commands]
        for command, sink in zip(commands, self.sinks, strict=True):
            assert self.pipe.put(command, sink, 0)
        words = hiredis.Reader()
        words.feed(self.pipe.take())
        self.replies = [node.execute(words.gets()) for _ in commands]

    def hear(self, replies: list[bytes]) -> int:
        """Hear one reply after the other; return how many were heard when the connection was given up."""
        for number, reply in enumerate(replies, 1):
            try:
                self.pipe.feed(reply)
            except DesynchronisedError:
                return number
        return 0

    @property
    def told(self) -> list[Any]:
        """The answer that each command's sink got; `...` where it got none."""
        return [sink.reply if sink.replies else ... for sink in self.sinks]


@pytest.mark.parametrize("number", [1, 2, 5])
async def test_nothing_behind_a_missing_reply_counts(number: int) -> None:
    """Wherever one goes missing, or several: the next one ends the connection, and reaches no sink."""
    undisturbed = Talk(fenced_commands())
    assert undisturbed.hear(undisturbed.replies) == 0
    expected = undisturbed.told
    assert not any(isinstance(reply, Silence) for reply in expected)

    for before in range(len(expected)):
        talk = Talk(fenced_commands())
        del talk.replies[before : before + number]
        ended = talk.hear(talk.replies)
        assert talk.told == expected[:before] + [...] * len(expected[before:])
        assert ended == (before + 1 if before < len(talk.replies) else 0)  # at once, if another one came


async def test_a_plain_vote_rests_on_the_look_behind_it() -> None:
    """SET has no tag, but OK and nil are no record: a vote counts only when both are its own answers."""

    def make() -> tuple[Talk, list[Recorder]]:
        votes = [Recorder() for _ in NAMES]
        locks = [mutex(name, fenced=False) for name in NAMES]
        talk = Talk([one for lock in locks for one in (lock.acquire(OURS, 10.0), look())])
        assert all(command.proof is Proof.PROBED for command in talk.commands[::2])
        probes = [Probe(EXPECTED, vote) for vote in votes]
        entries = talk.pipe._entries
        for number, entry in enumerate(list(entries)):
            entries[number] = entry._replace(receiver=probes[number // 2])
        return talk, votes

    undisturbed, expected = make()
    assert undisturbed.hear(undisturbed.replies) == 0
    for missing in range(1, 2 * len(NAMES) + 1):
        talk, votes = make()
        del talk.replies[missing - 1]
        ended = talk.hear(talk.replies)
        # Nil could be a record that is gone: then it is the next SET that an incarnation record does not fit.
        following = talk.replies[missing - 1 : missing]
        assert ended == (0 if not following else missing + (following == [b"$-1\r\n"]))
        whole = (missing - 1) // 2
        assert [vote.replies for vote in votes[:whole]] == [vote.replies for vote in expected[:whole]]
        assert all(isinstance(vote.reply, Silence) for vote in votes[whole:] if vote.replies)
