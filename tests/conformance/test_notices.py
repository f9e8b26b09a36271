"""Release notices: whom a release tells what, on every kind of master (R13)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from aioredlock_ng import _scripts
from tests.conformance.stage import KEEP_MS, Stage, counters, locks, staged
from tests.conformance.tools import OTHERS, OURS, WRONG, Master
from tests.listening import Listener, listen
from tests.servers import Nodes, ask

LOUD = b"1"
LAST = b"redlock:last"
"""A channel on which a test says that nothing more comes."""

with_and_without_a_fence = pytest.mark.parametrize("fence", [0, 777], ids=["plain", "fenced"])


@pytest.fixture
async def stage(master: Master) -> AsyncIterator[Stage]:
    """Give an empty node with a sentinel."""
    async with staged(master) as made:
        yield made


@pytest.fixture
async def make_listener(master: Master) -> AsyncIterator[Callable[..., Any]]:
    """Give a function that makes somebody who listens to the channels of names."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(names: str) -> Listener:
            listener = await listen(master.spec)
            stack.callback(listener.transport.close)
            await listener.subscribe(*locks(names), LAST)
            return listener

        yield make


async def all_told(listeners: Sequence[Listener]) -> list[list[bytes]]:
    """Return the keys of the notices that each has got, all of them: a last message comes behind them."""
    for listener in listeners:
        listener.send(b"PUBLISH", LAST, b"")
    told = []
    for listener in listeners:
        while [b"message", LAST, b""] not in listener.told:
            await listener.until(len(listener.told) + 1)
        notices = [push for push in listener.told if isinstance(push, list) and push[1] != LAST]
        assert all(push == [b"message", push[1], b""] for push in notices)
        told.append([push[1] for push in notices])
    return told


def hold(stage: Stage, names: str) -> None:
    """Let us hold locks."""
    for key in locks(names):
        stage.put(key, OURS, 30.0)


@with_and_without_a_fence
async def test_a_release_tells_the_channel_of_every_key_that_it_deleted(
    stage: Stage, make_listener: Callable[..., Any], fence: int
) -> None:
    """An empty message each, behind the deletion; the answer is how many heard the one most heard."""
    listeners = [await make_listener("abcd"), await make_listener("ac"), await make_listener("d")]
    hold(stage, "ab")
    stage.put(locks("c")[0], OTHERS)
    assert await stage.release(fence, "abcd", loud=LOUD) == [2, -1, 2]
    assert await all_told(listeners) == [locks("ab"), locks("a"), []]


@with_and_without_a_fence
async def test_a_quiet_release_tells_nobody(
    stage: Stage, make_listener: Callable[..., Any], fence: int
) -> None:
    """It deletes just the same."""
    listener = await make_listener("ab")
    hold(stage, "ab")
    assert await stage.release(fence, "ab") == [2, 0, 0]
    assert stage.stored("ab")[:2] == [None, None]
    assert await all_told([listener]) == [[]]


@with_and_without_a_fence
async def test_a_release_that_deletes_nothing_tells_nobody(
    stage: Stage, make_listener: Callable[..., Any], fence: int
) -> None:
    """Neither of what was not there nor of what is another's."""
    listener = await make_listener("ab")
    stage.put(locks("b")[0], OTHERS)
    assert await stage.release(fence, "ab", loud=LOUD) == [0, -1, 0]
    assert await all_told([listener]) == [[]]


@pytest.mark.parametrize("number", [0, 1, 3])
async def test_who_hears_is_counted(stage: Stage, make_listener: Callable[..., Any], number: int) -> None:
    """A release knows how many connections were told; when nobody listens, it is nobody."""
    listeners = [await make_listener("a") for _ in range(number)]
    hold(stage, "a")
    assert await stage.release(0, loud=LOUD) == [1, 0, number]
    assert await all_told(listeners) == [locks("a")] * number


async def test_another_type_under_a_name_does_not_silence_the_others(
    stage: Stage, make_listener: Callable[..., Any]
) -> None:
    """The error is told instead of a number; the notices of what was deleted have left."""
    listener = await make_listener("ab")
    stage.put(locks("a")[0], WRONG)
    hold(stage, "b")
    assert await stage.release(0, "ab", loud=LOUD) == "WRONGTYPE"
    assert await all_told([listener]) == [locks("b")]


async def test_who_releases_and_listens_gets_notice_and_answer(
    stage: Stage, make_listener: Callable[..., Any]
) -> None:
    """On one connection, whole and in either order: servers differ."""
    listener = await make_listener("a")
    hold(stage, "a")
    listener.send(b"EVALSHA", _scripts.RELEASE.digest, b"1", *locks("a"), OURS, b"0", b"%d" % KEEP_MS, LOUD)
    told = await listener.until(2)
    assert sorted(told, key=str) == sorted([[b"message", locks("a")[0], b""], [1, 0, 1]], key=str)


async def test_nobody_is_told_who_listens_no_longer(stage: Stage, make_listener: Callable[..., Any]) -> None:
    """Unsubscribing counts from the moment that it is executed, and is confirmed in its turn."""
    listener = await make_listener("ab")
    listener.send(b"UNSUBSCRIBE", *locks("a"))
    await listener.until(1)
    assert listener.told.pop() == [b"unsubscribe", *locks("a"), 2]
    hold(stage, "ab")
    assert await stage.release(0, "a", loud=LOUD) == [1, 0, 0]
    assert await stage.release(0, "b", loud=LOUD) == [1, 0, 1]
    assert await all_told([listener]) == [locks("b")]


async def test_who_listens_is_known(stage: Stage, make_listener: Callable[..., Any]) -> None:
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
    ask(url, "SCRIPT", "LOAD", _scripts.RELEASE.source)

    def login(rights: str) -> str:
        ask(url, "ACL", "SETUSER", "locks", "reset", "on", ">secret", "~*", "+@all", *rights.split())
        return url.replace("redis://", "redis://locks:secret@")

    yield login
    ask(url, "ACL", "DELUSER", "locks")


@pytest.mark.parametrize(
    ("rights", "told"),
    [
        ("allchannels -publish", ""),
        ("resetchannels", ""),
        ("resetchannels &other:*", ""),
        ("resetchannels &redlock:b", "b"),
        ("resetchannels &redlock:c", "c"),
    ],
)
@with_and_without_a_fence
async def test_who_may_not_publish_releases_all_the_same(
    any_nodes: Nodes, as_user: Callable[[str], str], rights: str, told: str, fence: int
) -> None:
    """The answer is -1 instead of a number, even where some of the notices were allowed."""
    url = any_nodes.urls[0]
    listener = await listen(url)
    await listener.subscribe(*locks("abc"), LAST)
    keys = [*locks("abc"), *(counters("abc") if fence else [])]
    for key in locks("abc"):
        ask(url, "SET", key, OURS)

    def release(loud: bytes) -> Any:
        arguments = (len(keys), *keys, OURS, fence, KEEP_MS, loud)
        return ask(as_user(rights), "EVALSHA", _scripts.RELEASE.digest, *arguments)

    assert release(LOUD) == [3, 0, -1]
    assert ask(url, "EXISTS", *keys) == (3 if fence else 0), "the locks are gone, the counters are there"
    assert await all_told([listener]) == [locks(told)]
    ask(url, "SET", locks("a")[0], OURS)
    assert release(b"") == [1, 0, 0], "who is quiet needs no right"
    listener.transport.close()
