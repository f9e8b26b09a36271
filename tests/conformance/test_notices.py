"""Release notices: what a release tells its listeners, on every kind of master (R13)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._node.pipe import without_request_id
from tests.conformance.masters import WRONG
from tests.conformance.rules import TAG
from tests.conformance.stage import KEEP_MS, counters, fenced, locks
from tests.conformance.tools import OTHERS, OURS
from tests.listening import Listener, listen
from tests.servers import ask, with_rights

Told = list[tuple[bytes, bytes]]
"""Channels and messages."""
LOUD = b"1"
LAST = b"redlock:last"
"""A channel on which a test says that nothing more comes."""

_numbers = itertools.count()

VALUES: Final = {
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
"""The values that other libraries write under a lock."""

with_and_without_a_fence = pytest.mark.parametrize("fence", [0, 777], ids=["plain", "fenced"])


@contextlib.asynccontextmanager
async def heard_by(
    spec: Any, *channels: tuple[bytes, ...]
) -> AsyncIterator[Callable[[], Awaitable[list[Told]]]]:
    """Listen on `connections` connections; gives a function that returns what each has heard since then.

    A last message comes behind all, each time another one: that of the last time may be there still.
    """
    async with contextlib.AsyncExitStack() as stack:
        listeners: list[Listener] = []
        for names in channels:
            listeners.append(await listen(spec if isinstance(spec, str) else spec.spec))
            stack.callback(listeners[-1].transport.close)
            await listeners[-1].subscribe(*names, LAST)

        async def since() -> list[Told]:
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
                listener.told.clear()
            return told

        yield since


@pytest.fixture
def hears(master):
    """Give a function that listens, once for each string of names, to the channels of these."""
    return lambda *names: heard_by(master, *(tuple(locks(each)) for each in names))


def told(names: str, *counts: int) -> Told:
    """Return the notices of these names, each of which says how many heard it."""
    return [(key, b"%d" % count) for key, count in zip(locks(names), counts, strict=True)]


@with_and_without_a_fence
async def test_a_release_tells_the_channel_of_every_key_that_it_deleted(stage, hears, fence):
    """It says the number of listeners there, behind the deletion; the answer is the greatest such number.

    A quiet one deletes just the same, and counts no listener.
    """
    async with hears("abcd", "ac", "cd") as since:
        for loud, crowd in ((LOUD, 3), (b"", 0)):
            stage.hold("ab")
            stage.hold("c", OTHERS, None)
            assert await stage.release(fence, "abcd", loud=loud) == [2, -1, crowd, 0]
            assert stage.held("ab") == [None, None]
            assert await since() == ([told("ab", 2, 1), told("a", 2), []] if loud else [[], [], []])


@with_and_without_a_fence
async def test_a_release_that_deletes_nothing_publishes_nothing(stage, hears, fence):
    """Neither of what was not there nor of what is another's; it counts the listeners all the same (R33)."""
    async with hears("ab", "b") as since:
        assert await stage.release(fence, "a", loud=LOUD) == [0, 0, 1]
        stage.hold("b", OTHERS, None)
        assert await stage.release(fence, "ab", loud=LOUD) == [0, -1, 2, 0]
        assert await since() == [[], []]


async def test_a_batch_of_releases_tells_each_channel(stage, hears):
    """Each as a release of its own does; a number says that none listens (R42)."""
    async with hears("acd", "ae") as since:
        stage.hold("abd")
        stage.hold("c", OTHERS, None)
        stage.hold("f", WRONG)
        *answers, error = await stage.release_many("abcdef", loud=LOUD)
        assert answers == [[1, 0, 2], 1, [0, -1, 1, 0], [1, 0, 1], [0, 0, 1]]
        assert error.startswith(b"WRONGTYPE")
        assert await since() == [told("a", 2) + told("d", 1), told("a", 2)]
        stage.hold("ab")
        assert await stage.release_many("ab") == [1, 1], "a quiet one tells and counts none"
        assert await since() == [[], []]


async def test_another_programs_key_is_told_from_ours(stage, hears):
    """Its release is published nowhere: what other libraries write tells it, and how many listen in vain."""
    for number in (0, 2):
        async with hears(*["ab"] * number) as since:
            for value in VALUES.values():
                stage.hold("a", value)
                deleted, wait, listening, foreign = await stage.release(0, loud=LOUD)
                assert (deleted, listening, foreign) == (0, number, 1), value
                assert 0 < wait <= 30_000
                stage.hold("b")
                deleted, _, listening, foreign = await stage.release(0, "ab", loud=LOUD)
                assert (deleted, listening, foreign) == (1, number, 1), value
                assert await since() == [told("b", number)] * number


async def test_the_number_of_listeners_is_known(stage, master):
    """Subscribing twice is once, leaving what one never listened to is no error, and each is confirmed.

    Leaving counts from the moment that it is executed.
    """
    a, b, c = locks("abc")
    listener = await listen(master.spec)
    with contextlib.closing(listener.transport):
        await listener.subscribe(a, LAST)
        listener.send(b"SUBSCRIBE", a, b)
        listener.send(b"UNSUBSCRIBE", c, a)
        listener.send(b"PUBSUB", b"NUMSUB", a, b, c)
        assert await listener.until(5) == [
            [b"subscribe", a, 2],
            [b"subscribe", b, 3],
            [b"unsubscribe", c, 3],
            [b"unsubscribe", a, 2],
            [a, 0, b, 1, c, 0],
        ]
        stage.hold("ab")
        assert await stage.release(0, "a", loud=LOUD) == [1, 0, 0]
        assert await stage.release(0, "b", loud=LOUD) == [1, 0, 1]
        assert (await listener.until(6))[5] == [b"message", b, b"1"]


# -- without the right to publish --------------------------------------------------------------------


@pytest.fixture
def as_user(any_nodes):
    """Give a function that returns the URL of one server for a user with some rights."""
    url = any_nodes.urls[0]
    for script in (_scripts.RELEASE, _scripts.RELEASE_MANY):
        ask(url, "SCRIPT", "LOAD", script.source)

    yield lambda rights: with_rights(url, f"~* +@all {rights}")
    ask(url, "ACL", "DELUSER", "locks")


NO_COUNT: Final = "allchannels -pubsub|numsub"


@pytest.mark.parametrize(
    ("rights", "heard"),
    [
        ("allchannels -publish", ""),
        ("resetchannels", ""),
        ("resetchannels &other:*", ""),
        ("resetchannels &redlock:b", "b"),
        ("resetchannels &redlock:c", "c"),
        (NO_COUNT, "abc"),
    ],
)
@with_and_without_a_fence
async def test_a_user_who_may_not_publish_releases_all_the_same(any_nodes, as_user, rights, heard, fence):
    """The answer is -1 instead of a number, even where some of the notices were allowed.

    Without the right to count the message is empty: how many heard it is known, of another's key nothing.
    """
    url = any_nodes.urls[0]
    keys = fenced("abc") if fence else locks("abc")

    def release(loud):
        arguments = (len(keys), *keys, OURS, fence, KEEP_MS, loud, TAG)
        return without_request_id(ask(as_user(rights), "EVALSHA", _scripts.RELEASE.digest, *arguments), TAG)

    async with heard_by(url, tuple(locks("abc"))) as since:
        for key in locks("abc"):
            ask(url, "SET", key, OURS)
        assert release(LOUD) == [3, 0, 1 if rights == NO_COUNT else -1]
        left = ask(url, "EXISTS", *locks("abc")), ask(url, "EXISTS", *counters("abc"))
        assert left == (0, 3 if fence else 0), "the locks are gone, the counters are there"
        message = b"" if rights == NO_COUNT else b"1"
        assert await since() == [[(key, message) for key in locks(heard)]]
        ask(url, "SET", *locks("a"), OURS)
        assert release(b"") == [1, 0, 0], "a quiet release needs no right"
        for foreign, value in ((0, OTHERS), (1, "a stranger")):
            ask(url, "SET", *locks("a"), value)
            assert release(LOUD) == [0, -1, 0, foreign] or rights != NO_COUNT
    ask(url, "DEL", *locks("a"))


@pytest.mark.parametrize(
    ("rights", "answers", "messages"),
    [
        ("resetchannels &redlock:a", [[1, 0, 1], [1, 0, -1]], [(locks("a")[0], b"1")]),
        ("allchannels -publish", [[1, 0, -1], [1, 0, -1]], []),
        (NO_COUNT, [[1, 0, 1], [1, 0, 1]], [(key, b"") for key in locks("ab")]),
    ],
)
async def test_a_batch_without_the_right_releases_all_the_same(any_nodes, as_user, rights, answers, messages):
    """Each lock's answer is what its own release says (R42)."""
    url = any_nodes.urls[0]
    async with heard_by(url, tuple(locks("ab"))) as since:
        for key in locks("ab"):
            ask(url, "SET", key, OURS)
        words = (2, *locks("ab"), LOUD, OURS, OURS, TAG)
        said = ask(as_user(rights), "EVALSHA", _scripts.RELEASE_MANY.digest, *words)
        assert without_request_id(said, TAG) == answers
        assert ask(url, "EXISTS", *locks("ab")) == 0
        assert await since() == [messages]
