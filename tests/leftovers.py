"""A failed test takes nothing with it.

What tests share, the fixtures of a module or of the session, ends with a failed test, and the next test makes
it anew, so servers are replaced by others with other ports.  What the test itself left, nothing has ended
then: managers of threads and of loops that still run, servers, child processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import subprocess
import threading
import time
import warnings
from collections.abc import Generator, Iterator
from typing import Any, Final, TypeVar

import pytest

from aioredlock_ng._session.background import Background
from aioredlock_ng.sync._thread import NAME, LoopThread
from aioredlock_ng.testing import LocalNodes

GRACE: Final = 5.0
"""Seconds for all managers that were left to end by themselves."""

T = TypeVar("T")

_FAILED: Final = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[object]) -> None:
    """Note a failure, also one that is expected: an exception ended the test where it was."""
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.stash[_FAILED] = True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """End everything after a failed test; an error of a fixture that ends is an error of that test."""
    failed = item.stash.get(_FAILED, False)
    try:
        return (yield)
    except BaseException:
        failed = True
        raise
    finally:
        if failed:
            try:
                item.session._setupstate.teardown_exact(None)
            finally:
                with warnings.catch_warnings(action="ignore"):  # of leases that are dropped, say
                    end_leftovers()


def end_leftovers() -> None:
    """End all managers, servers and child processes of this process, none of which has a user any more.

    A lease that somebody keeps keeps its manager running, of which the object itself may be gone.
    """
    ends = []
    for background in _alive(Background):
        loop = background._session.loop
        if background.running and loop.is_running():
            end = asyncio.wait_for(background.aclose(), GRACE)
            ends.append(asyncio.run_coroutine_threadsafe(end, loop))
    for end in ends:
        with contextlib.suppress(Exception):  # it was as odd as the test that left it
            end.result(GRACE)
    for loop_thread in _alive(LoopThread):
        threading.Thread(target=_stop, args=[loop_thread], daemon=True).start()
    deadline = time.monotonic() + GRACE
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join(max(0.0, deadline - time.monotonic()))
    for nodes in _alive(LocalNodes):
        nodes.close()
    for process in (*_alive(subprocess.Popen), *multiprocessing.active_children()):
        process.kill()
    for process in _alive(subprocess.Popen):
        process.wait()


def _stop(loop_thread: LoopThread) -> None:
    """End a thread; waits for as long as calls in its loop do."""

    async def nothing() -> None:
        pass

    with contextlib.suppress(Exception):
        loop_thread.stop(nothing)


def _alive(kind: type[T]) -> Iterator[T]:
    """Return the objects of a class or a subclass; asks no object for its class, which some pretend."""
    gc.collect()
    found: list[Any] = [each for each in gc.get_objects() if issubclass(type(each), kind)]
    return iter(found)
