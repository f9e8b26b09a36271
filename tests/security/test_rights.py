"""The line of rights in ``docs/operate/nodes.md``, read from there: enough for all it promises.

``tests/cli/test_doctor.py`` shows that `doctor` names whichever is missing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

import pytest
from redis.asyncio import Redis

from aioredlock_ng import (
    ConfigurationError,
    ExtensionPolicy,
    Lease,
    Lock,
    LockManager,
    LockNotAcquiredError,
    QuorumUnavailableError,
)
from aioredlock_ng._core.rights import READER_RIGHTS, denied
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import all_up
from tests.environments.interpreters import ROOT
from tests.servers import ask, eventually, with_rights

PAGE: Final = (ROOT / "docs" / "operate" / "nodes.md").read_text()
(LINE,) = re.findall(r"^ACL SETUSER locks (.*)$", PAGE, re.MULTILINE)
ADMINISTRATION: Final = ["+scan", "+config|get +acl|getuser"]  # beside the line

# Words of the line without which a node has no vote at all.
VOTING: Final = ("~redlock:*", "+evalsha", "+script|load", "+get", "+set", "+time")

# Words that only a lock that is held needs, and what fails without them.
HELD: Final = {"+pexpire": "extend", "+del": "release", "+pttl": "inspect"}

SOME: Final = LINE.replace(
    "~redlock:*", "~redlock:ok* ~redlock:{meta} ~redlock:{members} ~redlock:fence:{redlock:ok*"
)

Grant = Callable[..., str]


@pytest.fixture
def grant(make_nodes: Callable[..., LocalNodes]) -> Grant:
    """Return a function that gives a server's URL for a user with these rights."""
    (url,) = make_nodes(1).urls

    def give(rights: str, user: str = "locks") -> str:
        return with_rights(url, rights, user)

    return give


def without(*rights: str) -> str:
    """Return the line without some of its words."""
    assert set(rights) <= set(LINE.split())
    return " ".join(word for word in LINE.split() if word not in rights)


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


async def test_it_is_enough(grant: Grant, caplog: pytest.LogCaptureFixture) -> None:
    """Two managers of one user take turns, hear each other's releases, and no warning is logged."""
    caplog.set_level(logging.WARNING)
    url = grant(LINE)
    client = Redis.from_url(url)
    async with client, LockManager([client]) as over_client:
        await live(over_client)
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
            await eventually(lambda: node.is_subscribed(b"redlock:heard"), what="it listens")
        await (await waiting).release()
        admin = url.replace("locks:secret@", "")
        before = ask(admin, "INFO", "commandstats")["cmdstat_evalsha"]["calls"]
        leases = await asyncio.gather(*(manager.lock(f"{number}").acquire() for number in range(20)))
        await asyncio.gather(*(lease.extend(20) for lease in leases))
        await asyncio.gather(*(lease.release() for lease in leases))
        after = ask(admin, "INFO", "commandstats")["cmdstat_evalsha"]["calls"]
        assert after - before < 20, "in batches (R42), by scripts of their own"
    assert not caplog.records
    # `client|setinfo`, which redis-py sends and does without, exists in newer servers only.
    denied = {entry["object"] for entry in ask(admin, "ACL LOG")}
    assert all(name.startswith("client|") for name in denied)


async def test_administration_needs_what_is_said(grant: Grant) -> None:
    """Without ``+scan`` a survey names it; with these rights survey, init and diagnosis are whole."""
    said = " ".join(PAGE.split()).partition("For administration")[2].partition("without them")[0]
    assert re.findall(r"`(\+[^`]+)`", said) == ADMINISTRATION
    async with LockManager([grant(LINE)]) as manager:
        await all_up(manager)
        (silent,) = (await manager.survey()).silent
        assert "scan" in silent.reason.lower()
    async with LockManager([grant(" ".join([LINE, *ADMINISTRATION]))]) as manager:
        async with manager.lock("seen"):
            survey = await manager.survey()
            assert [lock.name for lock in survey.locks] == ["seen"]
            assert survey.silent == ()
        await manager.init()
        findings = await manager.diagnose()
    assert not [one for one in findings if "could not be checked" in one.message]
    assert {one.level for one in findings if one.check in ("rights", "notices", "info")} == {"ok"}


@pytest.mark.parametrize("right", VOTING)
async def test_a_node_without_it_has_no_vote(right: str, grant: Grant) -> None:
    """The vote is silent and gives the server's words as its reason."""
    async with LockManager([grant(without(right))]) as manager:
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("job", blocking=False).acquire()
    (vote,) = caught.value.votes
    assert re.search("permission|can't run this command|can't access", vote.reason), vote


@pytest.mark.parametrize(("right", "what"), HELD.items())
async def test_a_held_lock_needs_it(right: str, what: str, grant: Grant) -> None:
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


async def test_a_read_lock_says_that_a_right_is_missing(grant: Grant) -> None:
    """In the server's words, which not all name it: `doctor` does; all else works as before."""
    async with LockManager([grant(without(*READER_RIGHTS.split()))]) as manager:
        assert denied(await refused(manager.rwlock("job", blocking=False).read()))
        async with manager.lock("job"), manager.lock("a", "b"), manager.rwlock("c").write():
            pass


async def test_a_forbidden_name_fails_alone(grant: Grant) -> None:
    """Names that are asked for in one turn share a script (R42), and a right to one of them is missing."""
    async with LockManager([grant(SOME)]) as manager:
        names = [*(f"ok:{number}" for number in range(5)), "forbidden"]
        tries = (manager.lock(name, blocking_timeout=0).acquire() for name in names)
        *leases, error = await asyncio.gather(*tries, return_exceptions=True)
        assert isinstance(error, QuorumUnavailableError)
        assert "NOPERM" in str(error)
        assert all(isinstance(lease, Lease) and lease.held for lease in leases), leases
