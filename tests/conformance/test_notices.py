"""Release notices: what a release tells its listeners, on every kind of master (R13)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._node.pipe import untagged
from tests.conformance.rules import TAG
from tests.conformance.stage import KEEP_MS, Stage, counters, locks, staged
from tests.conformance.tools import OTHERS, OURS, WRONG, Master
from tests.listening import Listener, listen
from tests.servers import Nodes, ask

LOUD = b"1"
LAST = b"redlock:last"
"""A channel on which a test says that nothing more comes."""

_numbers = itertools.count()

FOREIGN_VALUES = {
    "redis-py": b"8e0a0c0e5b6a11ee9f1f0242ac120002",
    "node-redlock": b"3b2f0d6c9a7e4d51b8a6c0f1e2d3b4a5",
    "pottery, aioredlock": b"6d9c1f1e-61ce-4a0e-9d4e-6f7c6ad1a2b3",
    "redlock-py": b"aB3dE5fG7hI9jK1lM3nO5p",
    "40 hex digits": b"0123456789abcdef0123456789abcdef01234567",
    "Redisson": b"285475da-9152-4c83-822a-67ee2f116a79:52",
    "a colon too early": b"a:" + b"0" * 38 + b":1700000000000:x",
    "empty": b"",
    "binary": bytes(range(256)).replace(b":", b""),
}
"""What other libraries write under a lock."""

with_and_without_a_fence = pytest.mark.parametrize("fence", [0, 777], ids=["plain", "fenced"])


@pytest.fixture
async def stage(master: Master) -> AsyncIterator[Stage]:
    """Give an empty node with a sentinel."""
    async with staged(master) as made:
        yield made


@pytest.fixture
async def make_listener(master: Master) -> AsyncIterator[Callable[..., Any]]:
    """Give a function that makes a listener to the channels of names."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(names: str) -> Listener:
            listener = await listen(master.spec)
            stack.callback(listener.transport.close)
            await listener.subscribe(*locks(names), LAST)
            return listener

        yield make


async def all_told(listeners: Sequence[Listener]) -> list[list[tuple[bytes, bytes]]]:
    """Return key and message of the notices that each has got, all: a last message comes behind them.

    Each time another one: that of the last time may be there yet.
    """
    last = b"%d" % next(_numbers)
    for listener in listeners[:1]:
        listener.send(b"PUBLISH", LAST, last)
    told = []
    for listener in listeners:
        while [b"message", LAST, last] not in listener.told:
            await listener.until(len(listener.told) + 1)
        notices = [push for push in listener.told if isinstance(push, list) and push[1] != LAST]
        assert all(push[:1] == [b"message"] for push in notices)
        told.append([(push[1], push[2]) for push in notices])
    return told


def hold(stage: Stage, names: str) -> None:
    """Let us hold locks."""
    for key in locks(names):
        stage.put(key, OURS, 30.0)


def told(names: str, *counts: int) -> list[tuple[bytes, bytes]]:
    """Return the notices of these names, each of which says how many were told."""
    return [(key, b"%d" % count) for key, count in zip(locks(names), counts, strict=True)]


@with_and_without_a_fence
async def test_a_release_tells_the_channel_of_every_key_that_it_deleted(
    stage: Stage, make_listener: Callable[..., Any], fence: int
) -> None:
    """How many listen there, behind the deletion; the answer is how many listen where the most do."""
    listeners = [await make_listener("abcd"), await make_listener("ac"), await make_listener("cd")]
    hold(stage, "ab")
    stage.put(locks("c")[0], OTHERS)
    assert await stage.release(fence, "abcd", loud=LOUD) == [2, -1, 3, 0]
    assert await all_told(listeners) == [told("ab", 2, 1), told("a", 2), []]


@with_and_without_a_fence
async def test_a_quiet_release_publishes_nothing(
    stage: Stage, make_listener: Callable[..., Any], fence: int
) -> None:
    """It deletes just the same, and counts no listener."""
    listener = await make_listener("abc")
    hold(stage, "ab")
    stage.put(locks("c")[0], OTHERS)
    assert await stage.release(fence, "abc") == [2, -1, 0, 0]
    assert stage.stored("ab")[:2] == [None, None]
    assert await all_told([listener]) == [[]]


@with_and_without_a_fence
async def test_a_release_that_deletes_nothing_publishes_nothing(
    stage: Stage, make_listener: Callable[..., Any], fence: int
) -> None:
    """Neither of what was not there nor of what is another's; it counts the listeners all the same (R33)."""
    listeners = [await make_listener("ab"), await make_listener("b")]
    assert await stage.release(fence, "a", loud=LOUD) == [0, 0, 1]
    stage.put(locks("b")[0], OTHERS)
    assert await stage.release(fence, "ab", loud=LOUD) == [0, -1, 2, 0]
    assert await all_told(listeners) == [[], []]


async def test_a_batch_of_releases_tells_each_channel(
    stage: Stage, make_listener: Callable[..., Any]
) -> None:
    """Each as a release of its own does; a number says that none listens (R42)."""
    listeners = [await make_listener("acd"), await make_listener("ae")]
    hold(stage, "abd")
    stage.put(locks("c")[0], OTHERS)
    stage.put(locks("f")[0], WRONG)
    *answers, error = await stage.release_many("abcdef", loud=LOUD)
    assert answers == [[1, 0, 2], 1, [0, -1, 1, 0], [1, 0, 1], [0, 0, 1]]
    assert error.startswith(b"WRONGTYPE")
    assert await all_told(listeners) == [told("a", 2) + told("d", 1), told("a", 2)]
    hold(stage, "ab")
    assert await stage.release_many("ab") == [1, 1], "a quiet one tells and counts none"
    assert await all_told(listeners[1:]) == [told("a", 2)]


@pytest.mark.parametrize("value", FOREIGN_VALUES.values(), ids=FOREIGN_VALUES)
@pytest.mark.parametrize("number", [0, 2])
async def test_another_programs_key_is_told_from_ours(
    stage: Stage, make_listener: Callable[..., Any], value: bytes, number: int
) -> None:
    """Its release is published nowhere: what other libraries write tells it, and how many listen in vain."""
    listeners = [await make_listener("ab") for _ in range(number)]
    stage.put(locks("a")[0], value, 30.0)
    deleted, wait, listening, foreign = await stage.release(0, loud=LOUD)
    assert (deleted, listening, foreign) == (0, number, 1)
    assert 0 < wait <= 30_000
    hold(stage, "b")
    deleted, _, listening, foreign = await stage.release(0, "ab", loud=LOUD)
    assert (deleted, listening, foreign) == (1, number, 1)
    assert await all_told(listeners) == [told("b", number)] * number


@pytest.mark.parametrize("label", [b"", b"host:1234", b":", b"x" * 200])
async def test_what_we_write_is_known_as_ours(stage: Stage, label: bytes) -> None:
    """With and without a time, whatever the label."""
    for value in (b"%b:%b" % (b"0f" * 20, label), b"%b:1700000000000:%b" % (b"f0" * 20, label)):
        stage.put(locks("a")[0], value)
        assert (await stage.release(0, loud=LOUD))[:4] == [0, -1, 0, 0]


@pytest.mark.parametrize("number", [0, 1, 3])
async def test_listeners_are_counted(stage: Stage, make_listener: Callable[..., Any], number: int) -> None:
    """A release knows how many connections were told: none, where none listens."""
    listeners = [await make_listener("a") for _ in range(number)]
    hold(stage, "a")
    assert await stage.release(0, loud=LOUD) == [1, 0, number]
    assert await all_told(listeners) == [told("a", number)] * number


async def test_another_type_under_a_name_does_not_silence_the_others(
    stage: Stage, make_listener: Callable[..., Any]
) -> None:
    """The error is told instead of a number; the notices of what was deleted have left."""
    listener = await make_listener("ab")
    stage.put(locks("a")[0], WRONG)
    hold(stage, "b")
    assert await stage.release(0, "ab", loud=LOUD) == "WRONGTYPE"
    assert await all_told([listener]) == [told("b", 1)]


async def test_a_listener_that_releases_gets_notice_and_answer(
    stage: Stage, make_listener: Callable[..., Any]
) -> None:
    """On one connection, whole and in either order: servers differ."""
    listener = await make_listener("a")
    hold(stage, "a")
    arguments = (*locks("a"), OURS, b"0", b"%d" % KEEP_MS, LOUD, TAG)
    listener.send(b"EVALSHA", _scripts.RELEASE.digest, b"1", *arguments)
    both = await listener.until(2)
    assert sorted(both, key=str) == sorted([[b"message", locks("a")[0], b"1"], [TAG, 1, 0, 1]], key=str)


async def test_a_listener_that_left_gets_no_notice(stage: Stage, make_listener: Callable[..., Any]) -> None:
    """Unsubscribing counts from the moment that it is executed, and is confirmed in its turn."""
    listener = await make_listener("ab")
    listener.send(b"UNSUBSCRIBE", *locks("a"))
    await listener.until(1)
    assert listener.told.pop() == [b"unsubscribe", *locks("a"), 2]
    hold(stage, "ab")
    assert await stage.release(0, "a", loud=LOUD) == [1, 0, 0]
    assert await stage.release(0, "b", loud=LOUD) == [1, 0, 1]
    assert await all_told([listener]) == [told("b", 1)]


async def test_the_number_of_listeners_is_known(stage: Stage, make_listener: Callable[..., Any]) -> None:
    """Subscribing twice is once, leaving what one never listened to is no error, and each is confirmed."""
    listener = await make_listener("a")
    listener.send(b"SUBSCRIBE", *locks("ab"))
    listener.send(b"UNSUBSCRIBE", *locks("ca"))
    listener.send(b"PUBSUB", b"NUMSUB", *locks("abc"))
    a, b, c = locks("abc")
    assert await listener.until(5) == [
        [b"subscribe", a, 2],
        [b"subscribe", b, 3],
        [b"unsubscribe", c, 3],
        [b"unsubscribe", a, 2],
        [a, 0, b, 1, c, 0],
    ]


# -- without the right to publish --------------------------------------------------------------------


@pytest.fixture
def as_user(any_nodes: Nodes) -> Iterator[Callable[[str], str]]:
    """Give a function that returns the URL of one server for a user with some rights."""
    url = any_nodes.urls[0]
    for script in (_scripts.RELEASE, _scripts.RELEASE_MANY):
        ask(url, "SCRIPT", "LOAD", script.source)

    def login(rights: str) -> str:
        ask(url, "ACL", "SETUSER", "locks", "reset", "on", ">secret", "~*", "+@all", *rights.split())
        return url.replace("redis://", "redis://locks:secret@")

    yield login
    ask(url, "ACL", "DELUSER", "locks")


@pytest.mark.parametrize(
    ("rights", "heard"),
    [
        ("allchannels -publish", ""),
        ("resetchannels", ""),
        ("resetchannels &other:*", ""),
        ("resetchannels &redlock:b", "b"),
        ("resetchannels &redlock:c", "c"),
    ],
)
@with_and_without_a_fence
async def test_a_user_who_may_not_publish_releases_all_the_same(
    any_nodes: Nodes, as_user: Callable[[str], str], rights: str, heard: str, fence: int
) -> None:
    """The answer is -1 instead of a number, even where some of the notices were allowed."""
    url = any_nodes.urls[0]
    listener = await listen(url)
    await listener.subscribe(*locks("abc"), LAST)
    keys = [*locks("abc"), *(counters("abc") if fence else [])]
    for key in locks("abc"):
        ask(url, "SET", key, OURS)

    def release(loud: bytes) -> Any:
        arguments = (len(keys), *keys, OURS, fence, KEEP_MS, loud, TAG)
        return untagged(ask(as_user(rights), "EVALSHA", _scripts.RELEASE.digest, *arguments), TAG)

    assert release(LOUD) == [3, 0, -1]
    assert ask(url, "EXISTS", *keys) == (3 if fence else 0), "the locks are gone, the counters are there"
    assert await all_told([listener]) == [told(heard, *[1] * len(heard))]
    ask(url, "SET", locks("a")[0], OURS)
    assert release(b"") == [1, 0, 0], "a quiet release needs no right"
    listener.transport.close()


async def test_a_user_without_the_right_to_count_tells_all_the_same(
    any_nodes: Nodes, as_user: Callable[[str], str]
) -> None:
    """The message is empty then; how many were told is known, and of a key that is another's nothing."""
    url = any_nodes.urls[0]
    listener = await listen(url)
    await listener.subscribe(*locks("ab"), LAST)
    user = as_user("allchannels -pubsub|numsub")

    def release() -> Any:
        arguments = (1, *locks("a"), OURS, 0, KEEP_MS, LOUD, TAG)
        return untagged(ask(user, "EVALSHA", _scripts.RELEASE.digest, *arguments), TAG)

    ask(url, "SET", locks("a")[0], OURS)
    assert release() == [1, 0, 1]
    assert await all_told([listener]) == [[(locks("a")[0], b"")]]
    ask(url, "SET", locks("a")[0], OTHERS)
    assert release() == [0, -1, 0, 0]
    ask(url, "SET", locks("a")[0], "a stranger")
    assert release() == [0, -1, 0, 1]
    ask(url, "DEL", locks("a")[0])
    listener.transport.close()


@pytest.mark.parametrize(
    ("rights", "answers", "messages"),
    [
        ("resetchannels &redlock:a", [[1, 0, 1], [1, 0, -1]], [(locks("a")[0], b"1")]),
        ("allchannels -publish", [[1, 0, -1], [1, 0, -1]], []),
        ("allchannels -pubsub|numsub", [[1, 0, 1], [1, 0, 1]], [(key, b"") for key in locks("ab")]),
    ],
)
async def test_a_batch_without_the_right_releases_all_the_same(
    any_nodes: Nodes,
    as_user: Callable[[str], str],
    rights: str,
    answers: Any,
    messages: Any,
) -> None:
    """Each lock's answer is what its own release says (R42)."""
    url = any_nodes.urls[0]
    listener = await listen(url)
    await listener.subscribe(*locks("ab"), LAST)
    for key in locks("ab"):
        ask(url, "SET", key, OURS)
    words = (2, *locks("ab"), LOUD, OURS, OURS, TAG)
    said = ask(as_user(rights), "EVALSHA", _scripts.RELEASE_MANY.digest, *words)
    assert untagged(said, TAG) == answers
    assert ask(url, "EXISTS", *locks("ab")) == 0
    assert await all_told([listener]) == [messages]
    listener.transport.close()
