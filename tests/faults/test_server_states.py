"""Servers that run and grant nothing: the votes say why, nothing is hammered, and all is well afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from aioredlock_ng import LockManager, LossReason, QuorumUnavailableError, RetryPolicy, Vote
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE, boot_time
from tests.faults.on_three import KEY
from tests.faults.states import OTHER_PASSWORD, PASSWORD, STATES, USER, Server, State
from tests.faults.two_turns import two_turns
from tests.servers import ask

TTL: Final = 1.0  # seconds; the restart quarantine, too

EAGER: Final = RetryPolicy(base=0.01, cap=0.05)  # so that waiters ask often


MANAGERS: Final = 2


PROTOCOLS: Final = 2  # a client that is refused in RESP3 tries RESP2 at once, over another connection


def connections_allowed(seconds: float) -> float:
    """Return how often a server may be knocked at in that time: some tries at once, then 5 a second."""
    return MANAGERS * PROTOCOLS * (5 + 5 * seconds)


@pytest.fixture
def servers(make_nodes: Callable[..., LocalNodes]) -> Iterator[list[Server]]:
    """Give three servers, as seen by their operator."""
    nodes = make_nodes(3, options={"enable-debug-command": "yes"})
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Server(url))) for url in nodes.urls]


def locking_at(servers: Sequence[Server], state: State) -> list[str]:
    """Return the URLs that locks use."""
    login = f"redis://{USER}:{PASSWORD}@" if state.logs_in else "redis://"
    return [server.url.replace("redis://", login) for server in servers]


async def refused_because(manager: LockManager, pattern: str) -> QuorumUnavailableError:
    """Ask for a lock until the last two of three nodes give this reason, and return the error.

    At first a lost connection, or the silence of a node that has just begun, may be the reason.
    """
    deadline = boot_time() + PATIENCE
    while True:
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("another", blocking=False).acquire()
        assert [vote.vote for vote in caught.value.votes] == [Vote.GRANTED, Vote.SILENT, Vote.SILENT]
        reasons = [vote.reason for vote in caught.value.votes[1:]]
        if all(re.search(pattern, reason) for reason in reasons):
            return caught.value
        assert boot_time() < deadline, reasons
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("state", STATES, ids=repr)
async def test_a_server_that_grants_nothing(
    state: State, servers: list[Server], caplog: pytest.LogCaptureFixture
) -> None:
    """One of three costs nothing; with two no client gets the lock; when both are well B has it."""
    caplog.set_level(logging.DEBUG)
    urls = locking_at(servers, state)
    options = {"ttl": TTL, "restart_quarantine": TTL, "retry": EAGER}
    async with two_turns(urls, **options) as two:
        owner = ask(urls[0], "GET", KEY).decode()
        before = servers[1].connections
        began = boot_time()
        await state.comes_over(servers[1])
        await two.a.outlives(TTL / 2)
        two.a.lease.check()

        await state.comes_over(servers[2])
        error = await refused_because(two.b.manager, state.reason)
        findings = await two.b.manager.diagnose()
        if state.extends:
            await two.a.outlives(TTL / 2)
        else:
            await two.a.over()
            assert two.a.lost is not None
            assert two.a.lost.reason is LossReason.EXPIRED
        assert not two.b.inside.is_set()

        for server in servers[1:]:
            await state.leaves(server)
        lasted = boot_time() - began
        connections = servers[1].connections - before
        print(f"{state}: {connections} connections in {lasted:.1f} s")
        await two.recovered()

    assert connections <= connections_allowed(lasted)
    wrong = [finding.check for finding in findings if finding.node and finding.level == "error"]
    assert wrong == [state.check] * 2
    shown = "\n".join([caplog.text, str(error), repr(error.votes), repr(findings)])
    assert not [secret for secret in (PASSWORD, OTHER_PASSWORD, owner[:20]) if secret in shown]
