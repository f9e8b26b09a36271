"""The line of rights in ``docs/how-to/nodes.md``, read from there: enough for all it promises.

``tests/docs/test_claims.py`` shows that locking needs no more, by URL and by client, and
``tests/cli/test_doctor.py`` that `doctor` names whichever is missing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

import pytest

from aioredlock_ng import (
    ConfigurationError,
    ExtensionPolicy,
    Lease,
    Lock,
    LockManager,
    LockNotAcquiredError,
    QuorumUnavailableError,
    _scripts,
)
from aioredlock_ng._core.command import Script
from aioredlock_ng._core.rights import LINE_RIGHTS, READER_RIGHTS, denied
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import all_up
from tests.environments.interpreters import ROOT
from tests.servers import ask, eventually

PAGE: Final = (ROOT / "docs" / "how-to" / "nodes.md").read_text()
(LINE,) = re.findall(r"^ACL SETUSER locks (.*)$", PAGE, re.MULTILINE)
# The rights beside the line, for looking at all locks and for the diagnosis.
ADMINISTRATION: Final = re.findall(
    r"`(\+[^`]+)`", " ".join(PAGE.split()).partition("For administration")[2].partition("without them")[0]
)

# Words of the line without which a node has no vote at all.
VOTING: Final = ("~redlock:*", "+evalsha", "+script|load", "+get", "+set", "+time")

# Words that only a lock that is held needs, and what fails without them.
HELD: Final = {"+pexpire": "extend", "+del": "release", "+pttl": "inspect"}


@pytest.fixture
def grant(make_nodes: Callable[..., LocalNodes]) -> Callable[..., str]:
    """Return a function that gives a server's URL for a user with these rights."""
    (url,) = make_nodes(1).urls

    def give(rights: str, user: str = "locks") -> str:
        ask(url, "ACL SETUSER", user, "reset", *rights.split())
        return url.replace("redis://", f"redis://{user}:secret@")

    return give


def test_the_readme_says_what_administration_needs() -> None:
    """The words behind the line are found: the tests below are about them."""
    assert ADMINISTRATION == ["+scan", "+config|get +acl|getuser"]
    assert set(VOTING) | set(HELD) <= set(LINE.split())


async def live(manager: LockManager) -> None:
    """Do all that the page promises of the line: locks of each kind, fences, inspection, notices, force."""
    async with manager.lock("job") as lease, manager.lock("a", "b"):
        assert lease.fence
        await lease.extend(20)
        assert (await manager.inspect("job"))[0].ours
        waiting = asyncio.create_task(manager.lock("job", blocking_timeout=5).acquire())
        await asyncio.sleep(0)
    await (await waiting).release()
    await manager.force_release("job")
    rw = manager.rwlock("page", "of", blocking_timeout=5)
    read, beside = await asyncio.gather(rw.read().acquire(), rw.read().acquire())
    assert read.fence == beside.fence
    writing = asyncio.create_task(rw.write(since=read).acquire())
    await asyncio.sleep(0.05)
    await beside.extend(20)
    await read.release()
    await beside.release()
    async with await writing as lease:
        assert lease.unchanged
        reading = asyncio.create_task(rw.read().acquire())
        await asyncio.sleep(0.05)
        await lease.downgrade()
        await (await reading).release()
        assert (await manager.inspect("page"))[0].readers
    pool = manager.semaphore("pool", permits=2, blocking_timeout=5)
    one, two = await pool.acquire(), await pool.acquire()
    waiting = asyncio.create_task(pool.acquire())
    await one.extend(20)
    assert len((await manager.inspect("pool"))[0].permits) == 2
    await two.release()
    await (await waiting).release()
    await one.release()


async def test_it_is_enough(grant: Callable[..., str], caplog: pytest.LogCaptureFixture) -> None:
    """Two managers of one user take turns, hear each other's releases, and no warning is logged."""
    caplog.set_level(logging.WARNING)
    url = grant(LINE)
    async with LockManager([url]) as manager, LockManager([url]) as other:
        await live(manager)
        async with manager.lock("line", fair=True):
            waiting = asyncio.create_task(other.lock("line", fair=True, blocking_timeout=5).acquire())
            while not (await manager.queue("line")).waiters:
                await asyncio.sleep(0.01)
        await (await waiting).release()
        async with manager.lock("heard"):
            waiting = asyncio.create_task(other.lock("heard", blocking_timeout=5).acquire())
            node = other._life.nodes[0]
            await eventually(lambda: node.hears(b"redlock:heard"), what="it listens")
        await (await waiting).release()
    assert not caplog.records


def test_batches_need_no_more(grant: Callable[..., str]) -> None:
    """Many single locks in one script: acquired, extended and released with the line alone (R42)."""
    url = grant(LINE)
    ask(url, "SET", "redlock:{meta}", "expected")

    def run(script: Script, *keys_and_args: str | int) -> object:
        ask(url, "SCRIPT", "LOAD", script.source)
        return ask(url, "EVALSHA", script.digest, *keys_and_args)

    pairs = ("redlock:a", "redlock:fence:{redlock:a}", "redlock:b", "redlock:fence:{redlock:b}")
    stamp = ("expected", 0, "", "tag")
    ballot = 1_600_000_000_000 << 10
    ask(url, "SET", "redlock:fence:{redlock:a}", ballot << 1, "PX", 60_000)
    acquired = run(
        _scripts.ACQUIRE_MANY, 5, *pairs, "redlock:{meta}", 60_000, ballot, 1, 600_000, "o", "o", *stamp
    )
    assert isinstance(acquired, list)
    fence = acquired[2]
    assert fence == (ballot << 1) + 2  # even (R21)
    of_locks = ("o", fence, "o", acquired[3])
    assert run(_scripts.EXTEND_MANY, 5, *pairs, "redlock:{meta}", 90_000, 600_000, *of_locks, *stamp) == [
        b"tag",
        1,
        1,
    ]
    assert run(_scripts.RELEASE_MANY, 2, "redlock:a", "redlock:b", 1, "o", "o", "tag") == [b"tag", 1, 1]


async def test_administration_needs_what_is_said(grant: Callable[..., str]) -> None:
    """Without ``+scan`` a survey names it; with these rights survey, init and diagnosis are whole."""
    async with LockManager([grant(LINE)]) as manager:
        await all_up(manager)
        (silent,) = (await manager.survey()).silent
        assert "scan" in silent.reason.lower()
    url = grant(" ".join([LINE, *ADMINISTRATION]))
    async with LockManager([url]) as manager:
        async with manager.lock("seen"):
            survey = await manager.survey()
            assert [lock.name for lock in survey.locks] == ["seen"]
            assert survey.silent == ()
        await manager.init()
        findings = await manager.diagnose()
    assert not [one for one in findings if "could not be checked" in one.message]
    assert {one.level for one in findings if one.check in ("rights", "notices", "info")} == {"ok"}


def without(right: str) -> str:
    """Return the line without one of its words."""
    words = LINE.split()
    words.remove(right)
    return " ".join(words)


@pytest.mark.parametrize("right", VOTING)
async def test_a_node_without_it_has_no_vote(right: str, grant: Callable[..., str]) -> None:
    """The vote is silent and gives the server's words as its reason."""
    async with LockManager([grant(without(right))]) as manager:
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("job", blocking=False).acquire()
    (vote,) = caught.value.votes
    assert re.search("permission|can't run this command|can't access", vote.reason), vote


@pytest.mark.parametrize(("right", "what"), HELD.items())
async def test_a_held_lock_needs_it(right: str, what: str, grant: Callable[..., str]) -> None:
    """The lock is granted; what fails then gives the server's words as its reason."""
    async with LockManager([grant(without(right))], extension=ExtensionPolicy.off(), ttl=0.5) as manager:
        lease = await manager.lock("job").acquire()
        if what == "extend":
            with pytest.raises(QuorumUnavailableError) as caught:
                await lease.extend(20)
            reason = caught.value.votes[0].reason
        (seen,) = await manager.inspect("job")
        (released,) = (await lease.release()).nodes
        if what != "extend":
            reason = {"inspect": seen.reason, "release": released.reason}[what]
    assert re.search("permission|can't run this command", reason), reason


async def refused(lock: Lock) -> str:
    """Try once, and return why it is not to be had."""
    with pytest.raises((LockNotAcquiredError, ConfigurationError)) as caught:
        await lock.acquire()
    return str(caught.value)


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one name", "two names"])
@pytest.mark.parametrize("right", READER_RIGHTS.split())
async def test_readers_and_writers_exclude_each_other_without_it(
    right: str, names: tuple[str, ...], grant: Callable[..., str]
) -> None:
    """A mutex and a writer need none of them where no readers are; what cannot be done lets none in (R20)."""
    async with LockManager([grant(LINE)]) as whole, LockManager([grant(without(right), user="less")]) as less:
        mutex, rw = less.lock(*names, blocking=False), less.rwlock(*names, blocking=False)
        for lock in (mutex, rw.write()):
            async with lock:
                assert await whole.rwlock("a").read().try_acquire() is None
                assert await whole.rwlock("a").write().try_acquire() is None
        async with whole.rwlock("a").read():
            await refused(mutex)
            await refused(rw.write())
        async with whole.rwlock("a").write():
            await refused(mutex)
            await refused(rw.read())
            await refused(rw.write())


async def test_a_read_lock_says_that_a_right_is_missing(grant: Callable[..., str]) -> None:
    """In the server's words, which not all name it: `doctor` does; all else works as before."""
    rights = " ".join(word for word in LINE.split() if word not in READER_RIGHTS.split())
    async with LockManager([grant(rights)]) as manager:
        assert denied(await refused(manager.rwlock("job", blocking=False).read()))
        async with manager.lock("job"), manager.lock("a", "b"), manager.rwlock("c").write():
            pass


@pytest.mark.parametrize("right", LINE_RIGHTS.split())
async def test_a_line_says_that_a_right_is_missing(right: str, grant: Callable[..., str]) -> None:
    """What would wait says so, and a holder releases all the same; no key is left without an end."""
    whole, less = grant(LINE), grant(without(right), user="less")
    async with LockManager([whole]) as holder, LockManager([less]) as other, LockManager([less]) as waiter:
        async with waiter.lock("job"), waiter.lock("a", "b"):
            pass
        for holding in (holder, other):
            lease = await holding.lock("line", fair=True).acquire()
            assert denied(await refused(waiter.lock("line", fair=True, blocking_timeout=0.5)))
            await lease.release()
            assert not (await holder.inspect("line"))[0].held
        if right == "+zrange":
            assert denied((await waiter.queue("line")).silent[0].reason)
    admin = whole.replace("locks:secret@", "")
    left = {key: ask(admin, "PTTL", key) for key in ask(admin, "KEYS", "*") if not key.endswith(b"{meta}")}
    assert -1 not in left.values(), left


async def test_a_survey_tells_of_locks_beside_a_forbidden_one(grant: Callable[..., str]) -> None:
    """Many are asked for by one script, and a right to one of them is missing: it alone is not told of."""
    whole = grant(LINE)
    patterns = "~redlock:ok* ~redlock:{meta} ~redlock:fence:{redlock:ok*"
    url = grant(" ".join([LINE.replace("~redlock:*", patterns), *ADMINISTRATION]), user="less")
    async with (
        LockManager([whole]) as holder,
        LockManager([url]) as manager,
        holder.lock("ok:1"),
        holder.lock("forbidden"),
        holder.lock("ok:2"),
    ):
        survey = await manager.survey()
    assert [(lock.name, lock.state) for lock in survey.locks] == [
        ("forbidden", "unknown"), ("ok:1", "held"), ("ok:2", "held"),
    ]  # fmt: skip
    (silent,) = survey.silent
    assert denied(silent.reason)


async def test_a_forbidden_name_fails_alone(grant: Callable[..., str]) -> None:
    """Names that are asked for in one turn share a script (R42), and a right to one of them is missing."""
    patterns = "~redlock:ok* ~redlock:{meta} ~redlock:fence:{redlock:ok*"
    async with LockManager([grant(LINE.replace("~redlock:*", patterns))]) as manager:
        allowed = [manager.lock(f"ok:{number}", blocking_timeout=0) for number in range(5)]
        forbidden = manager.lock("forbidden", blocking_timeout=0)
        *leases, error = await asyncio.gather(
            *(lock.acquire() for lock in (*allowed, forbidden)), return_exceptions=True
        )
        assert isinstance(error, QuorumUnavailableError)
        assert "NOPERM" in str(error)
        assert all(isinstance(lease, Lease) and lease.held for lease in leases), leases
