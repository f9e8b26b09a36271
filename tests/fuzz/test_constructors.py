"""Constructors accept usable values, and refuse others at once, by name and value."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng import ConfigurationError, ExtensionPolicy, LockManager, RetryPolicy
from aioredlock_ng._core.validity import drift
from aioredlock_ng._settings.options import MIN_TTL
from aioredlock_ng.testing import MemoryNode, SimLoop
from aioredlock_ng.testing.sim_loop import SimClock
from tests.fuzz.profile import no_hurry, profile
from tests.fuzz.values import anything, numbers, some_strings

pytestmark = no_hurry

REFUSALS = (ValueError, TypeError)  # ConfigurationError is a ValueError


def made(make: Callable[[], Any], *values: object) -> Any:
    """Make something; None when it is refused as documented, with a value in the message."""
    result, error = outcome(make)
    if error is not None:
        assert type(error) in (*REFUSALS, ConfigurationError), repr(error)
        assert any(shows(str(error), value) for value in values), (str(error)[:200], values)
    return result


def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Return what a call returned, or how it was refused."""
    try:
        return call(), None
    except REFUSALS as error:
        return None, error


def shows(message: str, value: object) -> bool:
    """Whether a message shows a value, if only the beginning of a long one."""
    try:
        texts = [repr(value), str(value), ascii(value)]
    except ValueError:  # an integer of more digits than Python prints
        return "bits" in message
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        texts += [f"{float(value):g}"] if abs(value) < 1e300 else []
    return any(text[:20].rstrip("'\"") in message for text in texts)


@profile(150)
@given(anything, anything)
def test_a_retry_policy_is_refused_or_waits_within_its_cap(base: Any, cap: Any) -> None:
    """Whatever it is made of: every wait is a finite number of seconds up to the cap, at any attempt."""
    policy = made(lambda: RetryPolicy(base=base, cap=cap), base, cap)
    for attempt in (0, 1, 31, 10**9) if policy else ():
        for chance in (0.0, 0.5, 1 - 2**-53):
            assert 0 <= policy.backoff(attempt, chance) <= cap
            assert math.isfinite(policy.backoff(attempt, chance, least=0.5))


@profile(150)
@given(anything, anything, anything)
def test_an_extension_policy_is_refused_or_extends_in_time(every: Any, limit: Any, grace: Any) -> None:
    """Whatever it is made of: it extends before the body is stopped, which is before validity ends."""
    make = lambda: ExtensionPolicy(every=every, max_extensions=limit, grace=grace)  # noqa: E731
    if (policy := made(make, every, limit, grace)) is not None:
        assert 0 < every < 1
        assert 0 <= grace < 0.5
        assert policy.exhausted(2**70) == (limit is not None and limit <= 2**70)
        assert every + grace < 1 or not policy.enabled


OPTIONS = {
    "ttl": anything,
    "node_timeout": anything,
    "connect_timeout": anything,
    "prefix": some_strings,
    "fencing": anything,
    "fence_ttl": st.one_of(anything, st.integers(290, 310)),
    "restart_quarantine": anything,
    "retry": anything,
    "extension": anything,
    "on_lost": st.one_of(some_strings, st.sampled_from(["cancel", "raise"])),
    "holder": some_strings,
}


@pytest.mark.campaign
@profile(200)
@given(st.data())
def test_a_manager_is_refused_or_can_lock(data: st.DataObject) -> None:
    """Every setting with any value: the manager is refused, or it starts, locks, extends and closes."""
    names = data.draw(st.lists(st.sampled_from(sorted(OPTIONS)), min_size=1, max_size=3, unique=True))
    options = {name: data.draw(OPTIONS[name], label=name) for name in names}
    if options.get("restart_quarantine") is None:
        options["restart_quarantine"] = 0
    sound = {"ttl": 10.0, "node_timeout": 0.1}  # a refusal may name the pair

    def make(**clock: Any) -> LockManager:
        return LockManager([MemoryNode(latency=0.0)], **options, **clock)

    if made(make, *options.values(), *sound.values()) is not None:
        SimLoop.run(locks(make))


async def locks(make: Callable[..., LockManager]) -> None:
    """Lock, extend and release with a manager that was accepted."""
    manager = make(clock=_clock(), random=random.Random(1))
    settings = manager._options
    hasty = min(settings.connect_timeout, settings.node_timeout) < MIN_TTL
    async with manager:
        repr(manager)
        if hasty or settings.restart_quarantine:
            return  # no node can answer in no time; and waiting for a vote is another test's
        lease = await manager.lock("a", blocking_timeout=5.0).acquire()
        assert 0 < lease.remaining <= settings.ttl
        await lease.extend()
        lease.check()
        repr(lease)
        await lease.release()


def _clock() -> SimClock:
    return SimLoop.running().clock


def with_a_manager(body: Callable[[LockManager], Awaitable[None]]) -> None:
    """Run something with a manager over one node, on virtual time."""

    async def main() -> None:
        nodes = [MemoryNode(latency=0.0)]
        async with LockManager(
            nodes, restart_quarantine=0, clock=_clock(), random=random.Random(1)
        ) as manager:
            await body(manager)

    SimLoop.run(main())


LOCK_OPTIONS = {name: OPTIONS[name] for name in ("ttl", "extension", "on_lost")}
LOCK_OPTIONS |= {"blocking_timeout": anything, "blocking": st.booleans(), "label": some_strings}


@profile(250)
@given(st.lists(some_strings, max_size=4), st.fixed_dictionaries({}, optional=LOCK_OPTIONS))
@pytest.mark.heavy
def test_a_lock_is_refused_or_can_be_taken(names: list[Any], options: dict[str, Any]) -> None:
    """Names and options of any kind: refused at the call with the value, or taken by one try."""

    async def main(manager: LockManager) -> None:
        values = [*names, *options.values(), "none", len(names)]
        lock = made(lambda: manager.lock(*names, **options), *values)
        if lock is None:
            return
        repr(lock)
        lease = await lock.try_acquire()
        assert lease is not None
        assert lease.names == tuple(sorted(set(names)))
        await lease.extend(options.get("ttl"))
        for name in lease.names:
            assert [one.ours for one in await manager.inspect(name)] == [True]
        repr(lease)
        await lease.release()

    with_a_manager(main)


@profile(150)
@given(st.one_of(anything, numbers))
def test_an_extension_is_refused_or_won(ttl: Any) -> None:
    """`extend` takes what a lock takes, and never shortens."""

    async def main(manager: LockManager) -> None:
        async with manager.lock("a") as lease:
            before = lease.valid_until
            task = asyncio.ensure_future(lease.extend(ttl))
            await asyncio.wait((task,))
            error = outcome(task.result)[1]
            if error is not None:
                assert shows(str(error), ttl), (str(error), ttl)
            else:
                seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl or 10.0
                assert lease.valid_until >= max(before, _clock().now() + seconds - drift(seconds) - 0.01)
            lease.check()

    with_a_manager(main)


SECRET = "s3cretP4ssw0rd"


@profile(150)
@given(
    st.sampled_from(["redis", "rediss", "unix", "valkey", "valkeys", "http", "REDIS", ""]),
    st.text("abz:/@%?#[] \\", max_size=4),
    st.text("abz:/@%?#[] \\", max_size=4),
    st.sampled_from(["host", "host:1", "host:x", "[::1]:1", "[::1", "", "/run/x.sock", "host:99999", "a@b"]),
    st.sampled_from(["", "/0", "/x", "?db=1", "?db=x", "?timeout=x", "?nonsense=1", "#f", "?protocol=9"]),
)
def test_no_url_shows_its_password(scheme: str, before: str, after: str, host: str, tail: str) -> None:
    """However a URL with a password is mangled: neither the error nor the manager's repr shows it."""
    url = f"{scheme}://user:{before}{SECRET}{after}@{host}{tail}"
    try:
        shown = repr(LockManager([url]))
    except ConfigurationError as error:
        shown = f"{error} {error!r} {error.__cause__!r}"
    assert SECRET not in shown
