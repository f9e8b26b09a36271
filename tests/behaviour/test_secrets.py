"""Passwords and owner values are shown nowhere (A5)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import pytest
import redis.asyncio

from aioredlock_ng import (
    ConfigurationError,
    LockLostError,
    LockManager,
    LockTakenError,
    QuorumUnavailableError,
)
from aioredlock_ng.testing.local_nodes import LocalNodes
from tests.behaviour.tools import PATIENCE, Recorder, delete, extended, monitor, monitored_words, told
from tests.servers import Nodes, ask

PASSWORD: Final = "pa55-of-the-tests"


class Shown:
    """Collects whatever a person might get to see."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.errors: list[BaseException] = []

    def see(self, *things: object) -> None:
        """Look at things, in every way."""
        for thing in things:
            self.texts += [repr(thing), str(thing), f"{thing!a}"]

    def catch(self, error: BaseException) -> None:
        """Look at an error, its chain and its notes, as a log or a terminal shows them."""
        self.errors.append(error)
        self.see(error, error.args, getattr(error, "votes", ()))
        self.texts += traceback.format_exception(error)

    @contextlib.contextmanager
    def failure(self, kind: type[BaseException]) -> Any:
        """Expect an error and look at it."""
        with pytest.raises(kind) as caught:
            yield
        self.catch(caught.value)

    def leaks(self, secrets: set[str]) -> list[tuple[str, str]]:
        """Return what was shown of any secret, or of its first half."""
        return [
            (secret, text)
            for secret in secrets
            for text in self.texts
            if secret in text or (len(secret) >= 40 and secret[:20] in text)
        ]


def see_our_objects(shown: Shown) -> None:
    """Look at every living object of the package's own classes."""
    for thing in gc.get_objects():
        if str(type(thing).__module__).partition(".")[0] == "aioredlock_ng":
            with contextlib.suppress(AttributeError):  # one whose constructor has failed
                shown.see(thing)


@pytest.fixture(autouse=True)
def objects_from_before() -> Iterator[None]:
    """Have ``gc.get_objects()`` find what was there before the first test, too (``tests/conftest.py``)."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def secret_nodes(make_nodes: Callable[..., LocalNodes]) -> LocalNodes:
    """Give three servers that ask for a password."""
    url = f"redis://:{PASSWORD}@127.0.0.1:{{port}}"
    return make_nodes(3, options={"requirepass": PASSWORD}, url=url)


@contextlib.contextmanager
def asyncio_tells_all() -> Iterator[None]:
    """Have asyncio log everything it runs, with the arguments."""
    loop = asyncio.get_running_loop()
    slow = loop.slow_callback_duration
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0
    try:
        yield
    finally:
        loop.slow_callback_duration = slow
        loop.set_debug(False)


async def _hold_and_contend(manager: LockManager, other: LockManager, shown: Shown) -> None:
    lock = manager.lock("secret")
    async with lock as lease:
        await extended(lease, 1)
        mine, theirs = await manager.inspect("secret"), await other.inspect("secret")
        shown.see(manager, lock, lease, lease.votes, manager.statistics(), mine, theirs, *mine)
        shown.see(await manager.survey(), await manager.diagnose())
        assert [entry.ours for entry in mine] == [True] * 3
        for contender, patience in ((other, 0.05), (manager, 0)):
            with shown.failure(LockTakenError):
                await contender.lock("secret", blocking_timeout=patience).acquire()
        see_our_objects(shown)
    shown.see(await lease.release(), lease)
    with shown.failure(LockLostError):
        lease.check()


async def _lose(manager: LockManager, other: LockManager, nodes: Nodes, shown: Shown) -> None:
    with shown.failure(LockLostError):
        async with manager.lock("secret"):
            delete(nodes, range(3), "redlock:secret")
            await asyncio.sleep(PATIENCE)
    with shown.failure(LockLostError):
        async with manager.lock("secret"), other.lock("secret two", ttl=1.5):
            time.sleep(2.0)
            await asyncio.sleep(PATIENCE)
    shown.see(await manager.force_release("secret"))
    with pytest.warns(ResourceWarning) as warned:  # noqa: PT031
        await manager.lock("dropped").acquire()
        gc.collect()
    shown.see(*(warning.message for warning in warned))


async def _fail(manager: LockManager, nodes: Nodes, shown: Shown) -> None:
    for url in nodes.urls:
        ask(url, "RPUSH", "redlock:list", "not a lock")
    with shown.failure(ConfigurationError):
        await manager.lock("list", blocking_timeout=0).acquire()
    nodes.kill(0)
    nodes.pause(1)
    with shown.failure(QuorumUnavailableError):
        await manager.lock("secret", blocking_timeout=0.2).acquire()
    see_our_objects(shown)
    shown.see(manager, manager.statistics(), await manager.inspect("secret"))
    shown.see(await manager.survey(), await manager.diagnose())
    nodes.resume(1)


@pytest.mark.heavy
async def test_nothing_shows_a_secret(secret_nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """No repr, log line, error, traceback, event or report shows a password or an owner value."""
    shown, recorder = Shown(), Recorder()
    caplog.set_level(logging.DEBUG)
    urls = secret_nodes.urls
    manager = LockManager(urls, ttl=8.0, node_timeout=0.4, hooks=[recorder])
    shown.see(manager)
    async with contextlib.AsyncExitStack() as stack:
        views = [await stack.enter_async_context(monitor(url)) for url in urls]
        await stack.enter_async_context(manager)
        other = LockManager(urls, holder="other's label", node_timeout=0.4)
        await stack.enter_async_context(other)
        with asyncio_tells_all():
            await _hold_and_contend(manager, other, shown)
            await _lose(manager, other, secret_nodes, shown)
            words = [word for view in views for line in await view() for word in monitored_words(line)[1]]
            await _fail(manager, secret_nodes, shown)
    see_our_objects(shown)
    shown.see(*recorder.events)
    for record in caplog.records:
        shown.texts.append(record.getMessage())
        if record.exc_info and record.exc_info[1]:
            shown.catch(record.exc_info[1])
    owners = {word[:40] for word in words if len(word) > 41 and word[40] == ":"}
    assert len(owners) >= 6
    assert {"Acquired", "Extended", "Released", "Lost", "NodeChanged"} <= set(told(recorder.events))
    assert any(record.name == "aioredlock_ng" for record in caplog.records)
    assert any("Executing" in record.getMessage() for record in caplog.records)
    assert shown.leaks({PASSWORD, *owners}) == []


class _Recording:
    """A random source that remembers what owner values are made of."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()
        self.seen: set[str] = set()

    def randbytes(self, count: int) -> bytes:
        """Make the random parts of owner values, a supply at a time."""
        supply, size = self._random.randbytes(count), 20
        self.seen.update(supply[i : i + size].hex() for i in range(0, count, size))
        return supply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._random, name)


@contextlib.asynccontextmanager
async def over(
    nodes: Nodes, kind: str, shown: Shown, caplog: pytest.LogCaptureFixture, **options: Any
) -> AsyncIterator[LockManager]:
    """Give a manager over URLs or over a user's own clients; it shows no owner value and no password."""
    caplog.set_level(logging.DEBUG)
    source, recorder = _Recording(), Recorder()
    async with contextlib.AsyncExitStack() as stack:
        specs: list[Any] = list(nodes.urls)
        if kind == "client":
            specs = [redis.asyncio.Redis.from_url(url) for url in nodes.urls]
            for client in specs:
                stack.push_async_callback(client.aclose)
        manager = LockManager(specs, hooks=[recorder], random=source, **options)
        yield await stack.enter_async_context(manager)
        see_our_objects(shown)
        shown.see(manager, manager.statistics())
    shown.see(*recorder.events)
    shown.texts.append(caplog.text)
    assert source.seen
    assert shown.leaks({PASSWORD, *source.seen}) == []


@pytest.mark.heavy
@pytest.mark.parametrize(("hidden", "fencing"), [("SET", False), ("EVALSHA", True)], ids=["plain", "fenced"])
@pytest.mark.parametrize("kind", ["URL", "client"])
async def test_servers_that_quote_what_they_were_sent(
    make_nodes: Callable[..., LocalNodes],
    caplog: pytest.LogCaptureFixture,
    kind: str,
    hidden: str,
    fencing: bool,
) -> None:
    """Error messages in which a server quotes a command's arguments are shown without them."""
    shown = Shown()
    nodes = make_nodes(3, options={"rename-command": [hidden, "HIDDEN"]})
    async with over(nodes, kind, shown, caplog, fencing=fencing, node_timeout=2.0) as manager:
        with shown.failure(QuorumUnavailableError):
            await manager.lock("quoted", blocking=False).acquire()
        assert any("unknown command" in vote.reason for vote in shown.errors[0].votes)  # type: ignore[attr-defined]
