"""Batches as the client has them: what is sent for several locks, and which reply answers it (R42)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import hiredis
import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.clock_watch import ClockWatch
from aioredlock_ng._core.command import Answer, Command, Silence
from aioredlock_ng._core.quarantine import SENTINEL_CHANGED
from aioredlock_ng._core.quorum import Verdict, Vote
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.packing import words
from aioredlock_ng._node.parcel import Entry
from aioredlock_ng._node.pipe import TAGS, DesynchronisedError, Pipe
from aioredlock_ng._round.asked import AcquireRound, Asked, ExtendRound, ReleaseRound
from aioredlock_ng._round.batch import Batch, Extensions, FencedAcquires, PlainAcquires, Releases
from aioredlock_ng._round.deadlines import Deadlines
from aioredlock_ng._round.outbox import Outbox
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import virtual

SIZE: Final = 3
TTL: Final = 10.0
NOW: Final = 500.0
TIME: Final = 1_700_000_000
MICROSECONDS: Final = TIME * 1_000_000
BALLOT: Final = 7_000
TAG: Final = b"042"
SENTINEL: Final = b"1:sentinel"
WRONG: Final = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NAMES: Final = "abc"
STAMP: Final = (b"", b"", b"")
"""As a pipe adds it before there is one."""


class Stage:
    """An outbox whose nodes are asked nothing, and the failures of single locks."""

    def __init__(self) -> None:
        self.clocks = ClockWatch(SIZE, 0.1)
        nodes = [MemoryNode().link() for _ in range(SIZE)]
        self.outbox = Outbox(nodes, Deadlines(), 0.1, self.clocks, lambda: NOW)
        self.failures: list[tuple[Command, int, str]] = []

    def fail(self, entry: Entry, message: str) -> None:
        """As the pipe does it: told, and then silent."""
        command, sink, node = entry
        self.failures.append((command, node, message))
        sink.on_reply(node, Silence(message))

    def acquires(self, names: str = NAMES, *, fenced: bool = True, block: int = 1) -> list[AcquireRound]:
        """Return the rounds of some names."""
        return [self.acquire(lock(name, fenced=fenced), block=block) for name in names]

    def acquire(self, primitive: Primitive, *, ttl: float = TTL, block: int = 1) -> AcquireRound:
        """Return the round of a lock."""
        asked = AcquireRound(self.outbox, primitive, ttl, block=block)
        asked.owner, asked.ballot = owner(primitive.names[0]), BALLOT * primitive.fenced
        return asked

    def fenced(self, rounds: Sequence[AcquireRound]) -> FencedAcquires:
        """Return the batch of fenced acquires."""
        return FencedAcquires(rounds, self.clocks, lambda: NOW)

    def releases(self, names: str = NAMES, *, quiet: bool = False) -> list[ReleaseRound]:
        """Return the rounds of some releases."""
        return [
            ReleaseRound(self.outbox, lock(name), owner(name), TTL, quiet=quiet, unsent=()) for name in names
        ]

    def extensions(self, names: str = NAMES, *, fence: int = 0, sentinel: bool = True) -> list[ExtendRound]:
        """Return the rounds of some extensions."""
        return [
            ExtendRound(
                self.outbox,
                lock(name, fenced=fence > 0, sentinel=sentinel),
                owner(name),
                TTL,
                fence=fence + i if fence else 0,
                heed=lambda _node, _answer: None,
            )
            for i, name in enumerate(names)
        ]


def lock(name: str, *, fenced: bool = True, sentinel: bool = True) -> Primitive:
    """Return the lock of a name."""
    key = b"redlock:" + name.encode()
    counters = (b"redlock:fence:{%b}" % key,) if fenced else ()
    meta = b"redlock:{meta}" if sentinel or fenced else None
    return Primitive(MUTEX, (name,), (key,), counters=counters, sentinel=meta, fence_ttl=600.0)


def owner(name: str) -> bytes:
    """Return the owner value that a name is asked for with."""
    return b"%b:1:me" % (name.encode() * 40)


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


def push(*parts: bytes) -> Any:
    """Return what RESP3 pushes, as the parser has it."""
    reader = hiredis.Reader()
    reader.feed(b">%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts))
    pushed = reader.gets()
    assert type(pushed) is hiredis.PushNotification
    return pushed


GRANTED, REFUSED, SILENT = Vote.GRANTED, Vote.REFUSED, Vote.SILENT

# -- what is sent ------------------------------------------------------------------------------------


def whole(batch: Batch) -> tuple[bytes, ...]:
    """Return what a node sends for a script's batch, with a stamp without content and a tag."""
    stamp = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in STAMP) if batch.stamped else b""
    (command,) = parsed(batch.packed + stamp + b"$3\r\n042\r\n")
    return command


@virtual
async def test_fenced_acquires_are_what_single_ones_say():
    """Keys in pairs and the sentinel, what all have in common once, then the owners."""
    rounds = Stage().acquires(block=4)
    singles = [words(one.command) for one in rounds]
    script, digest, count, *rest = whole(Stage().fenced(rounds))
    assert (script, digest, count) == (b"EVALSHA", _scripts.ACQUIRE_MANY.digest, b"7")
    # EVALSHA digest 3 lock counter sentinel | owner ttl ballot block fence_ttl
    assert rest[:7] == [*(key for single in singles for key in single[3:5]), singles[0][5]]
    assert rest[7:11] == list(singles[0][7:11])
    assert rest[11:14] == [single[6] for single in singles]
    assert rest[14:] == [*STAMP, TAG]


@virtual
async def test_plain_acquires_are_the_pages_command():
    """One behind the other, as for each alone; behind the last one look at the sentinel."""
    rounds = Stage().acquires(fenced=False)
    batch = PlainAcquires(rounds)
    assert parsed(batch.packed) == [*(words(one.command) for one in rounds), (b"GET", b"redlock:{meta}")]
    assert (batch.replies, batch.probed, batch.script) == (4, True, None)


@virtual
async def test_without_a_sentinel_there_is_nothing_to_look_at():
    """Plain acquires of a manager that trusts its nodes' memory."""
    stage = Stage()
    primitive = lock("a", fenced=False, sentinel=False)
    rounds = [stage.acquire(primitive, ttl=0.0015)]
    batch = PlainAcquires(rounds)
    assert parsed(batch.packed) == [(b"SET", b"redlock:a", owner("a"), b"NX", b"PX", b"2")]
    assert (batch.replies, batch.probed) == (1, False)


@pytest.mark.parametrize("quiet", [False, True])
@virtual
async def test_releases_are_what_single_ones_say(quiet: bool):
    """The keys, whether they are told, the owners."""
    rounds = Stage().releases(quiet=quiet)
    singles = [words(one.command) for one in rounds]
    batch = Releases(rounds)
    assert whole(batch) == (
        b"EVALSHA", _scripts.RELEASE_MANY.digest, b"3", *(single[3] for single in singles), singles[0][7],
        *(single[4] for single in singles), TAG,
    )  # fmt: skip
    assert singles[0][7] == (b"" if quiet else b"1")


@pytest.mark.parametrize("sentinel", [False, True])
@virtual
async def test_plain_extensions_are_what_single_ones_say(sentinel: bool):
    """The keys, and the sentinel where there is one; the ttl, no life of counters, the owners."""
    rounds = Stage().extensions(sentinel=sentinel)
    batch = Extensions(rounds)
    keys = [b"redlock:a", b"redlock:b", b"redlock:c"] + [b"redlock:{meta}"] * sentinel
    stamp = STAMP if sentinel else ()
    assert whole(batch) == (
        b"EVALSHA", _scripts.EXTEND_MANY.digest, b"%d" % len(keys), *keys, b"10000", b"", *map(owner, NAMES),
        *stamp, TAG,
    )  # fmt: skip


@virtual
async def test_fenced_extensions_are_what_single_ones_say():
    """Keys in pairs and the sentinel; each owner with its own fence."""
    rounds = Stage().extensions(fence=BALLOT)
    singles = [words(one.command) for one in rounds]  # … owner ttl fence fence_ttl
    rest = list(whole(Extensions(rounds))[3:])
    assert rest[:7] == [*(key for single in singles for key in single[3:5]), singles[0][5]]
    assert rest[7:9] == [singles[0][7], singles[0][9]]
    assert rest[9:15] == [word for single in singles for word in (single[6], single[8])]
    assert rest[15:] == [*STAMP, TAG]


@virtual
async def test_in_full_it_is_the_same_with_the_source():
    """For a server that does not know the script."""
    stage = Stage()
    for batch in (
        stage.fenced(stage.acquires()), Releases(stage.releases()), Extensions(stage.extensions()),
    ):  # fmt: skip
        script = batch.script
        assert script is not None
        more = (b"$0\r\n\r\n" * len(STAMP) if batch.stamped else b"") + b"$3\r\n042\r\n"
        ((verb, source, *rest),) = parsed(batch.packed_in_full + more)
        assert (verb, source) == (b"EVAL", script.source)
        assert tuple(rest) == whole(batch)[2:]


# -- fenced acquires ---------------------------------------------------------------------------------


@virtual
async def test_all_granted_at_the_ballot():
    """Each lock has the node's grant, with its fence and time, and agrees: the next even number (R21)."""
    stage = Stage()
    rounds = stage.acquires(block=4)
    assert stage.fenced(rounds).take(1, [TAG, MICROSECONDS, *[BALLOT + 4] * 3], TAG, stage.fail)
    assert [one.answers for one in rounds] == [[None, Answer(GRANTED, fence=BALLOT + 4, time=TIME), None]] * 3
    assert [(one.granted, one.pending, one.agreed) for one in rounds] == [(1, 2, 1)] * 3
    assert all(one.verdict is Verdict.PENDING and not one.stragglers for one in rounds)


@virtual
async def test_each_lock_has_its_own_answer():
    """Granted at another fence, refused for a while, refused without end; none of them agrees."""
    stage = Stage()
    rounds = stage.acquires("abcd")
    answers = [BALLOT + 1, -1500, 0, BALLOT]
    assert stage.fenced(rounds).take(0, [TAG, MICROSECONDS, *answers], TAG, stage.fail)
    assert [one.answers[0] for one in rounds] == [
        Answer(GRANTED, fence=BALLOT + 1, time=TIME),
        Answer(REFUSED, wait=1.5),
        Answer(REFUSED, wait=None),
        Answer(GRANTED, fence=BALLOT, time=TIME),
    ]
    assert [one.agreed for one in rounds] == [0, 0, 0, 1]
    assert [one.stragglers for one in rounds] == [True, False, False, False]


@virtual
async def test_one_locks_error_is_its_own():
    """It is told as of the single command, and silence for that lock alone."""
    stage = Stage()
    rounds = stage.acquires()
    assert stage.fenced(rounds).take(2, [TAG, MICROSECONDS, BALLOT, WRONG, BALLOT], TAG, stage.fail)
    assert votes(rounds, 2) == [GRANTED, SILENT, GRANTED]
    ((command, node, message),) = stage.failures
    assert (command.owner, node, message) == (owner("b"), 2, WRONG.decode())
    assert command.script is _scripts.ACQUIRE


@virtual
async def test_without_a_vote_all_are_silent():
    """The node's time alone."""
    stage = Stage()
    rounds = stage.acquires()
    assert stage.fenced(rounds).take(0, [TAG, MICROSECONDS], TAG, stage.fail)
    assert [one.answers[0] for one in rounds] == [Answer(SILENT, SENTINEL_CHANGED)] * 3
    assert [(one.silent, one.agreed) for one in rounds] == [(1, 0)] * 3
    assert stage.failures == []


NO_ANSWERS = [
    pytest.param([b"041", MICROSECONDS, BALLOT, BALLOT, BALLOT], id="another's tag"),
    pytest.param([MICROSECONDS, BALLOT, BALLOT, BALLOT], id="no tag"),
    pytest.param([TAG], id="nothing behind the tag"),
    pytest.param([TAG, MICROSECONDS, BALLOT, BALLOT], id="a lock too few"),
    pytest.param([TAG, MICROSECONDS, BALLOT, BALLOT, BALLOT, BALLOT], id="a lock too many"),
    pytest.param([TAG, b"now", BALLOT, BALLOT, BALLOT], id="a time that is none"),
    pytest.param([TAG, None, BALLOT, BALLOT, BALLOT], id="no time"),
    pytest.param([TAG, MICROSECONDS, BALLOT, None, BALLOT], id="nothing for a lock"),
    pytest.param([TAG, MICROSECONDS, BALLOT, 1.5, BALLOT], id="a double"),
    pytest.param([TAG, MICROSECONDS, BALLOT, [1, 0, 0], BALLOT], id="a release's"),
    pytest.param([], id="an empty list"),
    pytest.param(None, id="nil"),
    pytest.param(b"OK", id="OK"),
    pytest.param(1, id="a number"),
    pytest.param(hiredis.ReplyError("BUSY"), id="an error"),
    pytest.param(push(TAG, b"1"), id="what is pushed"),
    pytest.param((TAG, MICROSECONDS, BALLOT, BALLOT, BALLOT), id="another type"),
]


@pytest.mark.parametrize("reply", NO_ANSWERS)
@virtual
async def test_what_is_no_answer_to_acquires(reply: Any):
    """No lock hears of it."""
    stage = Stage()
    rounds = stage.acquires()
    assert not stage.fenced(rounds).take(0, reply, TAG, stage.fail)
    assert votes(rounds) == [None] * 3
    assert [one.agreed for one in rounds] == [0] * 3
    assert stage.failures == []


@virtual
async def test_a_grant_by_a_clock_that_jumped_does_not_agree():
    """It is a vote as ever, but no part of a certificate (R14)."""
    stage = Stage()
    stage.clocks.sample(0, NOW - 0.001, NOW, TIME)
    jumped = [TAG, MICROSECONDS + 3_600_000_000, *[BALLOT] * 3]
    for answers in (jumped, [*jumped[:4], BALLOT + 1]):
        rounds = stage.acquires()
        batch = stage.fenced(rounds)
        assert batch.take(0, answers, TAG, stage.fail)
        assert votes(rounds) == [GRANTED] * 3
        assert [one.agreed for one in rounds] == [0] * 3
        assert batch.take(1, jumped, TAG, stage.fail)  # not known to have jumped
        assert [one.agreed for one in rounds] == [1] * 3


@virtual
async def test_limits_are_those_of_what_a_clock_watch_believes():
    """What is asked first never lets through what the watch would not, whatever it has come to know."""
    stage = Stage()
    clocks = stage.clocks
    assert clocks.limits == [math.inf] * SIZE
    for node, late in enumerate((0.0, 0.05, -2.0)):
        clocks.sample(node, NOW - 0.01, NOW, TIME + late)
    clocks.sample(1, NOW, NOW + 0.01, TIME + 5)  # a step: suspected
    assert clocks.suspicions
    clocks.forget(2)
    for node in range(SIZE):
        for ahead in (-10.0, -0.2, 0.0, 0.05, 0.1, 0.11, 0.12, 0.2, 4.9, 10.0):
            heard, time = NOW + 0.02, TIME + 0.02 + ahead
            if time - heard <= clocks.limits[node]:
                assert clocks.believes(node, heard, time)
    assert clocks.limits[1:] == [-math.inf, math.inf]


@virtual
async def test_a_grant_after_the_time_counts_for_nothing():
    """The node is silent in the tally, and so it is in the certificate."""
    stage = Stage()
    for late in ([BALLOT] * 3, [BALLOT, BALLOT + 1, BALLOT]):
        rounds = stage.acquires()
        batch = stage.fenced(rounds)
        for one in rounds:
            one.time_out()
        for node in range(SIZE):
            assert batch.take(node, [TAG, MICROSECONDS, *late], TAG, stage.fail)
        assert [(one.granted, one.silent, one.agreed) for one in rounds] == [(0, 3, 0)] * 3
        assert {vote for node in range(SIZE) for vote in votes(rounds, node)} == {SILENT}
        assert batch.over


@virtual
async def test_a_batch_is_over_when_every_lock_is():
    """Every node has answered to each, or was counted as silent."""
    stage = Stage()
    rounds = stage.acquires()
    batch = stage.fenced(rounds)
    for node in range(SIZE):
        assert not batch.over
        assert batch.take(node, [TAG, MICROSECONDS, *[BALLOT] * 3], TAG, stage.fail)
    assert batch.over
    assert [(one.verdict, one.agreed) for one in rounds] == [(Verdict.WON, 3)] * 3


@virtual
async def test_the_task_is_let_go_with_the_deciding_grant():
    """Not before, and never twice."""
    stage = Stage()
    rounds = stage.acquires()
    batch = stage.fenced(rounds)
    alarms = [one.alarm(lambda tally: tally.verdict is not Verdict.PENDING) for one in rounds]
    alarms[2].cancel()
    for node, rung in enumerate((False, True, True)):
        assert batch.take(node, [TAG, MICROSECONDS, *[BALLOT] * 3], TAG, stage.fail)
        assert [alarm.done() for alarm in alarms] == [rung, rung, True]


# -- plain acquires ----------------------------------------------------------------------------------


def plain(stage: Stage, *, expected: bytes = SENTINEL) -> tuple[list[AcquireRound], PlainAcquires]:
    """Return three plain acquires, asked of node 0."""
    rounds = stage.acquires(fenced=False)
    batch = PlainAcquires(rounds)
    batch.expect(0, expected)
    return rounds, batch


def take_all(stage: Stage, batch: Batch, *replies: object) -> list[bool]:
    """Let a batch take replies of node 0, up to the first that is none."""
    taken = []
    for reply in replies:
        taken.append(batch.take(0, reply, TAG, stage.fail))
        if not taken[-1]:
            break
    return taken


@virtual
async def test_plain_acquires_count_with_the_last_reply():
    """Nothing is handed on before the sentinel was seen behind all of them (R12)."""
    stage = Stage()
    rounds, batch = plain(stage)
    assert take_all(stage, batch, b"OK", b"OK", b"OK") == [True] * 3
    assert votes(rounds) == [None] * 3
    assert take_all(stage, batch, SENTINEL) == [True]
    assert votes(rounds) == [GRANTED] * 3
    assert not any(one.stragglers for one in rounds)


@virtual
async def test_a_nil_is_a_refusal():
    """And never a grant, whichever place it has."""
    for place in range(3):
        stage = Stage()
        rounds, batch = plain(stage)
        replies: list[Any] = [b"OK"] * 3
        replies[place] = None
        assert all(take_all(stage, batch, *replies, SENTINEL))
        assert votes(rounds) == [REFUSED if i == place else GRANTED for i in range(3)]
        assert [one.granted for one in rounds] == [int(i != place) for i in range(3)]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (b"1:another", SENTINEL_CHANGED),
        (None, SENTINEL_CHANGED),
        (b"", SENTINEL_CHANGED),
        (hiredis.ReplyError("WRONGTYPE Operation"), "its sentinel could not be read: WRONGTYPE Operation"),
    ],
)
@virtual
async def test_without_its_sentinel_no_plain_vote_counts(found: Any, reason: str):
    """Grants and refusals alike: the node may have forgotten what it granted before (R12)."""
    stage = Stage()
    rounds, batch = plain(stage)
    assert all(take_all(stage, batch, b"OK", None, b"OK", found))
    assert [one.answers[0] for one in rounds] == [Answer(SILENT, reason)] * 3


@virtual
async def test_a_node_without_an_expected_sentinel_has_no_vote():
    """Not even where nothing is there, as nothing is expected."""
    stage = Stage()
    rounds, batch = plain(stage, expected=b"")
    assert all(take_all(stage, batch, b"OK", b"OK", b"OK", None))
    assert votes(rounds) == [SILENT] * 3


@virtual
async def test_the_sentinel_is_that_of_the_moment_of_asking():
    """Each node has its own."""
    stage = Stage()
    rounds, batch = plain(stage)
    batch.expect(1, b"1:other")
    for reply in (b"OK", b"OK", b"OK", b"1:other"):
        assert batch.take(1, reply, TAG, stage.fail)
        assert batch.take(0, reply, TAG, stage.fail)
    assert votes(rounds, 1) == [GRANTED] * 3
    assert votes(rounds, 0) == [SILENT] * 3


@virtual
async def test_replies_of_nodes_come_in_any_order():
    """Each node's replies are kept apart until its last."""
    stage = Stage()
    rounds, batch = plain(stage)
    batch.expect(1, SENTINEL)
    batch.expect(2, SENTINEL)
    for reply in (b"OK", None, b"OK", SENTINEL):
        for node in (2, 0, 1):
            assert batch.take(node, reply, TAG, stage.fail)
    assert [(one.granted, one.refused) for one in rounds] == [(3, 0), (0, 3), (3, 0)]


@virtual
async def test_a_plain_acquires_error_is_its_own():
    """The others have their votes."""
    stage = Stage()
    rounds, batch = plain(stage)
    assert all(take_all(stage, batch, b"OK", hiredis.ReplyError("OOM command not allowed"), None, SENTINEL))
    assert votes(rounds) == [GRANTED, SILENT, REFUSED]
    ((command, node, message),) = stage.failures
    assert (command.owner, node, message) == (owner("b"), 0, "OOM command not allowed")


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param([b"OK", b"OK", b"OK", b"OK"], id="an OK too many"),
        pytest.param([b"OK", SENTINEL], id="a reply is missing"),
        pytest.param([b"OK", 1], id="a number"),
        pytest.param([b"OK", [TAG, 1, 0, 0]], id="a script's answer"),
        pytest.param([b"QUEUED"], id="another status"),
        pytest.param([push(b"message", b"x", b"y")], id="what is pushed"),
    ],
)
@virtual
async def test_what_is_no_answer_to_plain_acquires(replies: list[Any]):
    """The last of these is refused, and no lock has heard of any."""
    stage = Stage()
    rounds, batch = plain(stage)
    assert take_all(stage, batch, *replies) == [True] * (len(replies) - 1) + [False]
    assert votes(rounds) == [None] * 3
    assert stage.failures == []


@virtual
async def test_late_plain_grants_count_for_nothing():
    """The node was counted as silent between two of its replies."""
    stage = Stage()
    rounds, batch = plain(stage)
    assert all(take_all(stage, batch, b"OK", b"OK"))
    for one in rounds:
        one.time_out()
    assert all(take_all(stage, batch, b"OK", SENTINEL))
    assert votes(rounds) == [SILENT] * 3
    assert [one.granted for one in rounds] == [0] * 3


@virtual
async def test_without_a_look_the_last_reply_is_the_last_acquires():
    """Where no vote rests on a sentinel."""
    stage = Stage()
    rounds = [stage.acquire(lock(name, fenced=False, sentinel=False)) for name in NAMES]
    batch = PlainAcquires(rounds)
    assert all(take_all(stage, batch, b"OK", None))
    assert votes(rounds) == [None] * 3
    assert take_all(stage, batch, b"OK") == [True]
    assert votes(rounds) == [GRANTED, REFUSED, GRANTED]


# -- releases ----------------------------------------------------------------------------------------


@virtual
async def test_all_released():
    """One number for each."""
    stage = Stage()
    rounds = stage.releases()
    assert Releases(rounds).take(0, [TAG, 1, 1, 1], TAG, stage.fail)
    assert [one.answers[0] for one in rounds] == [Answer(GRANTED, "released", wait=0.0)] * 3


@virtual
async def test_each_release_has_its_own_answer():
    """Told to two, not held, another's; and one that failed is told as a single one."""
    stage = Stage()
    rounds = stage.releases("abcde")
    answers = [1, [1, 0, 2], [0, 0, 0], [0, 1500, 1, 0, b"label"], WRONG]
    assert Releases(rounds).take(0, [TAG, *answers], TAG, stage.fail)
    assert [one.answers[0] for one in rounds[:4]] == [
        Answer(GRANTED, "released", wait=0.0),
        Answer(GRANTED, "released", wait=0.0, reached=2),
        Answer(REFUSED, "was not held", wait=0.0),
        Answer(REFUSED, "was not held", wait=1.5, found=b"label", reached=1),
    ]
    assert votes(rounds)[4] is SILENT
    ((command, node, message),) = stage.failures
    assert (command.owner, command.script) == (owner("e"), _scripts.RELEASE)
    assert (node, message) == (0, WRONG.decode())


@virtual
async def test_a_late_release_is_learnt():
    """The votes stay as they were; what became of the key is known from then on."""
    stage = Stage()
    rounds = stage.releases()
    batch = Releases(rounds)
    for one in rounds:
        one.time_out()
    assert batch.take(0, [TAG, 1, 1, 1], TAG, stage.fail)
    assert batch.take(1, [TAG, 1, [0, 0, 0], 1], TAG, stage.fail)
    assert votes(rounds, 0) == [GRANTED] * 3
    assert votes(rounds, 1) == [GRANTED, REFUSED, GRANTED]
    assert [(one.granted, one.silent) for one in rounds] == [(0, 3)] * 3


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param([b"041", 1, 1, 1], id="another's tag"),
        pytest.param([TAG, 1, 1], id="a lock too few"),
        pytest.param([TAG, 1, 1, 1, 1], id="a lock too many"),
        pytest.param([TAG, 1, 2, 1], id="another number"),
        pytest.param([TAG, 1, 0, 1], id="a number that stands for nothing"),
        pytest.param([TAG, 1, [1, 0], 1], id="a list too short"),
        pytest.param([TAG, 1, None, 1], id="nothing for a lock"),
        pytest.param([], id="an empty list"),
        pytest.param(None, id="nil"),
        pytest.param(hiredis.ReplyError("BUSY"), id="an error"),
        pytest.param(push(TAG, b"1"), id="what is pushed"),
    ],
)
@virtual
async def test_what_is_no_answer_to_releases(reply: Any):
    """No lock hears of it."""
    stage = Stage()
    rounds = stage.releases()
    assert not Releases(rounds).take(0, reply, TAG, stage.fail)
    assert votes(rounds) == [None] * 3
    assert stage.failures == []


# -- extensions --------------------------------------------------------------------------------------


@virtual
async def test_all_extended():
    """One number for each."""
    stage = Stage()
    rounds = stage.extensions()
    assert Extensions(rounds).take(0, [TAG, 1, 1, 1], TAG, stage.fail)
    assert [one.answers[0] for one in rounds] == [Answer(GRANTED)] * 3


@virtual
async def test_each_extension_has_its_own_answer():
    """Missing, another's, and the same without a vote; missing ones are heeded, to be topped up (R9)."""
    stage = Stage()
    heeded: list[tuple[int, bool]] = []
    rounds = stage.extensions("abcdefg")
    for one in rounds:
        one._heed = lambda node, answer: heeded.append((node, answer.missing))
    assert Extensions(rounds).take(0, [TAG, 1, 0, -1, 11, 10, 9, WRONG], TAG, stage.fail)
    assert votes(rounds) == [GRANTED, REFUSED, REFUSED, SILENT, SILENT, SILENT, SILENT]
    assert heeded == [(0, False), (0, True), (0, False), (0, False), (0, True), (0, False), (0, False)]
    assert [command.owner for command, _, _ in stage.failures] == [owner("g")]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param([b"041", 1, 1, 1], id="another's tag"),
        pytest.param([TAG, 1, 1], id="a lock too few"),
        pytest.param([TAG, 1, 1, 1, 1], id="a lock too many"),
        pytest.param([TAG, 1, None, 1], id="nothing for a lock"),
        pytest.param([TAG, 1, [1, 0, 0], 1], id="a release's"),
        pytest.param([], id="an empty list"),
        pytest.param(None, id="nil"),
        pytest.param(hiredis.ReplyError("BUSY"), id="an error"),
        pytest.param(push(TAG, b"1"), id="what is pushed"),
    ],
)
@virtual
async def test_what_is_no_answer_to_extensions(reply: Any):
    """No lock hears of it."""
    stage = Stage()
    rounds = stage.extensions()
    assert not Extensions(rounds).take(0, reply, TAG, stage.fail)
    assert votes(rounds) == [None] * 3


# -- in a pipe ---------------------------------------------------------------------------------------


class Piped:
    """A pipe, what failed in it, and what it would have written."""

    def __init__(self) -> None:
        self.failures: list[tuple[bytes, str]] = []
        self.pipe = Pipe(lambda entry, message: self.failures.append((entry[0].owner, message)), lambda: None)
        self.pipe.expected = SENTINEL

    def post(self, *batches: Batch) -> list[tuple[bytes, ...]]:
        """Put batches as of node 1, and return what leaves."""
        data = self.pipe.post(batches, sum(batch.replies for batch in batches), 1)
        assert data
        return parsed(data)


NOSCRIPT = b"-NOSCRIPT No matching script.\r\n"


@virtual
async def test_tags_go_on_from_batch_to_batch():
    """A plain acquire has a place on the connection, too, though no tag."""
    stage, piped = Stage(), Piped()
    sent = piped.post(
        Releases(stage.releases()),
        PlainAcquires(stage.acquires(fenced=False)),
        Extensions(stage.extensions()),
    )
    assert [command[-1] for command in sent if command[0] == b"EVALSHA"] == [TAGS[1], TAGS[6]]
    assert len(piped.pipe) == 6


@virtual
async def test_what_was_queued_before_leaves_before():
    """In one piece with it."""
    stage, piped = Stage(), Piped()
    release, extension = stage.releases("a")[0], stage.extensions("b")[0]
    assert piped.pipe.put(release.command, release, 1)
    sent = piped.post(Extensions([extension]))
    assert [(command[3], command[-1]) for command in sent] == [
        (b"redlock:a", TAGS[1]), (b"redlock:b", TAGS[2]),
    ]  # fmt: skip
    assert piped.pipe.take() == b""


@virtual
async def test_another_tag_ends_the_connection():
    """No lock is given another's answer; all of them are unanswered."""
    stage, piped = Stage(), Piped()
    rounds = stage.releases()
    piped.post(Releases(rounds))
    with pytest.raises(DesynchronisedError, match="cannot belong to 3 locks"):
        piped.pipe.feed(b"*4\r\n$3\r\n002\r\n:1\r\n:1\r\n:1\r\n")
    assert votes(rounds, 1) == [None] * 3
    assert [command.owner for command, _, _ in piped.pipe.abandon()] == list(map(owner, NAMES))


@pytest.mark.parametrize("came", range(4))
@virtual
async def test_an_ended_connection_leaves_every_lock_unanswered(came: int):
    """However many of the plain replies came: the sentinel behind them did not.  Each lock once."""
    stage, piped = Stage(), Piped()
    rounds = stage.acquires(fenced=False)
    releases = stage.releases("de")
    piped.post(PlainAcquires(rounds), Releases(releases))
    piped.pipe.feed(b"+OK\r\n" * came)
    left = [(command.owner, sink, node) for command, sink, node in piped.pipe.abandon()]
    assert left == [(one.owner, one, 1) for one in (*rounds, *releases)]
    assert votes(rounds, 1) == [None] * 3


@virtual
async def test_an_unknown_script_goes_again_with_its_source():
    """The whole batch, behind all else; each lock has its answer once."""
    stage, piped = Stage(), Piped()
    rounds = stage.releases()
    batch = Releases(rounds)
    piped.post(batch)
    piped.pipe.feed(NOSCRIPT)
    ((verb, source, *rest),) = parsed(piped.pipe.take())
    assert (verb, source) == (b"EVAL", _scripts.RELEASE_MANY.source)
    assert tuple(rest[:-1]) == whole(batch)[2:-1]
    assert rest[-1] == TAGS[2]
    piped.pipe.feed(b"*4\r\n$3\r\n002\r\n:1\r\n:1\r\n:1\r\n")
    assert votes(rounds, 1) == [GRANTED] * 3
    assert piped.failures == []


@virtual
async def test_an_unknown_script_does_not_go_again_behind_a_release():
    """Of the batch those locks alone that wait, and were not given up meanwhile; each by itself."""
    stage, piped = Stage(), Piped()
    rounds = stage.acquires()
    for one in rounds[:2]:
        one.alarm(lambda _: False)
    piped.post(stage.fenced(rounds))
    piped.post(Releases(stage.releases("b")))
    piped.pipe.feed(NOSCRIPT)
    sent = [(verb, source, rest[1]) for verb, source, *rest in parsed(piped.pipe.take())]
    assert sent == [(b"EVAL", _scripts.ACQUIRE.source, b"redlock:a")]
    assert votes(rounds, 1) == [None, SILENT, SILENT]
    assert [who for who, _ in piped.failures] == [owner("b"), owner("c")]


@virtual
async def test_what_is_queued_is_looked_at_once_for_a_batch(monkeypatch: pytest.MonkeyPatch):
    """However many plain acquires are under way: no command is made for each of them, for each lock."""
    stage, piped = Stage(), Piped()
    extensions = stage.extensions("abcdefgh")
    for one in extensions:
        one.then(lambda _: False, lambda: None)
    acquires = [one for _ in range(20) for one in stage.acquires("ijkl", fenced=False)]
    piped.post(Extensions(extensions), PlainAcquires(acquires))
    made: list[bytes] = []
    command: Callable[[AcquireRound], Command] = vars(AcquireRound)["command"].fget

    def counted(self: AcquireRound) -> Command:
        made.append(self.owner)
        return command(self)

    monkeypatch.setattr(AcquireRound, "command", property(counted))
    piped.pipe.feed(NOSCRIPT)
    assert parsed(piped.pipe.take())[0][0] == b"EVAL"
    assert len(made) <= 1


@virtual
async def test_an_error_of_the_whole_is_an_error_of_each_lock():
    """As if each command had been answered by it; none is shown the owner value of another."""
    stage, piped = Stage(), Piped()
    rounds = stage.acquires()
    piped.post(stage.fenced(rounds))
    piped.pipe.feed(b"-BUSY with %b and %b\r\n" % (owner("a"), owner("c")))
    assert [one.answers[1] for one in rounds] == [Answer(SILENT, "BUSY with <owner> and <owner>")] * 3
    assert [who for who, _ in piped.failures] == list(map(owner, NAMES))
    assert {message for _, message in piped.failures} == {"BUSY with <owner> and <owner>"}


@virtual
async def test_without_room_nothing_of_a_turn_is_put():
    """Not the first of its batches either: the node is asked one by one then, in the same order."""
    stage, piped = Stage(), Piped()
    acquires = PlainAcquires(stage.acquires(fenced=False))
    while len(piped.pipe) + acquires.replies <= piped.pipe._room:
        assert piped.pipe.post([acquires], acquires.replies, 1)
    before = len(piped.pipe)
    batches = (Releases(stage.releases()), acquires)
    assert piped.pipe.post(batches, 1 + acquires.replies, 1) == b""
    assert len(piped.pipe) == before
    piped.pipe.close()
    assert piped.pipe.post(batches[:1], 1, 1) == b""


@pytest.mark.parametrize(("stands_at", "behind"), [(BALLOT, False), (BALLOT + 5, True)])
@virtual
async def test_what_is_known_of_stragglers_outlives_the_answers(stands_at: int, behind: bool) -> None:
    """A node that was asked for the lock alone stands at the fence, or not, when its answer is gone, too."""
    stage = Stage()
    (asked,) = stage.acquires("a")
    batch = stage.fenced([asked])
    for node in (0, 1):
        assert batch.take(node, [TAG, MICROSECONDS, BALLOT], TAG, stage.fail)
    asked.take(2, Answer(Vote.GRANTED, fence=stands_at, time=TIME))
    assert asked.stragglers is behind
    asked.thin_out()
    assert [answer.fence for answer in asked.answers if answer is not None] == [0, 0, 0]
    assert asked.stragglers is behind
