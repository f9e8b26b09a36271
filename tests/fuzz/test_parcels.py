"""Parcels among single commands: each lock has its own answer, or the connection is given up (R15, R42)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import hiredis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioredlock_ng._core.command import Answer, Silence
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.link import Link
from aioredlock_ng._node.pipe import REQUEST_IDS, pack_precondition
from aioredlock_ng._node.redis_node import Node
from aioredlock_ng._round.batch import Asked, Extensions, FencedAcquires, PlainAcquires, Releases
from aioredlock_ng._round.deadlines import Deadlines
from aioredlock_ng._round.round import all_answered
from tests.fuzz import resp
from tests.fuzz.profile import no_hurry, profile
from tests.fuzz.test_pipe import Wire, on_a_loop, pieces_of

pytestmark = no_hurry

TTL: Final = 9.0
SENTINEL: Final = b"redlock:{meta}"
HERE: Final = b"what the incarnation record says"
TIME_US: Final = 1_700_000_000_000_000
WRONG_TYPE: Final = b"WRONGTYPE Operation against a key holding the wrong kind of value"

# The answer about a lock: the vote, its fence, how long the key in the way stays, whether it is missing.
Told = tuple[Vote, int, float | None, bool]

SILENT: Final[Told] = (Vote.SILENT, 0, None, False)


def told(answer: Answer) -> Told:
    """Return what an answer tells of a lock; of silence that it is silence."""
    if answer.vote is Vote.SILENT and not answer.missing:
        return SILENT
    return (answer.vote, answer.fence, answer.wait, answer.missing)


# -- what one lock is answered, different for every other ------------------------------------


class Said(NamedTuple):
    """A node's answer about one lock: in a batch, alone, and its meaning."""

    batched: Any
    alone: Any
    means: Told


FAILED: Final = Said(WRONG_TYPE, resp.Error(WRONG_TYPE), SILENT)  # an error that is the answer of one lock

EXTENDED: Final = (
    Said(1, 1, (Vote.GRANTED, 0, None, False)),
    Said(0, 0, (Vote.REFUSED, 0, None, True)),
    Said(-1, -1, (Vote.REFUSED, 0, None, False)),
    Said(10, 10, (Vote.SILENT, 0, None, True)),
    FAILED,
)

SET: Final = (
    Said(resp.Status(b"OK"), None, (Vote.GRANTED, 0, None, False)),
    Said(None, None, (Vote.REFUSED, 0, None, False)),
    Said(resp.Error(WRONG_TYPE), None, SILENT),
)


def of_kind(kind: str, choice: int, number: int) -> Said:
    """Return one of the things that a node says of a lock; `number` is of this lock alone."""
    waits, no = number / 1000, Vote.REFUSED
    said = {
        "acquire": (
            Said(number, [1, number, TIME_US], (Vote.GRANTED, number, None, False)),
            Said(-number, [0, number, TIME_US], (no, 0, waits, False)),
            FAILED,
        ),
        "release": (
            Said(1, [1, 0, 0], (Vote.GRANTED, 0, 0.0, False)),
            Said([1, number, 3], [1, number, 3], (Vote.GRANTED, 0, waits, False)),  # others wait behind it
            Said([0, number, 0], [0, number, 0], (no, 0, waits, False)),  # it is another's
        ),
        "extend": EXTENDED,
        "plain": SET,
    }[kind]
    return said[choice % len(said)]


# -- what is asked -----------------------------------------------------------------------------


class Group(NamedTuple):
    """A parcel of one kind, or one lock asked for alone."""

    kind: str
    choices: tuple[int, ...]
    alone: bool
    error: str  # what ends the whole of it; empty: an answer
    awaited: bool


FINAL: Final = ("", "", "OOM no room")

# Errors after which something is sent again: what is answered then depends on what was heard.
AGAIN: Final = ("NOSCRIPT No matching script.", "NOPERM no key")


def groups(*errors: str) -> st.SearchStrategy[list[Group]]:
    """Draw what is asked on a connection: often things of one kind and size, so that answers fit others."""

    def of(drawn: tuple[list[str], list[int]]) -> st.SearchStrategy[list[Group]]:
        sizes = st.sampled_from(drawn[1])
        choices = sizes.flatmap(lambda size: st.lists(st.integers(0, 9), min_size=size, max_size=size))
        alone, error = st.sampled_from([False, False, True]), st.sampled_from(errors)
        group = st.builds(Group, st.sampled_from(drawn[0]), choices.map(tuple), alone, error, st.booleans())
        return st.lists(group, min_size=1, max_size=8)

    kinds = st.lists(st.sampled_from(["acquire", "release", "extend", "plain"]), min_size=1, max_size=3)
    return st.tuples(kinds, st.lists(st.integers(1, 5), min_size=1, max_size=2)).flatmap(of)


class Stub:
    """The outbox of rounds, of one node."""

    nodes: Sequence[Node] = ()
    size = quorum = 1
    node_timeout = 0.1
    deadlines: Deadlines

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def submit(self, *_: object) -> None:
        """No node takes a command by itself."""


@dataclass(slots=True)
class Lock:
    """One lock's question, and what it must be answered."""

    question: Asked
    said: Said
    means: Told
    endings: list[None] = field(default_factory=list)

    @property
    def told(self) -> Told | None:
        """Its answer, which comes once; None: still missing."""
        answer = self.question.answers[0]
        assert (answer is None) == (self.question.pending == 1)
        return None if answer is None else told(answer)


@dataclass(slots=True)
class Reply:
    """One reply as the server sends it; to which command of the connection, and whether it has its tag."""

    value: Any
    number: int
    script: bool
    of_set: bool = False  # whether it is the answer to a SET, which nothing tells from that to another

    @property
    def encoded(self) -> bytes:
        """Its bytes."""
        value = self.value
        if self.script and not isinstance(value, resp.Error):
            value = [
                REQUEST_IDS[self.number % len(REQUEST_IDS)],
                *(value if type(value) is list else [value]),
            ]
        return resp.encode(value)


class Talk:
    """Groups that were asked on one connection, and what the server answers in full."""

    def __init__(self, asked: list[Group], *, probed: bool) -> None:
        self.wire, self.sent = Wire(), bytearray()
        self.link = Link(self.wire, lambda *_: None)
        self.wire.write = self.sent.extend  # type: ignore[method-assign]
        pipe = self.link.pipe
        pipe.write = self.sent.extend
        pipe.precondition, pipe.expected = pack_precondition((HERE, b"0")), HERE
        self._probed, self._stub = probed, Stub()
        self._numbers, self._places = itertools.count(1000), itertools.count(1)
        self.locks: list[Lock] = []
        self.replies: list[Reply] = []
        self._later: list[tuple[Any, Lock | Sequence[Lock]]] = []
        for group in asked:
            self._ask(group)
        self.link.flush()
        for value, _ in self._later:  # what is sent again stands behind all the rest
            self._answer(value, script=True)

    def _ask(self, group: Group) -> None:
        locks = [self._lock(group, choice) for choice in group.choices[: 1 if group.alone else None]]
        self.locks += locks
        if group.alone and group.kind != "plain":
            self._ask_alone(group, locks[0])
        else:
            self._post(group, locks)

    def _lock(self, group: Group, choice: int) -> Lock:
        number = next(self._numbers)
        key, owner = b"redlock:%d" % number, b"%040d:here" % number
        counters = () if group.kind == "plain" else (b"redlock:fence:{%b}" % key,)
        incarnation = SENTINEL if self._probed or group.kind != "plain" else None
        primitive = Primitive(MUTEX, (f"{number}",), (key,), counters=counters, incarnation=incarnation)
        make = {"release": Releases, "extend": Extensions, "plain": PlainAcquires}.get(
            group.kind, FencedAcquires
        )
        # Every other number is the proposed fence.
        fence = {"release": 0, "extend": number, "plain": 0}.get(group.kind, number - 1)
        question = Asked(self._stub, make, primitive, owner, TTL, fence)
        said = of_kind(group.kind, choice, number)
        lock = Lock(question, said, said.means)
        if group.awaited:
            question.then(all_answered, lambda: lock.endings.append(None))
        return lock

    def _answer(self, value: Any, *, script: bool, of_set: bool = False) -> None:
        self.replies.append(Reply(value, next(self._places), script, of_set))

    def _ask_alone(self, group: Group, lock: Lock) -> None:
        assert self.link.pipe.put(lock.question.batch.command(lock.question), lock.question, 0)
        if not group.error:
            self._answer(lock.said.alone, script=True)
            return
        self._answer(resp.Error(group.error.encode()), script=True)
        if group.error.startswith("NOSCRIPT") and (group.awaited or group.kind == "release"):
            self._later.append((lock.said.alone, lock))
        else:
            lock.means = SILENT

    def _post(self, group: Group, locks: list[Lock]) -> None:
        batch = locks[0].question.batch([lock.question for lock in locks])
        assert self.link.pipe.post([batch], batch.replies, 0)
        if group.kind == "plain":
            for lock in locks:
                self._answer(lock.said.batched, script=False, of_set=True)
            if self._probed:
                self._answer(HERE, script=False)
            return
        answers = [lock.said.batched for lock in locks]
        value = [TIME_US, *answers] if group.kind == "acquire" else answers
        if not group.error:
            self._answer(value, script=True)
            return
        self._answer(resp.Error(group.error.encode()), script=True)
        again = group.awaited or group.kind == "release"
        if again and group.error.startswith("NOSCRIPT"):
            self._later.append((value, locks))
        elif again and group.error.startswith("NOPERM") and len(locks) > 1:
            self._later += [(lock.said.alone, lock) for lock in locks]
        else:
            for lock in locks:
                lock.means = SILENT

    def hear(self, replies: list[Reply], cuts: list[int]) -> None:
        """Receive replies, cut at these places; nothing more once the connection is given up."""
        for piece in pieces_of(b"".join(reply.encoded for reply in replies), cuts):
            if not self.wire.ends:
                self.link.data_received(piece)
                self.link.flush()

    def settle(self) -> None:
        """Do what a node does when its connection has ended: answer for all that was under way."""
        for _, sink, node in self.link.pipe.abandon():
            sink.on_reply(node, Silence("the connection has ended"))


def commands_in(sent: bytes) -> list[list[bytes]]:
    """Return the commands in what was written."""
    reader = hiredis.Reader()
    reader.feed(sent)
    return list(iter(reader.gets, False))


cuts = st.lists(st.integers(0, 4000), max_size=30)


@profile(200)
@pytest.mark.heavy
@given(groups(*FINAL, *AGAIN), st.booleans(), cuts)
def test_each_lock_has_its_own_answer_however_replies_are_cut(
    asked: list[Group], probed: bool, cuts: list[int]
) -> None:
    """Of batches and single commands in any order: grants, refusals, errors of one lock and of all."""

    def check() -> None:
        talk = Talk(asked, probed=probed)
        talk.hear(talk.replies, cuts)
        assert talk.wire.ends == []
        assert [lock.told for lock in talk.locks] == [lock.means for lock in talk.locks]
        assert all(not lock.question.awaited for lock in talk.locks), "answered once"
        assert len(talk.link.pipe) == 0
        sent = commands_in(bytes(talk.sent))
        assert len(sent) == len(talk.replies), "as many commands as replies"
        for words, reply in zip(sent, talk.replies, strict=True):
            assert not reply.script or words[-1] == REQUEST_IDS[reply.number % len(REQUEST_IDS)]

    on_a_loop(check)


DAMAGE: Final = ("missing", "doubled", "swapped", "another's")


def damaged(replies: list[Reply], how: str, first: int, second: int) -> list[Reply]:
    """Return replies one of which is missing, comes twice, in another's place, or is another connection's."""
    first, second = first % len(replies), second % len(replies)
    said = list(replies)
    if how == "missing":
        del said[first]
    elif how == "doubled":
        said.insert(first, said[first])
    elif how == "swapped":
        said[first], said[second] = said[second], said[first]
    else:
        said[first] = Reply(said[first].value, said[first].number + 1 + second, said[first].script)
    return said


@profile(400)
@pytest.mark.heavy
@given(groups(*FINAL), st.sampled_from(DAMAGE), st.integers(0, 60), st.integers(0, 60), cuts)
@example([Group("plain", (0, 1), False, "", True)] * 2, "missing", 1, 0, [])
@example([Group("plain", (1, 0), False, "", True)] * 2, "doubled", 0, 0, [])
def test_no_lock_has_the_answer_of_another(
    asked: list[Group], how: str, first: int, second: int, cuts: list[int]
) -> None:
    """Where a reply is missing, doubled, swapped or foreign: its own answer, or silence, and never twice."""

    def check() -> None:
        talk = Talk(asked, probed=True)
        said = damaged(talk.replies, how, first, second)
        one, other = talk.replies[first % len(talk.replies)], talk.replies[second % len(talk.replies)]
        talk.hear(said, cuts)
        if not (how == "swapped" and one.of_set and other.of_set):  # nothing tells those from each other
            for lock in talk.locks:
                assert lock.told in (lock.means, SILENT, None), lock
        talk.settle()
        assert all(lock.told is not None for lock in talk.locks), "answered in the end"
        assert all(len(lock.endings) <= 1 for lock in talk.locks), "answered once"

    on_a_loop(check)
