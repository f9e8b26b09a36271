"""Leader election without ``await`` (R31, R32)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioredlock_ng import (
    Leader,
    LockLostError,
    LossReason,
    ManagerClosedError,
    WouldDeadlockError,
)
from aioredlock_ng._lock.election import LOOK_SELDOM
from aioredlock_ng.sync import SyncLeadership, SyncLockManager
from tests.behaviour.test_sync import interrupts, no_thread_left, take_away, tasks_of  # noqa: F401 (fixtures)
from tests.behaviour.tools import keys
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
def test_an_observer_hears(shared_nodes: Nodes, manager: SyncLockManager, way: str, resigns: bool) -> None:
    """At once of leaders of other processes, and that one has resigned or left; it ends with its manager."""
    heard: list[Leader | None] = []
    with manager.lock("warm"), SyncLockManager(shared_nodes.urls) as other:
        observer = threading.Thread(target=lambda: heard.extend(other.election(NAME).observe()))
        observer.start()
        until(lambda: heard == [None], "there is no leader")
        leading = getattr(manager.election(NAME, holder="one"), way)()
        assert leading is not None
        with leading as leadership:
            until(lambda: len(heard) == 2, "it hears of the leader")
            assert heard[1] == Leader(leadership.term, "one")
            assert other.election(NAME).try_campaign() is None
            with pytest.raises(WouldDeadlockError):
                manager.lock(NAME).acquire()
            if resigns:
                leadership.resign()
                assert not leadership.lost.is_set()
        left = time.monotonic()
        until(lambda: heard[2:] == [None], "and that it has left")
        assert time.monotonic() - left < LOOK_SELDOM / 2, "by a goodbye, not when it looks of itself"
        assert not leadership.held
    observer.join()
    assert len(heard) == 3


def test_run_leads_once_per_term(manager: SyncLockManager) -> None:
    """`run` campaigns again when a leadership was lost, or its function returns; not once it is closed."""
    terms: list[int] = []

    def lead(leadership: SyncLeadership) -> None:
        terms.append(leadership.term)
        if len(terms) == 1:
            take_away(manager, NAME)
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
