"""The mutex as a value: which commands it builds, and how it reads every answer."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import hiredis
import pytest

from aioredlock_ng import ExtensionPolicy, LockManager, _scripts
from aioredlock_ng._core.command import Answer, Command, Proof, Purpose, Reply, Silence
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.packing import words
from aioredlock_ng._node.pipe import TAGS, untagged
from aioredlock_ng.testing import MemoryNode, SimLoop

OWNER = b"0123456789abcdef0123456789abcdef01234567:me"
ONE = Primitive(MUTEX, ("a",), (b"p:a",))
TWO = Primitive(MUTEX, ("a", "b"), (b"p:a", b"p:b"))
SENTINEL = b"p:{meta}"
BEHIND = (b"p:fence:{p:a}", b"p:fence:{p:b}")
FENCED_ONE = Primitive(MUTEX, ("a",), (b"p:a",), counters=BEHIND[:1], sentinel=SENTINEL, fence_ttl=600.0)
FENCED_TWO = Primitive(
    MUTEX, ("a", "b"), (b"p:a", b"p:b"), counters=BEHIND, sentinel=SENTINEL, fence_ttl=600.0
)
NO_ANSWER = Silence("no answer within 0.1 s")
NOT_SENT = Silence("not connected", sent=False)
ERRORS = [NO_ANSWER, NOT_SENT]

every_kind = pytest.mark.parametrize(
    "mutex", [ONE, TWO, FENCED_ONE, FENCED_TWO], ids=["one name", "two names", "one fenced", "two fenced"]
)
fenced = pytest.mark.parametrize("mutex", [FENCED_ONE, FENCED_TWO], ids=["one name", "two names"])


# -- commands ----------------------------------------------------------------------------------------


def test_one_name_is_taken_by_the_pages_set() -> None:
    """``SET key owner NX PX ttl``, without a script."""
    command = ONE.acquire(OWNER, 10.0)
    assert words(command) == words(command, in_full=True) == (b"SET", b"p:a", OWNER, b"NX", b"PX", b"10000")


def test_several_names_are_taken_by_one_script() -> None:
    """All keys in one atomic command: all or nothing; ballot and block are of no use to it."""
    command = TWO.acquire(OWNER, 10.0)
    keys, args = (b"2", b"p:a", b"p:b"), (OWNER, b"10000", b"0", b"1", b"1")
    assert words(command) == (b"EVALSHA", _scripts.SET_ALL.digest, *keys, *args)


@fenced
def test_a_fence_is_made_by_one_script_whatever_the_number_of_names(mutex: Primitive) -> None:
    """Locks, counters, sentinel; owner, ttl, ballot, block, the counters' life; then the stamp (R10, R43)."""
    command = mutex.acquire(OWNER, 10.0, 12345, 7)
    size = len(mutex.names)
    assert command.script is _scripts.ACQUIRE
    assert command.keys == (*mutex.keys, *BEHIND[:size], SENTINEL)
    assert command.args == (OWNER, b"10000", b"12345", b"7", b"600000")
    assert command.proof is Proof.STAMPED


def test_a_plain_vote_is_proven_only_where_there_is_a_sentinel() -> None:
    """The plain SET stays as it is; with a quarantine the node looks at the sentinel behind it (R12)."""
    watched = Primitive(MUTEX, ONE.names, ONE.keys, sentinel=SENTINEL)
    assert words(watched.acquire(OWNER, 10.0)) == words(ONE.acquire(OWNER, 10.0))
    assert [one.acquire(OWNER, 1.0).proof for one in (ONE, TWO, watched)] == [
        Proof.NONE, Proof.NONE, Proof.PROBED
    ]  # fmt: skip


@fenced
def test_a_raise_is_an_owner_checked_script(mutex: Primitive) -> None:
    """Over locks, counters and the sentinel; it counts as a vote, so that it is stamped (R10)."""
    command = mutex.raise_(OWNER, 777)
    assert (command.purpose, command.script, command.proof) == (Purpose.RAISE, _scripts.RAISE, Proof.STAMPED)
    assert command.keys == (*mutex.keys, *BEHIND[: len(mutex.names)], SENTINEL)
    assert command.args == (OWNER, b"777", b"600000")
    assert not command.purpose.creates


@pytest.mark.parametrize(
    ("build", "script", "arguments"),
    [
        (Primitive.extend, _scripts.EXTEND, (OWNER, b"7500")),
        (Primitive.top_up, _scripts.TOP_UP, (OWNER, b"7500")),
        (Primitive.release, _scripts.RELEASE, (OWNER,)),
    ],
    ids=["extend", "top_up", "release"],
)
@pytest.mark.parametrize("fence", [0, 777])
@every_kind
def test_everything_else_is_an_owner_checked_script(mutex, fence, build, script, arguments):
    """The script over all keys, with the owner as its first argument, the ttl in milliseconds, and the
    fence; it goes along with the counters where there is one, and an extension of it is a vote (R10, R12).
    """
    fence *= mutex.fenced
    command = build(mutex, OWNER, 7.5, fence)
    assert command.script is script
    assert command.purpose.name == build.__name__.upper()
    counters = BEHIND[: len(mutex.names)] if fence else ()
    sentinel = (SENTINEL,) if script is _scripts.EXTEND and mutex.fenced else ()
    assert command.keys == (*mutex.keys, *counters, *sentinel)
    loud = (b"1",) if script is _scripts.RELEASE else ()
    assert command.args == (*arguments, b"%d" % fence, b"600000" if mutex.fenced else b"1", *loud)
    assert command.proof is (Proof.STAMPED if sentinel else Proof.NONE)


@every_kind
@pytest.mark.parametrize("fence", [0, 777])
def test_a_release_is_loud_unless_it_is_told_to_be_quiet(mutex: Primitive, fence: int) -> None:
    """The last argument of its script says so; all the rest is the same."""
    fence *= mutex.fenced
    loud, quiet = mutex.release(OWNER, 7.5, fence), mutex.release(OWNER, 7.5, fence, quiet=True)
    assert (loud.args[-1], quiet.args[-1]) == (b"1", b"")
    assert (loud.keys, loud.args[:-1]) == (quiet.keys, quiet.args[:-1])


@every_kind
def test_a_release_of_what_stays_says_for_how_long_and_is_quiet(mutex: Primitive) -> None:
    """Milliseconds, rounded up, behind all the rest; what is not free yet is not published (R34)."""
    plain = mutex.release(OWNER, 7.5)
    for quiet in (False, True):
        stays = mutex.release(OWNER, 7.5, quiet=quiet, stays=0.0011)
        assert (stays.keys, stays.args) == (plain.keys, (*plain.args[:-1], b"", b"2"))


@every_kind
def test_every_command_knows_its_owner(mutex: Primitive) -> None:
    """The node ring undoes by owner: all four commands carry it."""
    commands = (
        mutex.acquire(OWNER, 1, 5 * mutex.fenced),
        mutex.extend(OWNER, 1),
        mutex.top_up(OWNER, 1),
        mutex.release(OWNER, 1),
    )
    assert [command.owner for command in commands] == [OWNER] * 4


@every_kind
def test_what_creates_a_key_says_how_long_it_may_live(mutex: Primitive) -> None:
    """An unresolved acquire or top-up is undone for one ttl; a release repeats for as long as it is told."""
    assert mutex.acquire(OWNER, 3.0, 5 * mutex.fenced).keeps == 3.0
    assert mutex.top_up(OWNER, 4.0).keeps == 4.0
    assert mutex.release(OWNER, 5.0).keeps == 5.0
    assert mutex.extend(OWNER, 6.0).keeps == 0.0


@pytest.mark.parametrize(
    ("ttl", "wire"), [(0.0001, b"1"), (0.0014, b"2"), (0.1, b"100"), (86_400.0, b"86400000")]
)
def test_a_ttl_is_rounded_up_on_the_wire(ttl: float, wire: bytes) -> None:
    """A key lives at least as long as its lock, and never 0 ms."""
    assert ONE.acquire(OWNER, ttl).args == (OWNER, b"NX", b"PX", wire)
    assert TWO.acquire(OWNER, ttl).args[:2] == (OWNER, wire)
    assert FENCED_ONE.acquire(OWNER, ttl, 5).args[:2] == (OWNER, wire)
    assert ONE.extend(OWNER, ttl).args[:2] == (OWNER, wire)
    assert ONE.top_up(OWNER, ttl).args[:2] == (OWNER, wire)


# -- which answers can be answers at all -------------------------------------------------------------

SHAPES: list[object] = [None, b"OK", b"QUEUED", b"", 0, 1, -1, 500, [1, 0], [], [1], [1, 2, 3], [1, 0, True],
                        [1, 2, b"3"], [0, -1, 0, 0], [0, 5, 0, 2], [0, 5, 0, b"x"], [0, 5, 0, 1, b"x"],
                        [0, 5, 0, 1, 1], [0, 5, 0, b"x", b"y"], [0, 5, 0, 1, b"x", b"y"]]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "fitting"),
    [
        (ONE.acquire(OWNER, 1), [None, b"OK"]),
        (TWO.acquire(OWNER, 1), [0, 1, -1, 500]),
        (FENCED_ONE.acquire(OWNER, 1, 5), [[1, 2, 3]]),
        (FENCED_TWO.raise_(OWNER, 1), [0, 1, -1, 500]),
        (ONE.extend(OWNER, 1), [0, 1, -1, 500]),
        (TWO.top_up(OWNER, 1), [0, 1, -1, 500]),
        (ONE.release(OWNER, 1), [[1, 2, 3], [0, -1, 0, 0], [0, 5, 0, 1, b"x"]]),
        (TWO.release(OWNER, 1), [[1, 2, 3], [0, -1, 0, 0], [0, 5, 0, 1, b"x"]]),
    ],
    ids=["set", "acquire", "fenced", "raise", "extend", "top_up", "release", "release two"],
)
def test_an_answer_of_another_shape_does_not_fit(command: Command, fitting: list[object]) -> None:
    """Of a list of shapes exactly those fit that the command can be answered with (R15)."""
    assert [shape for shape in SHAPES if command.fits(shape)] == fitting


def test_a_push_is_no_answer() -> None:
    """What a server tells unasked is a list, too, and fits nothing, whatever is in it (R13, R15)."""
    reader = hiredis.Reader()
    for numbers in ([b"1", b"2", b"3"], [b"1"], [b"0", b"0"]):
        reader.feed(b">%d\r\n" % len(numbers) + b"".join(b":%b\r\n" % number for number in numbers))
        push = reader.gets()
        assert isinstance(push, list)
        for mutex in (ONE, TWO, FENCED_ONE, FENCED_TWO):
            acquire = mutex.acquire(OWNER, 1, 5 * mutex.fenced)
            commands = [acquire, mutex.extend(OWNER, 1), mutex.release(OWNER, 1)]
            assert not any(command.fits(push) for command in commands)


# -- readings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mutex", "reply", "vote", "wait"),
    [
        (ONE, b"OK", Vote.GRANTED, None),
        (ONE, None, Vote.REFUSED, None),
        (TWO, 0, Vote.GRANTED, None),
        (TWO, 1, Vote.REFUSED, 0.001),
        (TWO, 2500, Vote.REFUSED, 2.5),
        (TWO, -1, Vote.REFUSED, None),
    ],
)
def test_an_acquire_is_read(mutex: Primitive, reply: Reply, vote: Vote, wait: float | None) -> None:
    """Stored is granted; anything else is refused, with the seconds that the key in the way has left."""
    answer = mutex.read_acquire(reply)
    assert (answer.vote, answer.wait) == (vote, wait)


@pytest.mark.parametrize(
    ("reply", "vote", "fence", "wait"),
    [
        ([1, 4711, 8_000_000], Vote.GRANTED, 4711, None),
        ([0, 2500, 8_000_000], Vote.REFUSED, 0, 2.5),
        ([0, -1, 8_000_000], Vote.REFUSED, 0, None),
        ([-1, 0, 8_000_000], Vote.SILENT, 0, None),
    ],
)
@fenced
def test_a_fenced_acquire_is_read(mutex, reply, vote, fence, wait):
    """The counter and the time of a node that granted; a node without a vote is silent (R10, R12, R14)."""
    answer = mutex.read_acquire(reply)
    assert (answer.vote, answer.fence, answer.wait) == (vote, fence, wait)
    assert answer.time == (8.0 if vote is Vote.GRANTED else 0.0)
    assert bool(answer.reason) is (vote is Vote.SILENT)
    assert answer.sent


@pytest.mark.parametrize(
    ("reply", "vote", "reason"),
    [
        (1, Vote.GRANTED, ""),
        (0, Vote.REFUSED, "not ours"),
        (-1, Vote.SILENT, "lost its memory"),
        (-2, Vote.SILENT, "clock"),
        (-3, Vote.SILENT, "above"),
    ],
)
@fenced
def test_a_raise_is_read(mutex: Primitive, reply: Reply, vote: Vote, reason: str) -> None:
    """Only a node that stands at the fence is part of the certificate (R10)."""
    answer = mutex.kind.raise_.read(reply)
    assert answer.vote is vote
    assert reason in answer.reason


@pytest.mark.parametrize(
    ("reply", "vote", "missing"),
    [
        (1, Vote.GRANTED, False),
        (0, Vote.REFUSED, True),
        (-1, Vote.REFUSED, False),
        (11, Vote.SILENT, False),
        (10, Vote.SILENT, True),
        (9, Vote.SILENT, False),
    ],
)
@every_kind
def test_an_extension_is_read(mutex: Primitive, reply: Reply, vote: Vote, missing: bool) -> None:
    """Extended, gone, or another owner's: only a key that is gone may be given back (R9); and all that by
    a node that has no vote (R12).
    """
    answer = mutex.kind.extend.read(reply)
    assert (answer.vote, answer.missing) == (vote, missing)
    assert bool(answer.reason) is (vote is not Vote.GRANTED)


@pytest.mark.parametrize(
    ("reply", "vote", "wait"),
    [
        ([1, 0, 0], Vote.GRANTED, 0.0),
        ([2, 0, 0], Vote.GRANTED, 0.0),
        ([1, 700, 0, 1], Vote.GRANTED, 0.7),
        ([1, -1, 3], Vote.GRANTED, None),
        ([1, 0, 3], Vote.GRANTED, 0.0),
        ([2, 700, -1], Vote.GRANTED, 0.7),
        ([0, 0, 0], Vote.REFUSED, 0.0),
        ([0, 1500, 0, 1], Vote.REFUSED, 1.5),
        ([0, -1, -1, 0], Vote.REFUSED, None),
        ([0, 1500, 0, 0, b"billing-7"], Vote.REFUSED, 1.5),
        ([0, 1500, 2, 1, b"billing-7"], Vote.REFUSED, 1.5),
    ],
)
@every_kind
def test_a_release_is_read(mutex: Primitive, reply: list[Any], vote: Vote, wait: float | None) -> None:
    """Released or was not held, how long another's key will stay (no time when it has no expiry), how many
    were told, and what is known of the other holder.
    """
    released = vote is Vote.GRANTED
    reason = "released" if released else "was not held"
    foreign, holder = reply[3:4] == [1], reply[4] if reply[4:] else None
    assert mutex.kind.release.read(reply) == Answer(
        vote, reason, wait=wait, reached=reply[2], found=holder, foreign=foreign
    )


@pytest.mark.parametrize("silence", ERRORS)
@pytest.mark.parametrize("reading", ["acquire", "raise_", "extend", "release"])
@every_kind
def test_silence_is_read_as_silence(mutex: Primitive, reading: str, silence: Silence) -> None:
    """No answer is neither a grant nor a refusal, and its reason is kept (R1)."""
    answer: Answer = getattr(mutex.kind, reading).read(silence)
    assert (answer.vote, answer.reason) == (Vote.SILENT, silence.reason)


@pytest.mark.parametrize("silence", ERRORS)
def test_an_acquire_that_never_left_is_remembered_as_such(silence: Silence) -> None:
    """Only what provably never left needs no undoing on that node (R5)."""
    assert ONE.read_acquire(silence).sent is silence.sent
    assert TWO.read_acquire(silence).sent is silence.sent


# -- commands and readings together, on a master -----------------------------------------------------


def ask(node: MemoryNode, command: Command) -> Reply:
    """Execute a command and return its answer, which must fit."""
    reader = hiredis.Reader()
    tag = () if command.script is None else (TAGS[0],)
    reader.feed(node.execute([*words(command, in_full=True), *tag]))
    reply: Any = reader.gets()
    assert not isinstance(reply, hiredis.ReplyError), reply
    if tag:
        reply = untagged(reply, *tag)
    assert command.fits(reply), (command, reply)
    return reply


FATES = ("free", "ours", "theirs")


@pytest.mark.parametrize("fates", list(itertools.product(FATES, repeat=2)), ids="-".join)
def test_two_names_are_one_lock(fates: tuple[str, str]) -> None:
    """For every fate of two keys: acquire, extend, top-up and release do all or nothing, and never
    another's.
    """

    def prepared() -> MemoryNode:
        node = MemoryNode()
        for key, fate in zip(TWO.keys, fates, strict=True):
            if fate != "free":
                node.set(key, OWNER if fate == "ours" else b"theirs", 5.0)
        return node

    def values(node: MemoryNode) -> list[bytes | None]:
        return [node.get(key) for key in TWO.keys]

    async def main() -> None:
        before = values(prepared())
        node = prepared()
        granted = TWO.read_acquire(ask(node, TWO.acquire(OWNER, 9.0))).vote is Vote.GRANTED
        assert granted is (set(fates) == {"free"})
        assert values(node) == ([OWNER, OWNER] if granted else before)

        node = prepared()
        answer = TWO.kind.extend.read(ask(node, TWO.extend(OWNER, 9.0)))
        assert (answer.vote is Vote.GRANTED) is (set(fates) == {"ours"})
        assert answer.missing is ("free" in fates and "theirs" not in fates)
        assert values(node) == before, "never creates"
        expected = 9.0 if answer.vote is Vote.GRANTED else 5.0
        assert {node.ttl(key) for key in TWO.keys} - {None} <= {expected}

        node = prepared()
        granted = TWO.read_acquire(ask(node, TWO.top_up(OWNER, 9.0))).vote is Vote.GRANTED
        assert granted is ("theirs" not in fates)
        assert values(node) == ([OWNER, OWNER] if granted else before)
        if granted:
            assert [node.ttl(key) for key in TWO.keys] == [9.0, 9.0]

        node = prepared()
        answer = TWO.kind.release.read(ask(node, TWO.release(OWNER, 9.0)))
        assert (answer.vote is Vote.GRANTED) is ("ours" in fates)
        assert answer.wait == (5.0 if "theirs" in fates else 0.0)
        assert values(node) == [None if value == OWNER else value for value in before]

    SimLoop.run(main())


@pytest.mark.parametrize("mutex", [ONE, TWO], ids=["one name", "two names"])
def test_an_extension_never_shortens(mutex: Primitive) -> None:
    """A key that lives longer than asked for keeps its expiry (R8)."""

    async def main() -> None:
        node = MemoryNode()
        for key in mutex.keys:
            node.set(key, OWNER, 20.0)
        assert ask(node, mutex.extend(OWNER, 9.0)) == 1
        assert ask(node, mutex.top_up(OWNER, 9.0)) == 0
        assert {node.ttl(key) for key in mutex.keys} == {20.0}

    SimLoop.run(main())


@pytest.mark.parametrize("lost", range(5))
def test_a_master_that_lost_the_key_gets_it_back_wherever_it_answers(lost: int) -> None:
    """In a won round the key is topped up on the node that misses it, whether it answers first or last
    (R9).
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        nodes = [MemoryNode(latency=0.001 * (number + 1)) for number in range(5)]
        off = ExtensionPolicy.off()
        async with LockManager(nodes, clock=loop.clock, random=random.Random(1), extension=off) as manager:
            lease = await manager.lock("res").acquire()
            await asyncio.sleep(0.1)
            nodes[lost].delete(b"redlock:res")
            await lease.extend()
            await asyncio.sleep(0.1)
            assert [node.get(b"redlock:res") is not None for node in nodes] == [True] * 5
            await lease.release()

    SimLoop.run(main())
