"""The lock: what is to be locked and for how long; shareable, reusable, and without a hold of its own."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, final

from ._acquire.acquisition import Acquisition, Request
from ._lease import Lease
from ._options import Fence_co
from ._session import lifecycle
from .errors import LockTakenError, printable

if TYPE_CHECKING:
    from ._manager import LockManager


@final
class Lock(Generic[Fence_co]):
    """A description of a lock, made by `LockManager.lock`.  Safe to enter from many tasks at once."""

    __slots__ = ("_entries", "_manager", "_request")

    def __init__(self, manager: LockManager[Fence_co], request: Request) -> None:
        self._manager = manager
        self._request = request
        self._entries: list[tuple[asyncio.Task[object] | None, Lease[Fence_co]]] = []

    def __repr__(self) -> str:
        return f"<Lock {printable(self.names)} ttl={self._request.ttl:g}s>"

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names, sorted and without duplicates."""
        return self._request.names

    if not TYPE_CHECKING:  # a type checker says itself that a lock cannot be awaited

        def __await__(self) -> NoReturn:
            """Say what to write for ``await manager.lock(…)``."""
            raise TypeError(
                "a Lock is not awaited: write `async with manager.lock(…) as lease:`, or "
                "`lease = await manager.lock(…).acquire()` and release it"
            )

    async def acquire(self) -> Lease[Fence_co]:
        """Wait for the lock and return its lease, which nobody but its holder ends.

        Raises:
            LockTakenError: somebody held it until the `blocking_timeout` ran out.
            QuorumUnavailableError: too few nodes answered at the last try.
            WouldDeadlockError: the calling task is inside an ``async with`` of the same name.
            ManagerClosedError: the manager is closed.
            ConfigurationError: two nodes turned out to be one server.
        """
        return await self._acquire(self._request.blocking_timeout)

    async def try_acquire(self) -> Lease[Fence_co] | None:
        """Try once, without waiting; None when somebody holds the lock.

        Raises:
            QuorumUnavailableError: too few nodes answered: nobody may hold it, so this is not None.
            ManagerClosedError, ConfigurationError: as `acquire`.
        """
        try:
            return await self._acquire(0.0)
        except LockTakenError:
            return None

    async def _acquire(self, patience: float | None) -> Lease[Fence_co]:
        manager = self._manager
        if (stand_in := lifecycle.stand_in) is not None:
            patience = stand_in.blocking_timeout(patience)
        began = manager.clock.now()
        limit, quorum_timeout = patience, self._request.quorum_timeout
        if quorum_timeout is not None:
            limit = quorum_timeout if patience is None else min(patience, quorum_timeout)
        runtime = await manager.ready(limit)  # the first use connects, within the caller's time
        holding = await Acquisition(runtime, self._request, patience=patience, began=began).run()
        return Lease(runtime, holding, self._request.on_lost)

    async def __aenter__(self) -> Lease[Fence_co]:
        """Acquire, and run the block under the lease; raises as `acquire` does."""
        lease = await self.acquire()
        lease.bind()  # no await since the win was judged (R7)
        self._entries.append((asyncio.current_task(), lease))
        return lease

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release the lease of the block that ends here; raises as `Lease.__aexit__` does."""
        if self._manager.inherited:
            return  # the lease is the parent's, and so is its end
        await self._pop().__aexit__(exc_type, exc, tb)

    def _pop(self) -> Lease[Fence_co]:
        """Find whose exit this is (R7).

        The current task's last entry; else, since fixtures leave in another task than they entered,
        one whose task has ended; else the oldest.
        """
        current, entries = asyncio.current_task(), self._entries
        if entries[-1][0] is current:
            return entries.pop()[1]
        own = [i for i, (task, _) in enumerate(entries) if task is current]
        orphaned = [i for i, (task, _) in enumerate(entries) if task is not None and task.done()]
        index = own[-1] if own else (orphaned or [0])[0]
        return entries.pop(index)[1]
