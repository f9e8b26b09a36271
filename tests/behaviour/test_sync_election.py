"""Leader election without ``await`` (R31, R32)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioredlock_ng import (
    ExtensionPolicy,
    Leader,
    LockLostError,
    LossReason,
    ManagerClosedError,
    WouldDeadlockError,
)
from aioredlock_ng._lock.election import LOOK_SELDOM
from aioredlock_ng.sync import SyncLeadership, SyncLockManager
from aioredlock_ng.testing import LocalNodes, lose
from tests.behaviour.test_sync import interrupts, no_thread_left, tasks_of  # noqa: F401 (fixtures)
from tests.behaviour.tools import keys, strike
from tests.servers import Nodes, until

NAME = "scheduler"


@pytest.fixture
def manager(shared_nodes: Nodes) -> Iterator[SyncLockManager]:
    """Give a manager over real nodes."""
    with SyncLockManager(shared_nodes.urls, connect_timeout=10.0, holder="this") as manager:
        yield manager


def test_one_leader_at_a_time(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """Threads lead one after the other, with growing terms; a look finds the leader, and none after it."""
    terms: list[int] = []
    look = manager.election(NAME).leader

    def lead(label: str) -> None:
        with manager.election(NAME, holder=label).campaign() as leadership:
            assert (leadership.name, leadership.holder, leadership.held) == (NAME, label, True)
            assert 0 < leadership.remaining <= 10
            leadership.check()
            terms.append(leadership.term)
            until(lambda: look() == Leader(leadership.term, label), "its announcement is seen")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lead, [f"node-{number}" for number in range(4)]))
    assert terms == sorted(set(terms))
    assert len(terms) == 4
    assert look() is None
    assert keys(shared_nodes.urls) == {}


@pytest.mark.parametrize(
    ("way", "resigns"), [("campaign", True), ("campaign", False), ("try_campaign", False)]
)
def test_an_observer_is_told(shared_nodes: Nodes, manager: SyncLockManager, way: str, resigns: bool) -> None:
    """At once of leaders of other processes, and that one has resigned or left; it ends with its manager."""
    told: list[Leader | None] = []
    with manager.lock("warm"), SyncLockManager(shared_nodes.urls) as other:
        observer = threading.Thread(target=lambda: told.extend(other.election(NAME).observe()))
        observer.start()
        until(lambda: told == [None], "there is no leader")
        leading = getattr(manager.election(NAME, holder="one"), way)()
        assert leading is not None
        with leading as leadership:
            until(lambda: len(told) == 2, "it hears of the leader")
            assert told[1] == Leader(leadership.term, "one")
            assert other.election(NAME).try_campaign() is None
            with pytest.raises(WouldDeadlockError):
                manager.lock(NAME).acquire()
            if resigns:
                leadership.resign()
                assert not leadership.lost.is_set()
        left = time.monotonic()
        until(lambda: told[2:] == [None], "and that it has left")
        assert time.monotonic() - left < LOOK_SELDOM / 2, "by a goodbye, not when it looks of itself"
        assert not leadership.held
    observer.join()
    assert len(told) == 3


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_iteration_that_is_left(
    manager: SyncLockManager,
    interrupts: Callable[[float], None],  # noqa: F811
    interrupted: bool,
) -> None:
    """An observer that leaves, or is interrupted as it waits for news, is waited for by no task."""
    with manager.lock("warm"):
        pass
    tasks = tasks_of(manager)
    news = manager.election(NAME).observe()
    assert next(news) is None
    if interrupted:
        interrupts(0.2)
        with pytest.raises(KeyboardInterrupt):
            next(news)
    else:
        news.close()  # type: ignore[attr-defined]  # it is a generator
    until(lambda: tasks_of(manager) <= tasks, "no task is left in the loop")


@pytest.mark.heavy
def test_a_lost_leadership(make_nodes: Callable[..., LocalNodes]) -> None:
    """A thread is not cancelled: a loss sets `lost`, and raises at `check` and at the end."""
    nodes = make_nodes(3)
    with SyncLockManager(nodes.urls, ttl=2.0, extension=ExtensionPolicy(grace=0.2)) as manager:
        with pytest.raises(LockLostError), manager.election(NAME).campaign() as leadership:  # noqa: PT012
            strike(nodes, "frozen", 0, 1)
            assert leadership.lost.wait(30)
            until(lambda: not leadership.held, "its validity has ended")
            with pytest.raises(LockLostError):
                leadership.check()
            nodes.resume(0)
            nodes.resume(1)
        assert leadership.lost.is_set()


def test_run_leads_once_per_term(manager: SyncLockManager) -> None:
    """`run` campaigns again when a leadership was lost, or its function returns; not once it is closed."""
    terms: list[int] = []

    def lead(leadership: SyncLeadership) -> None:
        terms.append(leadership.term)
        if len(terms) == 1:
            manager._thread.submit(lose, manager.manager, NAME).result()
            assert leadership.lost.wait(30)
            leadership.check()
        if len(terms) == 3:  # only the loss of its own leadership is the end of a term
            raise LockLostError("lost", names=("other",), reason=LossReason.EXPIRED)

    with pytest.raises(LockLostError) as caught:
        manager.election(NAME).run(lead)
    assert caught.value.names == ("other",)
    assert terms == sorted(set(terms))
    assert len(terms) == 3
    manager.close()
    with pytest.raises(ManagerClosedError):
        manager.election(NAME).run(lead)


def test_a_campaign_is_used_once(manager: SyncLockManager) -> None:
    """A second campaign is another one."""
    campaign = manager.election(NAME).campaign()
    assert repr(campaign) == f"<SyncCampaign {NAME!r}>"
    with campaign as leadership:
        assert repr(leadership).startswith("<SyncLeadership")
    with pytest.raises(RuntimeError, match="used once"), campaign:
        pass


def test_interrupted_while_it_campaigns(
    shared_nodes: Nodes,
    manager: SyncLockManager,
    interrupts: Callable[[float], None],  # noqa: F811
) -> None:
    """A KeyboardInterrupt ends a campaign that waits; what fails after the win gives the lock back."""
    election = manager.election(NAME)
    with SyncLockManager(shared_nodes.urls) as other, other.election(NAME).campaign():
        interrupts(0.2)
        with pytest.raises(KeyboardInterrupt), election.campaign():
            raise AssertionError("two leaders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aioredlock_ng._locks.election.Leadership", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError), election.campaign():
            raise AssertionError("entered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aioredlock_ng.sync._election.SyncLeadership", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError) as kept:
            election.try_campaign()
    until(lambda: keys(shared_nodes.urls) == {}, "no lock is left")
    assert kept.value.__traceback__ is not None, "the collector has released nothing"
