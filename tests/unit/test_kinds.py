"""The mutex as a value: which commands it builds, and how it reads every answer."""

from __future__ import annotations

import asyncio
import itertools
import random

import hiredis
import pytest

from aioredlock_ng import ExtensionPolicy, LockManager, _scripts
from aioredlock_ng._core.command import Answer, Command, Purpose, Reply, Script, Silence
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._kinds.mutex import Mutex
from aioredlock_ng.testing import MemoryNode, SimLoop

OWNER = b"0123456789abcdef0123456789abcdef01234567:me"
ONE = Mutex(("a",), (b"p:a",))
TWO = Mutex(("a", "b"), (b"p:a", b"p:b"))
NO_ANSWER = Silence("no answer within 0.1 s")
NOT_SENT = Silence("not connected", sent=False)
ERRORS = [NO_ANSWER, NOT_SENT]

every_kind = pytest.mark.parametrize("mutex", [ONE, TWO], ids=["one name", "two names"])


# -- commands ----------------------------------------------------------------------------------------


def test_one_name_is_taken_by_the_pages_set() -> None:
    """``SET key owner NX PX ttl``, without a script."""
    command = ONE.acquire(OWNER, 10.0)
    assert command.words == command.words_in_full == (b"SET", b"p:a", OWNER, b"NX", b"PX", b"10000")


def test_several_names_are_taken_by_one_script() -> None:
    """All keys in one atomic command: all or nothing."""
    command = TWO.acquire(OWNER, 10.0)
    assert command.words == (b"EVALSHA", _scripts.ACQUIRE.digest, b"2", b"p:a", b"p:b", OWNER, b"10000")


@pytest.mark.parametrize(
    ("built", "script", "purpose", "arguments"),
    [
        (lambda mutex: mutex.extend(OWNER, 7.5), _scripts.EXTEND, Purpose.EXTEND, (OWNER, b"7500")),
        (lambda mutex: mutex.top_up(OWNER, 7.5), _scripts.TOP_UP, Purpose.TOP_UP, (OWNER, b"7500")),
        (lambda mutex: mutex.release(OWNER, 7.5), _scripts.RELEASE, Purpose.RELEASE, (OWNER,)),
    ],
    ids=["extend", "top_up", "release"],
)
@every_kind
def test_everything_else_is_an_owner_checked_script(
    mutex: Mutex, built: object, script: Script, purpose: Purpose, arguments: tuple[bytes, ...]
) -> None:
    """The script over all keys, with the owner as its first argument and the ttl in milliseconds."""
    command = built(mutex)  # type: ignore[operator]
    assert isinstance(command, Command)
    assert command.purpose is purpose
    assert command.script is script
    assert (command.keys, command.args) == (mutex.keys, arguments)


@every_kind
def test_every_command_knows_its_owner(mutex: Mutex) -> None:
    """The node ring undoes by owner: all four commands carry it."""
    commands = (
        mutex.acquire(OWNER, 1),
        mutex.extend(OWNER, 1),
        mutex.top_up(OWNER, 1),
        mutex.release(OWNER, 1),
    )
    assert [command.owner for command in commands] == [OWNER] * 4


@every_kind
def test_what_creates_a_key_says_how_long_it_may_live(mutex: Mutex) -> None:
    """An acquire or top-up in doubt is undone for one ttl; a release repeats for as long as it is told."""
    assert mutex.acquire(OWNER, 3.0).keeps == 3.0
    assert mutex.top_up(OWNER, 4.0).keeps == 4.0
    assert mutex.release(OWNER, 5.0).keeps == 5.0
    assert mutex.extend(OWNER, 6.0).keeps == 0.0


@pytest.mark.parametrize(
    ("ttl", "wire"), [(0.0001, b"1"), (0.0014, b"2"), (0.1, b"100"), (86_400.0, b"86400000")]
)
def test_a_ttl_is_rounded_up_on_the_wire(ttl: float, wire: bytes) -> None:
    """A key lives at least as long as its lock, and never 0 ms."""
    assert ONE.acquire(OWNER, ttl).words[-1] == wire
    assert TWO.acquire(OWNER, ttl).words[-1] == wire
    assert ONE.extend(OWNER, ttl).words[-1] == wire
    assert ONE.top_up(OWNER, ttl).words[-1] == wire


# -- which answers can be answers at all -------------------------------------------------------------

SHAPES: list[object] = [None, b"OK", b"QUEUED", b"", 0, 1, -1, 500, [1, 0], [0, -1], [], [1], [1, 2, 3]]


@pytest.mark.parametrize(
    ("command", "fitting"),
    [
        (ONE.acquire(OWNER, 1), [None, b"OK"]),
        (TWO.acquire(OWNER, 1), [0, 1, -1, 500]),
        (ONE.extend(OWNER, 1), [0, 1, -1, 500]),
        (TWO.top_up(OWNER, 1), [0, 1, -1, 500]),
        (ONE.release(OWNER, 1), [[1, 0], [0, -1]]),
        (TWO.release(OWNER, 1), [[1, 0], [0, -1]]),
    ],
    ids=["set", "acquire", "extend", "top_up", "release", "release two"],
)
def test_an_answer_of_another_shape_does_not_fit(command: Command, fitting: list[object]) -> None:
    """Of a list of shapes exactly those fit that the command can be answered with (R15)."""
    assert [shape for shape in SHAPES if command.fits(shape)] == fitting


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
def test_an_acquire_is_read(mutex: Mutex, reply: Reply, vote: Vote, wait: float | None) -> None:
    """Stored is granted; anything else is refused, with the seconds that the key in the way has left."""
    answer = mutex.read_acquire(reply)
    assert (answer.vote, answer.wait) == (vote, wait)


@pytest.mark.parametrize(
    ("reply", "vote", "missing"),
    [(1, Vote.GRANTED, False), (0, Vote.REFUSED, True), (-1, Vote.REFUSED, False)],
)
@every_kind
def test_an_extension_is_read(mutex: Mutex, reply: Reply, vote: Vote, missing: bool) -> None:
    """Extended, gone, or somebody else's: only a key that is gone may be given back (R9)."""
    answer = mutex.read_extend(reply)
    assert (answer.vote, answer.missing) == (vote, missing)
    assert bool(answer.reason) is (vote is Vote.REFUSED)


@pytest.mark.parametrize(
    ("reply", "vote", "wait"),
    [
        ([1, 0], Vote.GRANTED, 0.0),
        ([2, 0], Vote.GRANTED, 0.0),
        ([1, 700], Vote.GRANTED, 0.7),
        ([0, 0], Vote.REFUSED, 0.0),
        ([0, 1500], Vote.REFUSED, 1.5),
        ([0, -1], Vote.REFUSED, None),
    ],
)
@every_kind
def test_a_release_is_read(mutex: Mutex, reply: Reply, vote: Vote, wait: float | None) -> None:
    """Released or was not held, and how long another's key will stay; no time when it has no expiry."""
    answer = mutex.read_release(reply)
    assert (answer.vote, answer.wait) == (vote, wait)


@pytest.mark.parametrize("silence", ERRORS)
@pytest.mark.parametrize("reading", ["read_acquire", "read_extend", "read_release"])
@every_kind
def test_silence_is_read_as_silence(mutex: Mutex, reading: str, silence: Silence) -> None:
    """No answer is neither a grant nor a refusal, and its reason is kept (R1)."""
    answer: Answer = getattr(mutex, reading)(silence)
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
    reader.feed(node.execute(list(command.words_in_full)))
    reply: Reply = reader.gets()
    assert not isinstance(reply, hiredis.ReplyError), reply
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
        answer = TWO.read_extend(ask(node, TWO.extend(OWNER, 9.0)))
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
        answer = TWO.read_release(ask(node, TWO.release(OWNER, 9.0)))
        assert (answer.vote is Vote.GRANTED) is ("ours" in fates)
        assert answer.wait == (5.0 if "theirs" in fates else 0.0)
        assert values(node) == [None if value == OWNER else value for value in before]

    SimLoop.run(main())


@every_kind
def test_an_extension_never_shortens(mutex: Mutex) -> None:
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
