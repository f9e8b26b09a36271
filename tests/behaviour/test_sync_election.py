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
from aioredlock_ng._locks.observation import LOOK_SELDOM
from aioredlock_ng.sync import SyncLeadership, SyncLockManager
from aioredlock_ng.testing import LocalNodes, lose
from tests.behaviour.test_sync import interrupts, no_thread_left, tasks_of, wait_for  # noqa: F401 (fixtures)
from tests.behaviour.tools import keys
from tests.servers import Nodes

NAME = "scheduler"


@pytest.fixture
def manager(shared_nodes: Nodes) -> Iterator[SyncLockManager]:
    """Give a manager over real nodes."""
    with SyncLockManager(shared_nodes.urls, connect_timeout=10.0, holder="this") as manager:
        yield manager


def _locks(nodes: Nodes) -> list[str]:
    """Return the keys of locks that are left: counters and announcements outlive them."""
    return [key for key in keys(nodes.urls) if "{" not in key]


def test_one_leader_at_a_time(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """Threads lead one after the other, with growing terms; a look finds the leader, and none after it."""
    terms: list[int] = []

    def lead(label: str) -> None:
        with manager.election(NAME, holder=label).campaign() as leadership:
            assert (leadership.name, leadership.holder, leadership.held) == (NAME, label, True)
            assert 0 < leadership.remaining <= 10
            leadership.check()
            terms.append(leadership.term)
            look = manager.election(NAME).leader
            wait_for(lambda: look() == Leader(leadership.term, label), "its announcement is seen")

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(lead, f"node-{number}") for number in range(4)]:
            done.result()
    assert terms == sorted(set(terms))
    assert len(terms) == 4
    assert manager.election(NAME).leader() is None
    assert _locks(shared_nodes) == []


def test_an_observer_is_told(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """The iteration tells of leaders of other processes, and ends when the manager is closed."""
    told: list[Leader | None] = []
    with SyncLockManager(shared_nodes.urls) as other:

        def observe() -> None:
            told.extend(other.election(NAME).observe())

        observer = threading.Thread(target=observe)
        observer.start()
        wait_for(lambda: told == [None], "there is no leader")
        with manager.election(NAME, holder="one").campaign() as leadership:
            wait_for(lambda: len(told) == 2, "it hears of the leader")
            assert told[1] == Leader(leadership.term, "one")
            leadership.resign()
            assert not leadership.lost.is_set()
            wait_for(lambda: told[2:] == [None], "and of its resignation")
    observer.join()
    assert len(told) == 3


@pytest.mark.parametrize("way", ["campaign", "try_campaign"])
def test_observers_hear_at_once_that_a_leader_has_left(
    shared_nodes: Nodes, manager: SyncLockManager, way: str
) -> None:
    """By a goodbye: not seconds later, when they look of themselves."""
    told: list[Leader | None] = []
    with manager.lock("warm"), SyncLockManager(shared_nodes.urls) as other:
        observer = threading.Thread(target=lambda: told.extend(other.election(NAME).observe()))
        observer.start()
        wait_for(lambda: told == [None], "there is no leader")
        leading = getattr(manager.election(NAME), way)()
        assert leading is not None
        with leading as leadership:
            wait_for(lambda: len(told) == 2, "it hears of the leader")
            assert other.election(NAME).try_campaign() is None
            with pytest.raises(WouldDeadlockError):
                manager.lock(NAME).acquire()
        left = time.monotonic()
        wait_for(lambda: told[2:] == [None], "and that it has left")
        assert time.monotonic() - left < LOOK_SELDOM / 2
        assert not leadership.held
    observer.join()


def test_an_iteration_that_is_left(manager: SyncLockManager) -> None:
    """An observer that leaves is waited for by no task."""
    with manager.lock("warm"):
        pass
    tasks = tasks_of(manager)
    news = manager.election(NAME).observe()
    assert next(news) is None
    news.close()  # type: ignore[attr-defined]  # it is a generator
    wait_for(lambda: tasks_of(manager) <= tasks, "no task is left in the loop")


def test_an_interrupted_observer(manager: SyncLockManager, interrupts: Callable[[float], None]) -> None:  # noqa: F811
    """A KeyboardInterrupt ends the waiting for news, also in the loop."""
    with manager.lock("warm"):
        pass
    tasks = tasks_of(manager)
    news = manager.election(NAME).observe()
    assert next(news) is None
    interrupts(0.2)
    with pytest.raises(KeyboardInterrupt):
        next(news)
    wait_for(lambda: tasks_of(manager) <= tasks, "no task is left in the loop")


@pytest.mark.heavy
def test_a_lost_leadership(make_nodes: Callable[..., LocalNodes]) -> None:
    """A thread is not cancelled: a loss sets `lost`, and raises at `check` and at the end."""
    nodes = make_nodes(3)
    short = ExtensionPolicy(grace=0.2)
    with SyncLockManager(nodes.urls, ttl=2.0, extension=short) as manager:
        with pytest.raises(LockLostError), manager.election(NAME).campaign() as leadership:  # noqa: PT012
            nodes.pause(0)
            nodes.pause(1)
            assert leadership.lost.wait(30)
            wait_for(lambda: not leadership.held, "its validity has ended")
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
        if len(terms) == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        manager.election(NAME).run(lead)
    assert terms == sorted(set(terms))
    assert len(terms) == 3
    manager.close()
    with pytest.raises(ManagerClosedError):
        manager.election(NAME).run(lead)


def test_another_locks_loss_leaves_run(manager: SyncLockManager) -> None:
    """Only the loss of its own leadership is the end of a term."""

    def lead(_: SyncLeadership) -> None:
        raise LockLostError("lost", names=("other",), reason=LossReason.EXPIRED)

    with pytest.raises(LockLostError) as caught:
        manager.election(NAME).run(lead)
    assert caught.value.names == ("other",)


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
    wait_for(lambda: _locks(shared_nodes) == [], "no lock is left")
