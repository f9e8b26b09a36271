"""One worker process: adds to the counter under the lock, and reports every section it was in.

    python -m aioredlock_ng._demo.worker {count|hold} NAME COUNTER URL …

It prints one JSON object per line (``kind``: node, ready, inside, section) and reads orders, one per line.
The end of its standard input ends it: it never outlives the demo.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, final

from .. import Lease, LockLostError, LockManager, RetryPolicy
from ..events import NodeChanged
from .history import Section

LOCK: Final = "counter"

TTL: Final = 2.0
"""Seconds: short, so that the demo need not wait long for a frozen holder; a busy machine still keeps it."""

TASKS: Final = 3
"""Tasks of one process that count."""

RETRY: Final = RetryPolicy(base=0.01, cap=0.1)

_PAUSE: Final = 0.001
"""Seconds between read and write."""

_THINK: Final = 0.1
"""Seconds, at most, between two sections of one task."""


def report(kind: str, **facts: Any) -> None:
    """Tell the demo something."""
    print(json.dumps({"kind": kind, **facts}), flush=True)  # noqa: T201 (standard output is the pipe)


@final
class Counter:
    """A number in a plain file; adding to it is not atomic, which is the point."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def read(self) -> int:
        """Return the number; 0 while somebody who should not be there is writing."""
        return int(self._path.read_text() or 0)

    def write(self, value: int) -> None:
        """Replace the number."""
        self._path.write_text(str(value))


@final
class Visit:
    """One visit of the critical section, from asking for the lock to the report."""

    def __init__(self, worker: str, counter: Counter) -> None:
        self._worker = worker
        self._counter = counter
        self._asked = time.monotonic()
        self._entered = 0.0
        self._left: float | None = None
        self._wrote = False
        self._lease: Lease | None = None
        self._valid_until = 0.0
        self.value = 0

    def enter(self, lease: Lease) -> None:
        """Note that we are in, and read."""
        self._entered = time.monotonic()
        self._lease = lease
        self._note_validity()
        self.value = self._counter.read()

    def _note_validity(self) -> None:
        # From the lease's clock to the one that the processes share.
        if self._lease is not None and self._lease.held:
            self._valid_until = time.monotonic() + self._lease.remaining

    def write(self) -> None:
        """Write, if the lock is still ours: the check comes right before the write.

        Check and write are two steps.  A process that is frozen between them still writes late; only a
        resource that compares fences can refuse that, and a plain file is none.

        Raises:
            LockLostError: the lock is not ours any more; nothing was written.
        """
        assert self._lease is not None, "enter() comes first"
        self._lease.check()
        self._counter.write(self.value + 1)
        self._wrote = True
        self._left = time.monotonic()
        self._note_validity()

    @property
    def valid_for(self) -> float:
        """Seconds of validity when we came in."""
        return self._valid_until - self._entered

    def report(self, lost: LockLostError | None = None) -> None:
        """Tell the demo, unless we never got in."""
        if self._lease is None:
            return
        section = Section(
            worker=self._worker,
            entered=self._entered,
            left=time.monotonic() if self._left is None else self._left,
            valid_until=self._valid_until,
            wrote=self._wrote,
            waited=self._entered - self._asked,
            extensions=self._lease.extensions,
            lost=lost.reason if lost else "",
        )
        report("section", **asdict(section))


async def count(manager: LockManager, name: str, counter: Counter) -> None:
    """Count with several tasks until told to stop; ``long SECONDS`` orders one long section more."""
    lock = manager.lock(LOCK)
    stopping = asyncio.Event()

    async def visit(pause: float) -> None:
        here = Visit(name, counter)
        try:
            async with lock as lease:
                if not stopping.is_set():
                    here.enter(lease)
                    await asyncio.sleep(pause)
                    here.write()
        except LockLostError as error:
            here.report(error)
        else:
            here.report()

    async def go_on() -> None:
        while not stopping.is_set():
            await visit(_PAUSE)
            await asyncio.sleep(random.uniform(0, _THINK))

    orders = await _orders()
    report("ready")
    async with asyncio.TaskGroup() as tasks:
        counting = [tasks.create_task(go_on()) for _ in range(TASKS)]
        while (order := (await orders.readline()).decode().split()) and order[0] == "long":
            counting.append(tasks.create_task(visit(float(order[1]))))
        stopping.set()
        if not order:  # the demo is gone, and its nodes with it: nobody will ever get the lock
            for task in counting:
                task.cancel()


async def _orders() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


async def hold(manager: LockManager, name: str, counter: Counter) -> None:
    """Take the lock and read; write when told to.

    It waits for the order without giving the event loop a turn: the demo freezes the process right
    there, and when it goes on nothing comes between the order and the write but `Visit.write`'s check.
    """
    here = Visit(name, counter)
    try:
        async with manager.lock(LOCK) as lease:
            here.enter(lease)
            report("inside", value=here.value, valid_for=here.valid_for)
            if sys.stdin.readline():
                here.write()
    except LockLostError as error:
        here.report(error)
        return
    here.report()


class Hooks:
    """Tells the demo what becomes of the nodes."""

    def on_node_changed(self, event: NodeChanged) -> None:
        """See `aioredlock_ng.events`."""
        report("node", node=event.node, state=event.state)


async def main() -> None:
    """Do what the command line says."""
    mode, name, path, *urls = sys.argv[1:]
    options: dict[str, Any] = {"ttl": TTL, "restart_quarantine": TTL, "retry": RETRY, "holder": name}
    async with LockManager(urls, hooks=[Hooks()], **options) as manager:
        await {"count": count, "hold": hold}[mode](manager, name, Counter(path))


if __name__ == "__main__":
    asyncio.run(main())
