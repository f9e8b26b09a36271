"""What releases of a read-write lock tell, and on which channels, on every kind of master (R13, R22, R33)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from tests.conformance.read_write import ReadWriteStage, read_write_staged
from tests.conformance.stage import locks, queues
from tests.conformance.test_notices import LAST, LOUD, all_told
from tests.conformance.tools import OTHERS, OURS, Master
from tests.listening import listen

KEY, QUEUE = locks("a")[0], queues("a")[0]
Told = list[tuple[bytes, bytes]]
MODES: Final = ("read", "write")

each_mode = pytest.mark.parametrize("mode", MODES)
with_and_without_a_fence = pytest.mark.parametrize("fence", [0, 777], ids=["plain", "fenced"])


@pytest.fixture
async def stage(master: Master) -> AsyncIterator[ReadWriteStage]:
    """Give an empty node with a sentinel."""
    async with read_write_staged(master) as made:
        yield made


@pytest.fixture
async def told(master: Master) -> AsyncIterator[Callable[[], Any]]:
    """Give a function that returns what a waiting reader and two waiting writers have been told since then.

    All listen on the channel of the key, writers also on that of the queue.
    """
    async with contextlib.AsyncExitStack() as stack:
        listeners = []
        for channels in ((KEY,), (KEY, QUEUE), (KEY, QUEUE)):
            listener = await listen(master.spec)
            stack.callback(listener.transport.close)
            await listener.subscribe(*channels, LAST)
            listeners.append(listener)

        async def all_since() -> list[Told]:
            seen = await all_told(listeners)
            for listener in listeners:
                listener.told.clear()
            return seen

        yield all_since


@each_mode
@with_and_without_a_fence
async def test_a_writer_that_leaves_tells_all(
    stage: ReadWriteStage, told: Callable[[], Any], mode: str, fence: int
) -> None:
    """On the channel of the key, saying to how many; in whatever mode it is released."""
    stage.put(KEY, OURS, 30.0)
    assert await stage.rw_release(mode, fence, loud=LOUD) == [1, 0, 3]
    assert await told() == [[(KEY, b"3")]] * 3


@each_mode
@with_and_without_a_fence
async def test_the_last_reader_tells_writers(
    stage: ReadWriteStage, told: Callable[[], Any], mode: str, fence: int
) -> None:
    """On the channel of the queue; not while others read, of whom those that crashed are none."""
    await stage.put_readers(ours=30, others=20)
    assert await stage.rw_release(mode, fence, loud=LOUD) == [1, 0, 0]
    assert await told() == [[], [], []]
    await stage.put_readers(ours=30, ended=-1)
    assert await stage.rw_release(mode, fence, loud=LOUD) == [1, 0, 2]
    assert await told() == [[], [(QUEUE, b"2")], [(QUEUE, b"2")]]


async def test_a_downgrade_tells_all(stage: ReadWriteStage, told: Callable[[], Any]) -> None:
    """Readers may come in (R23); an extension of a reader is nothing new."""
    stage.put(KEY, OURS, 30.0)
    assert await stage.rw_extend("read") == 1
    assert await told() == [[(KEY, b"3")]] * 3
    assert await stage.rw_extend("read") == 1
    assert await told() == [[], [], []]


@each_mode
async def test_a_quiet_release_tells_nothing(
    stage: ReadWriteStage, told: Callable[[], Any], mode: str
) -> None:
    """And counts no listener."""
    stage.put(KEY, OURS, 30.0)
    assert await stage.rw_release(mode) == [1, 0, 0]
    await stage.put_readers(ours=30)
    assert await stage.rw_release(mode) == [1, 0, 0]
    assert (await stage.rw_release(mode))[2] == 0
    assert await told() == [[], [], []]


@pytest.mark.parametrize(("mode", "crowd"), [("read", 3), ("write", 2)])
async def test_what_gives_nothing_back_counts_those_that_wait_alike(
    stage: ReadWriteStage, told: Callable[[], Any], mode: str, crowd: int
) -> None:
    """A reader all that listen for the key, a writer those that listen for the last reader (R33)."""
    for holder in (None, OTHERS):
        stage.put(KEY, holder, 30.0)
        assert (await stage.rw_release(mode, loud=LOUD))[2] == crowd
    await stage.put_readers(others=30)
    assert (await stage.rw_release(mode, loud=LOUD))[2] == crowd
    assert await told() == [[], [], []]


@each_mode
async def test_a_writer_that_gives_up_tells_readers(
    stage: ReadWriteStage, told: Callable[[], Any], mode: str
) -> None:
    """They need not wait for it any more; where it left no mark there is nothing to tell."""
    await stage.put_readers(others=30)
    await stage.put_marks(w7=30, w8=30)
    await stage.rw_release(mode, seat=b"9")
    assert await told() == [[], [], []]
    await stage.rw_release(mode, seat=b"7")
    assert await told() == [[(KEY, b"3")]] * 3
