"""Batches as the client has them: what is sent for several locks, and which reply answers it (R42)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import hiredis
import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.clock_watch import ClockWatch
from aioredlock_ng._core.command import Answer, Command, Silence
from aioredlock_ng._core.quarantine import INCARNATION_CHANGED
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.pipe import REQUEST_IDS, DesynchronisedError, Pipe, Question, words
from aioredlock_ng._round.batch import (
    Asked,
    Batch,
    Extensions,
    FencedAcquires,
    PlainAcquires,
    Releases,
)
from aioredlock_ng._round.deadlines import Deadlines
from aioredlock_ng._round.outbox import Outbox
from aioredlock_ng._round.round import majority_answered
from aioredlock_ng.testing import MemoryNode
from tests.fuzz.resp import Error, Status, encode
from tests.unit.node.test_pipe import raised

SIZE: Final = 3
TTL: Final = 10.0
NOW: Final = 500.0
TIME: Final = 1_700_000_000
MICROSECONDS: Final = TIME * 1_000_000
BALLOT: Final = 7_000
TAG: Final = b"042"
SENTINEL: Final = b"1:incarnation"
WRONG: Final = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NAMES: Final = "abc"

GRANTED, REFUSED, SILENT = Vote.GRANTED, Vote.REFUSED, Vote.SILENT


class Stage:
    """An outbox whose nodes are asked nothing, and the failures of single locks."""

    def __init__(self) -> None:
        self.outbox = Outbox([MemoryNode().link() for _ in range(SIZE)], Deadlines(), 0.1)
        self.failures: list[tuple[Command, int, str]] = []

    def fail(self, question: Question, message: str) -> None:
        """As the pipe does it: reported, and then silent."""
        command, sink, node = question
        self.failures.append((command, node, message))
        sink.on_reply(node, Silence(message))

    def take(self, batch: Batch, node: int, *replies: object) -> list[bool]:
        """Let a batch take a node's replies, up to the first that is none."""
        taken = []
        for reply in replies:
            taken.append(batch.hear(node, reply, TAG, self.fail))
            if not taken[-1]:
                break
        return taken

    def acquires(self, names: str = NAMES, *, fenced: bool = True, incarnation: bool = True) -> list[Asked]:
        """Return the rounds of some names."""
        make = FencedAcquires if fenced else PlainAcquires
        locks = {name: lock(name, fenced=fenced, incarnation=incarnation) for name in names}
        return [
            Asked(self.outbox, make, locked, owner(name), TTL, BALLOT * fenced)
            for name, locked in locks.items()
        ]

    def plain(self, *, expected: bytes = SENTINEL) -> tuple[list[Asked], PlainAcquires]:
        """Return three plain acquires, asked of node 0."""
        rounds = self.acquires(fenced=False)
        batch = PlainAcquires(rounds)
        batch.expect(0, expected)
        return rounds, batch

    def releases(self, names: str = NAMES, *, quiet: bool = False) -> list[Asked]:
        """Return the rounds of some releases."""
        rounds = [Asked(self.outbox, Releases, lock(name), owner(name), TTL, quiet=quiet) for name in names]
        for round_ in rounds:
            round_.learns = True
        return rounds

    def extensions(self, names: str = NAMES, *, fence: int = 0, on_answer: Any = None) -> list[Asked]:
        """Return the rounds of some extensions."""
        return [
            Asked(
                self.outbox,
                Extensions,
                lock(name, fenced=fence > 0),
                owner(name),
                TTL,
                fence=fence + i if fence else 0,
                on_answer=on_answer or (lambda _node, _answer: None),
            )
            for i, name in enumerate(names)
        ]

    def of(self, what: str) -> tuple[Sequence[Asked], Batch]:
        """Return three rounds and their batch; of plain acquires, as node 0 is asked."""
        if what == "plain acquires":
            return self.plain()
        if what == "acquires":
            return (rounds := self.acquires()), FencedAcquires(rounds)
        if what == "releases":
            return (gone := self.releases()), Releases(gone)
        return (kept := self.extensions()), Extensions(kept)


def lock(name: str, *, fenced: bool = True, incarnation: bool = True) -> Primitive:
    """Return the lock of a name."""
    key = b"redlock:" + name.encode()
    counters = (b"redlock:fence:{%b}" % key,) if fenced else ()
    meta = b"redlock:{meta}" if incarnation or fenced else None
    return Primitive(MUTEX, (name,), (key,), counters=counters, incarnation=meta, fence_ttl=600.0)


def owner(name: str) -> bytes:
    """Return the owner value that a name is asked for with."""
    return b"%b:1:me" % (name.encode() * 40)


def alone(round_: Asked) -> Batch:
    """Return the batch of one round."""
    return round_.batch([round_])


def parsed(data: bytes) -> list[tuple[bytes, ...]]:
    """Return packed commands as words."""
    reader = hiredis.Reader()
    reader.feed(data)
    commands = []
    while (command := reader.gets()) is not False:
        commands.append(tuple(command))
    return commands


def votes(rounds: Sequence[Asked], node: int = 0) -> list[Vote | None]:
    """Return what one node said of each lock."""
    return [None if (answer := one.answers[node]) is None else answer.vote for one in rounds]


def pushed() -> Any:
    """Return what RESP3 pushes, as the parser has it."""
    reader = hiredis.Reader()
    reader.feed(b">2\r\n$3\r\n042\r\n$1\r\n1\r\n")
    message = reader.gets()
    assert type(message) is hiredis.PushNotification
    return message


# -- what is sent ------------------------------------------------------------------------------------


@pytest.mark.parametrize("incarnation", [False, True])
async def test_plain_acquires_are_the_pages_command(incarnation: bool):
    """One behind the other, as for each alone; behind the last a look at the record, if there is one."""
    rounds = Stage().acquires(fenced=False, incarnation=incarnation)
    rounds[0].ttl = 0.0015
    sent = parsed(PlainAcquires(rounds).packed)
    assert sent == [
        *(words(one.batch.command(one)) for one in rounds),
        *[(b"GET", b"redlock:{meta}")] * incarnation,
    ]
    assert sent[0] == (b"SET", b"redlock:a", owner("a"), b"NX", b"PX", b"2")


# -- what is no answer -------------------------------------------------------------------------------

GOOD: Final[dict[str, list[Any]]] = {
    "acquires": [TAG, MICROSECONDS, BALLOT, BALLOT, BALLOT],
    "releases": [TAG, 1, 1, 1],
    "extensions": [TAG, 1, 1, 1],
}

NO_ANSWERS: Final = [
    pytest.param(what, replies, id=f"{what}: {why}")
    for what, why, replies in [
        *(
            (what, why, [reply])
            for what, good in GOOD.items()
            for why, reply in {
                "another's tag": [b"041", *good[1:]],
                "no tag": good[1:],
                "nothing behind the tag": good[:1],
                "a lock too few": good[:-1],
                "a lock too many": [*good, good[-1]],
                "nothing for a lock": [*good[:-1], None],
                "a double": [*good[:-1], 1.5],
                "an empty list": [],
                "nil": None,
                "OK": b"OK",
                "a number": 1,
                "an error": hiredis.ReplyError("BUSY"),
                "what is pushed": pushed(),
                "another type": tuple(good),
            }.items()
        ),
        ("acquires", "a time that is none", [[TAG, b"now", *[BALLOT] * 3]]),
        ("acquires", "a release's", [[TAG, MICROSECONDS, BALLOT, BALLOT, [1, 0, 0]]]),
        ("extensions", "a release's", [[TAG, 1, 1, [1, 0, 0]]]),
        ("releases", "another number", [[TAG, 1, 1, 2]]),
        ("releases", "a number that stands for nothing", [[TAG, 1, 1, 0]]),
        ("releases", "a list too short", [[TAG, 1, 1, [1, 0]]]),
        ("plain acquires", "an OK too many", [b"OK", b"OK", b"OK", b"OK"]),
        ("plain acquires", "a reply is missing", [b"OK", SENTINEL]),
        ("plain acquires", "a number", [b"OK", 1]),
        ("plain acquires", "a script's answer", [b"OK", [TAG, 1, 0, 0]]),
        ("plain acquires", "another status", [b"QUEUED"]),
        ("plain acquires", "what is pushed", [pushed()]),
    ]
]


@pytest.mark.parametrize(("what", "replies"), NO_ANSWERS)
async def test_what_is_no_answer(what: str, replies: list[Any]):
    """The last of these replies is refused, and no lock hears of any."""
    stage = Stage()
    rounds, batch = stage.of(what)
    assert stage.take(batch, 0, *replies) == [True] * (len(replies) - 1) + [False]
    assert votes(rounds) == [None] * 3
    assert stage.failures == []


# -- fenced acquires ---------------------------------------------------------------------------------


async def test_each_lock_has_its_own_answer():
    """Granted at another fence, refused for a while or without end, granted, and an error that is its own."""
    stage = Stage()
    rounds = stage.acquires("abcde")
    answers = [BALLOT + 1, -1500, 0, BALLOT, WRONG]
    assert stage.take(FencedAcquires(rounds), 2, [TAG, MICROSECONDS, *answers]) == [True]
    assert [one.answers[2] for one in rounds] == [
        Answer(GRANTED, fence=BALLOT + 1, time=TIME),
        Answer(REFUSED, wait=1.5),
        Answer(REFUSED, wait=None),
        Answer(GRANTED, fence=BALLOT, time=TIME),
        Answer(SILENT, WRONG.decode()),
    ]
    assert [one.differs_from(BALLOT) for one in rounds] == [True, False, False, False, False]
    ((command, node, message),) = stage.failures
    assert (command.owner, command.script) == (owner("e"), _scripts.ACQUIRE)
    assert (node, message) == (2, WRONG.decode())


async def test_without_a_vote_all_are_silent():
    """The node's time alone."""
    stage = Stage()
    rounds, batch = stage.of("acquires")
    assert stage.take(batch, 0, [TAG, MICROSECONDS]) == [True]
    assert [one.answers[0] for one in rounds] == [Answer(SILENT, INCARNATION_CHANGED)] * 3
    assert stage.failures == []


async def test_limits_are_those_of_what_a_clock_watch_believes():
    """The quick check never lets through a time that the watch would not, whatever it knows."""
    clocks = ClockWatch(SIZE, 0.1)
    assert clocks.limits == [math.inf] * SIZE
    for node, late in enumerate((0.0, 0.05, -2.0)):
        clocks.sample(node, NOW - 0.01, NOW, TIME + late)
    clocks.sample(1, NOW, NOW + 0.01, TIME + 5)  # a step: suspected
    clocks.forget(2)
    for node in range(SIZE):
        for ahead in (-10.0, -0.2, 0.0, 0.05, 0.1, 0.11, 0.12, 0.2, 4.9, 10.0):
            heard, time = NOW + 0.02, TIME + 0.02 + ahead
            assert time - heard > clocks.limits[node] or clocks.believes(node, heard, time)
    assert clocks.limits[1:] == [-math.inf, math.inf]


async def test_a_grant_after_the_time_counts_for_nothing():
    """The node is silent in the tally, and so it is in the certificate."""
    stage = Stage()
    for late in ([BALLOT] * 3, [BALLOT, BALLOT + 1, BALLOT]):
        rounds = stage.acquires()
        batch = FencedAcquires(rounds)
        for one in rounds:
            one.time_out()
        for node in range(SIZE):
            assert stage.take(batch, node, [TAG, MICROSECONDS, *late]) == [True]
            assert votes(rounds, node) == [SILENT] * 3
        assert [(one.granted, one.silent) for one in rounds] == [(0, 3)] * 3
        assert batch.done


@pytest.mark.parametrize(("stands_at", "behind"), [(BALLOT, False), (BALLOT + 5, True)])
async def test_what_is_known_of_stragglers_outlives_the_answers(stands_at: int, behind: bool) -> None:
    """A node that was asked for the lock alone stands at the fence, or not, when its answer is gone, too."""
    stage = Stage()
    (asked,) = stage.acquires("a")
    for node, fence in enumerate((BALLOT, BALLOT, stands_at)):
        stage.take(alone(asked), node, [TAG, MICROSECONDS, fence])
    for _ in range(2):
        assert asked.differs_from(BALLOT) is behind
        asked.thin_out(BALLOT)


# -- plain acquires ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(4))
async def test_a_nil_is_a_refusal(place: int):
    """Never a grant, whichever place it has; no vote is handed off before the incarnation was seen (R12)."""
    stage = Stage()
    rounds, batch = stage.plain()
    replies = [None if i == place else b"OK" for i in range(3)]
    assert all(stage.take(batch, 0, *replies))
    assert votes(rounds) == [None] * 3
    assert stage.take(batch, 0, SENTINEL) == [True]
    assert votes(rounds) == [REFUSED if i == place else GRANTED for i in range(3)]
    assert [one.granted for one in rounds] == [int(i != place) for i in range(3)]


@pytest.mark.parametrize(
    ("expected", "found", "reason"),
    [
        pytest.param(SENTINEL, b"1:another", INCARNATION_CHANGED, id="another"),
        pytest.param(SENTINEL, None, INCARNATION_CHANGED, id="none"),
        pytest.param(SENTINEL, b"", INCARNATION_CHANGED, id="empty"),
        pytest.param(b"", None, INCARNATION_CHANGED, id="none was expected"),
        pytest.param(
            SENTINEL,
            hiredis.ReplyError("WRONGTYPE"),
            "its incarnation record could not be read: WRONGTYPE",
            id="error",
        ),
    ],
)
async def test_without_its_incarnation_no_plain_vote_counts(expected: bytes, found: Any, reason: str):
    """Neither grants nor refusals: the node may have forgotten what it granted before (R12)."""
    stage = Stage()
    rounds, batch = stage.plain(expected=expected)
    assert all(stage.take(batch, 0, b"OK", None, b"OK", found))
    assert [one.answers[0] for one in rounds] == [Answer(SILENT, reason)] * 3


async def test_each_node_has_its_own_replies_and_incarnation():
    """They come in any order, and are kept apart until each node's last; a lock's error is its own."""
    stage = Stage()
    rounds, batch = stage.plain()
    batch.expect(1, SENTINEL)
    batch.expect(2, b"1:other")
    failed = hiredis.ReplyError("OOM command not allowed")
    for reply in (b"OK", failed, None, SENTINEL):
        for node in (2, 0, 1):
            assert stage.take(batch, node, reply) == [True]
    for node in range(2):
        assert votes(rounds, node) == [GRANTED, SILENT, REFUSED]
    assert votes(rounds, 2) == [SILENT] * 3
    assert [(command.owner, node, message) for command, node, message in stage.failures] == [
        (owner("b"), node, "OOM command not allowed") for node in range(2)
    ]


async def test_late_plain_grants_count_for_nothing():
    """The node was counted as silent between two of its replies."""
    stage = Stage()
    rounds, batch = stage.plain()
    assert all(stage.take(batch, 0, b"OK", b"OK"))
    for one in rounds:
        one.time_out()
    assert all(stage.take(batch, 0, b"OK", SENTINEL))
    assert votes(rounds) == [SILENT] * 3
    assert [one.granted for one in rounds] == [0] * 3


async def test_without_a_look_the_last_reply_is_the_last_acquires():
    """Where no vote rests on an incarnation."""
    stage = Stage()
    rounds = stage.acquires(fenced=False, incarnation=False)
    batch = PlainAcquires(rounds)
    assert all(stage.take(batch, 0, b"OK", None))
    assert votes(rounds) == [None] * 3
    assert stage.take(batch, 0, b"OK") == [True]
    assert votes(rounds) == [GRANTED, REFUSED, GRANTED]


# -- releases and extensions -------------------------------------------------------------------------


async def test_each_release_has_its_own_answer():
    """Released with a notice to two, not held, another's; and one that failed is reported as a single one."""
    stage = Stage()
    rounds = stage.releases("abcde")
    answers = [1, [1, 0, 2], [0, 0, 0], [0, 1500, 1, 0, b"label"], WRONG]
    assert stage.take(Releases(rounds), 0, [TAG, *answers]) == [True]
    assert [one.answers[0] for one in rounds] == [
        Answer(GRANTED, "released", wait=0.0),
        Answer(GRANTED, "released", wait=0.0, reached=2),
        Answer(REFUSED, "was not held", wait=0.0),
        Answer(REFUSED, "was not held", wait=1.5, found=b"label", reached=1),
        Answer(SILENT, WRONG.decode()),
    ]
    ((command, node, message),) = stage.failures
    assert (command.owner, command.script) == (owner("e"), _scripts.RELEASE)
    assert (node, message) == (0, WRONG.decode())


async def test_a_late_release_is_learnt():
    """The votes stay as they were; what became of the key is known from then on."""
    stage = Stage()
    rounds = stage.releases()
    batch = Releases(rounds)
    for one in rounds:
        one.time_out()
    stage.take(batch, 0, [TAG, 1, 1, 1])
    stage.take(batch, 1, [TAG, 1, [0, 0, 0], 1])
    assert [one.answers[0] for one in rounds] == [Answer(GRANTED, "released", wait=0.0)] * 3
    assert votes(rounds, 1) == [GRANTED, REFUSED, GRANTED]
    assert [(one.granted, one.silent) for one in rounds] == [(0, 3)] * 3


async def test_each_extension_has_its_own_answer():
    """Missing, another's, and the same without a vote; missing ones are heeded, to be topped up (R9)."""
    stage, heeded = Stage(), list[tuple[int, bool]]()
    rounds = stage.extensions("abcdefg", on_answer=lambda node, answer: heeded.append((node, answer.missing)))
    batch = Extensions(rounds)
    assert stage.take(batch, 1, [TAG, *[1] * 7]) == [True]
    assert [one.answers[1] for one in rounds] == [Answer(GRANTED)] * 7
    heeded.clear()
    assert stage.take(batch, 0, [TAG, 1, 0, -1, 11, 10, 9, WRONG]) == [True]
    assert votes(rounds) == [GRANTED, REFUSED, REFUSED, SILENT, SILENT, SILENT, SILENT]
    assert heeded == [(0, missing) for missing in (True, False, False, True, False, False)]
    assert [command.owner for command, _, _ in stage.failures] == [owner("g")]


# -- replies as bytes ---------------------------------------------------------------------------------


def wire(reply: Any) -> bytes:
    """Return a reply as a server sends it."""
    if isinstance(reply, hiredis.ReplyError):
        return encode(Error(str(reply).encode()))
    return encode(Status(reply) if reply == b"OK" else reply)


def fed(parcels: Sequence[Any], rounds: Sequence[Asked], replies: Sequence[Any], cut: int) -> Any:
    """Post parcels, feed the replies in pieces if there is a `cut`, and return the outcome."""
    piped, ended = Piped(), ""
    piped.post(*parcels)
    data = b"".join(map(wire, replies)).replace(encode(TAG), encode(REQUEST_IDS[1]))
    try:
        for piece in (data[:cut], data[cut:]) if cut else (data,):
            piped.pipe.feed(piece)
    except DesynchronisedError as error:
        ended = str(error)
    tallies = [(one.answers, one.granted, one.verdict) for one in rounds]
    return ended, len(piped.pipe), piped.pipe.answered, piped.failures, tallies


TOGETHER: Final[dict[str, list[list[Any]]]] = {
    "acquires": [
        [[TAG, MICROSECONDS, *[BALLOT + (BALLOT & 1)] * 3]],
        [[TAG, MICROSECONDS + 200_000, *[BALLOT + (BALLOT & 1)] * 3]],
        [[TAG, MICROSECONDS, BALLOT, BALLOT + 4, BALLOT]],
        [[TAG, MICROSECONDS, BALLOT, -1500, BALLOT]],
        [[b"041", MICROSECONDS, *[BALLOT + (BALLOT & 1)] * 3]],
    ],
    "plain acquires": [
        [b"OK", b"OK", b"OK", SENTINEL],
        [b"OK", None, b"OK", SENTINEL],
        [b"OK", b"OK", b"OK", b"another"],
        [b"OK", b"OK", b"OK", b"OK"],
        [b"OK", b"OK", SENTINEL],
    ],
    "releases": [[[TAG, 1, 1, 1]], [[TAG, 1, [1, 0, 3], 1]], [[b"041", 1, 1, 1]], [[TAG, 1, 1]]],
    "extensions": [[[TAG, 1, 1, 1]], [[TAG, 1, 0, 1]], [[b"041", 1, 1, 1]], [[TAG, 1, 1]]],
}
"""Replies of a node to a batch of three, the usual ones first."""


@pytest.mark.parametrize(
    ("what", "replies"), [(what, replies) for what, said in TOGETHER.items() for replies in said]
)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("followed", [False, True])
async def test_whole_replies_are_taken_as_parsed_ones_are(
    what: str, replies: list[Any], late: bool, followed: bool
):
    """Also where another batch's usual reply comes in the same piece."""
    ends = []
    for cut in (0, 3, 9):
        stage = Stage()
        rounds, batch = stage.of(what)
        (behind,) = stage.releases("d")
        if late:
            for one in rounds:
                one.time_out()
        number = REQUEST_IDS[1 + batch.replies]
        said = [*replies, [number, 1]] if followed else replies
        ends.append(fed([batch, alone(behind)], [*rounds, behind], said, cut))
    assert ends[1:] == ends[:1] * 2


async def test_what_is_half_read_is_parsed_to_its_end():
    """Though the rest of it looks like a usual reply."""
    stage, piped = Stage(), Piped()
    (asked,) = stage.acquires("a", fenced=False, incarnation=False)
    piped.post(alone(asked))
    piped.pipe.feed(b"$5\r\n")
    with pytest.raises(DesynchronisedError, match="cannot belong to"):
        piped.pipe.feed(b"+OK\r\n\r\n")
    assert votes([asked], 1) == [None]


async def test_the_rest_of_a_batchs_replies_is_not_taken_for_all_of_them():
    """The replies behind it belong to the next batch, though they look the same."""
    stage, piped = Stage(), Piped()
    first, second = (stage.acquires("ab", fenced=False, incarnation=False) for _ in range(2))
    piped.post(PlainAcquires(first), PlainAcquires(second))
    piped.pipe.feed(b"+OK\r\n")
    piped.pipe.feed(b"+OK\r\n+OK\r\n$-1\r\n")
    assert votes([*first, *second], 1) == [GRANTED, GRANTED, GRANTED, REFUSED]


@pytest.mark.parametrize("time", [b"170000000000000x", b"0700000000000000", b"17000000\r\n000000"])
@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_time_that_is_no_number_is_no_usual_reply(time: bytes, names: str):
    """It ends the connection, as any other reply that the protocol does not know."""
    stage, piped = Stage(), Piped()
    rounds = stage.acquires(names)
    piped.post(FencedAcquires(rounds))
    data = wire([REQUEST_IDS[1], MICROSECONDS, *[BALLOT] * len(names)])
    data = data.replace(b"%d" % MICROSECONDS, time)
    assert piped.pipe._entries[0].recognises(1, data, 0, REQUEST_IDS[1]) == 0
    with pytest.raises(DesynchronisedError, match="is not RESP"):
        piped.pipe.feed(data)
    assert votes(rounds, 1) == [None] * len(names)


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_usual_reply_wakes_a_task_that_waits_for_other_than_a_win(names: str):
    """One node has refused, and the second answer is the majority's."""
    stage = Stage()
    rounds = stage.releases(names)
    for one in rounds:
        one.on_reply(0, [0, 0, 0])
    alarms = [one.alarm(majority_answered) for one in rounds]
    assert Releases(rounds).recognises(1, wire([TAG, *[1] * len(names)]), 0, TAG)
    assert [alarm.done() for alarm in alarms] == [True] * len(names)


@pytest.mark.parametrize("replies", [b"+OK\r\n$-1\r\n", b"$-1\r\n$-1\r\n"], ids=["usual", "parsed"])
async def test_a_connection_ends_when_the_reading_of_a_reply_is_interrupted(replies: bytes):
    """By a hook that exits, say: what follows would be taken for the reply to another command (R15)."""
    stage, piped = Stage(), Piped()
    first, second = stage.acquires("ab", fenced=False, incarnation=False)
    piped.post(alone(first), alone(second))

    def leave() -> None:
        raise SystemExit

    first.on_reply(0, None)
    first.then(lambda round_: round_.answers[1] is not None, leave)
    with pytest.raises((DesynchronisedError, SystemExit)) as told:
        piped.pipe.feed(replies)
    assert told.type is DesynchronisedError, "the connection gets the error and closes"
    assert votes([second], 1) == [None]


# -- in a pipe ---------------------------------------------------------------------------------------


class Piped:
    """A pipe, what failed in it, and what it would have written."""

    def __init__(self) -> None:
        self.failures: list[tuple[bytes, str]] = []
        self.pipe = Pipe(
            lambda entry, message: self.failures.append((entry[0].owner, message)), lambda: None, raised
        )
        self.pipe.expected = SENTINEL

    def post(self, *batches: Batch) -> list[tuple[bytes, ...]]:
        """Put batches as of node 1, and return what leaves."""
        written: list[bytes] = []
        self.pipe.write = written.append
        assert self.pipe.post(batches, sum(batch.replies for batch in batches), 1)
        return parsed(b"".join(written))


NOSCRIPT: Final = b"-NOSCRIPT No matching script.\r\n"


async def test_tags_go_on_from_batch_to_batch():
    """A command queued before leaves before, in one piece; a plain acquire without a tag has a place, too."""
    stage, piped = Stage(), Piped()
    (release,) = stage.releases("d")
    assert piped.pipe.put(Releases.command(release), release, 1)
    sent = piped.post(*(stage.of(what)[1] for what in ("releases", "plain acquires", "extensions")))
    assert [(each[3], each[-1]) for each in sent if each[0] == b"EVALSHA"] == [
        (b"redlock:d", REQUEST_IDS[1]), (b"redlock:a", REQUEST_IDS[2]), (b"redlock:a", REQUEST_IDS[7]),
    ]  # fmt: skip
    assert len(piped.pipe) == 7
    assert piped.pipe.take() == b""


async def test_what_cannot_be_written_is_told_and_counts_as_sent():
    """The connection ends then, and that answers it: it is not sent once more, each lock by itself."""
    stage, piped, errors = Stage(), Piped(), []
    piped.pipe.on_unwritten = errors.append
    (release,) = stage.releases("d")
    error = DesynchronisedError("no more writing here")
    piped.pipe.write = lambda _data: raised(error)
    assert piped.pipe.post([alone(release)], 1, 1)
    assert errors == [error]
    assert [question.receiver for question in piped.pipe.abandon()] == [release]


async def test_another_tag_ends_the_connection():
    """No lock is given another's answer; all of them are unanswered."""
    stage, piped = Stage(), Piped()
    rounds, batch = stage.of("releases")
    piped.post(batch)
    with pytest.raises(DesynchronisedError, match="cannot belong to 3 locks"):
        piped.pipe.feed(b"*4\r\n$3\r\n002\r\n:1\r\n:1\r\n:1\r\n")
    assert votes(rounds, 1) == [None] * 3
    assert [command.owner for command, _, _ in piped.pipe.abandon()] == list(map(owner, NAMES))


@pytest.mark.parametrize("came", range(4))
async def test_an_ended_connection_leaves_every_lock_unanswered(came: int):
    """However many of the plain replies came: the incarnation behind them did not.  Each lock once."""
    stage, piped = Stage(), Piped()
    rounds, releases = stage.acquires(fenced=False), stage.releases("de")
    piped.post(PlainAcquires(rounds), Releases(releases))
    piped.pipe.feed(b"+OK\r\n" * came)
    left = [(command.owner, sink, node) for command, sink, node in piped.pipe.abandon()]
    assert left == [(one.owner, one, 1) for one in (*rounds, *releases)]
    assert votes(rounds, 1) == [None] * 3


async def test_an_unknown_script_goes_again_with_its_source():
    """The whole batch, behind all else; each lock has its answer once."""
    stage, piped = Stage(), Piped()
    rounds, batch = stage.of("releases")
    (first,) = piped.post(batch)
    piped.pipe.feed(NOSCRIPT)
    assert parsed(piped.pipe.take()) == [
        (b"EVAL", _scripts.RELEASE_MANY.source, *first[2:-1], REQUEST_IDS[2])
    ]
    piped.pipe.feed(b"*4\r\n$3\r\n002\r\n:1\r\n:1\r\n:1\r\n")
    assert votes(rounds, 1) == [GRANTED] * 3
    assert piped.failures == []


async def test_an_unknown_script_does_not_go_again_behind_a_release():
    """Of the batch those locks alone that wait, and were not given up meanwhile; each by itself."""
    stage, piped = Stage(), Piped()
    rounds = stage.acquires()
    for one in rounds[:2]:
        one.alarm(lambda _: False)
    piped.post(FencedAcquires(rounds))
    piped.post(Releases(stage.releases("b")))
    piped.pipe.feed(NOSCRIPT)
    sent = [(verb, source, rest[1]) for verb, source, *rest in parsed(piped.pipe.take())]
    assert sent == [(b"EVAL", _scripts.ACQUIRE.source, b"redlock:a")]
    assert votes(rounds, 1) == [None, SILENT, SILENT]
    assert [who for who, _ in piped.failures] == [owner("b"), owner("c")]


async def test_what_is_queued_is_looked_at_once_for_a_batch(monkeypatch: pytest.MonkeyPatch):
    """However many plain acquires are under way: no command is made for each of them, for each lock."""
    stage, piped, made = Stage(), Piped(), list[bytes]()
    extensions = stage.extensions("abcdefgh")
    for one in extensions:
        one.then(lambda _: False, lambda: None)
    piped.post(Extensions(extensions), PlainAcquires(20 * stage.acquires("ijkl", fenced=False)))
    command = PlainAcquires.command
    monkeypatch.setattr(PlainAcquires, "command", staticmethod(lambda one: made.append(b"") or command(one)))
    piped.pipe.feed(NOSCRIPT)
    assert parsed(piped.pipe.take())[0][0] == b"EVAL"
    assert len(made) <= 1


async def test_an_error_of_the_whole_is_an_error_of_each_lock():
    """As if each command had been answered by it; none is shown the owner value of another."""
    stage, piped = Stage(), Piped()
    rounds, batch = stage.of("acquires")
    piped.post(batch)
    piped.pipe.feed(b"-BUSY with %b and %b\r\n" % (owner("a"), owner("c")))
    message = "BUSY with <owner> and <owner>"
    assert [one.answers[1] for one in rounds] == [Answer(SILENT, message)] * 3
    assert piped.failures == [(owner(name), message) for name in NAMES]


async def test_without_room_nothing_of_a_turn_is_put():
    """Not the first of its batches either: the node is asked one by one then, in the same order."""
    stage, piped = Stage(), Piped()
    _, acquires = stage.plain()
    written: list[bytes] = []
    piped.pipe.write = written.append
    while len(piped.pipe) + acquires.replies <= piped.pipe._room:
        assert piped.pipe.post([acquires], acquires.replies, 1)
    before = len(piped.pipe)
    written.clear()
    batches = (Releases(stage.releases()), acquires)
    assert not piped.pipe.post(batches, 1 + acquires.replies, 1)
    assert len(piped.pipe) == before
    piped.pipe.close()
    assert not piped.pipe.post(batches[:1], 1, 1)
    assert not written
