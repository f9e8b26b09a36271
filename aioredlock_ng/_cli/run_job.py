"""What `run` does: wait for the lock, run the command under it, release it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Callable
from typing import Final, final

from .. import (
    Lease,
    LockError,
    LockManager,
    LockTakenError,
    NodeInspection,
    QuorumUnavailableError,
    ReleaseOutcome,
)
from ..events import Refused
from .common import LOST, UNAVAILABLE
from .run_guarded import SIGNALLED, GuardedRun
from .run_plan import Plan, say

FORWARDED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1,
                    signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH)  # fmt: skip
"""Signals that are passed on to the command."""

HARMLESS: Final = (signal.SIGCONT, signal.SIGWINCH)
"""Those of them that do not end the waiting for the lock."""


@final
class Job:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._shown = ascii(plan.name)
        self._guarded = GuardedRun(plan)
        self._signal: int | None = None
        """The signal that ended the waiting."""
        self._signalled = asyncio.Event()
        self._complained = False

    @property
    def interrupted(self) -> bool:
        """Whether a Ctrl-C ended the command, which our own caller has not got."""
        return self._guarded.interrupted

    # -- hooks ---------------------------------------------------------------------------------

    def on_refused(self, event: Refused) -> None:
        """Say once why it takes long when no other holder is the reason."""
        if not event.taken and self._plan.patience is None and not self._complained:
            self._complained = True
            say(f"lock {self._shown}: too few nodes answer; still trying")

    # -- signals -------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        """Pass on what is sent to us; what was ignored at our start, as under nohup, stays ignored."""
        loop = asyncio.get_running_loop()
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._caught, number)

    def _caught(self, number: int) -> None:
        if not self._guarded.pass_on(number) and number not in HARMLESS and self._signal is None:
            self._signal = number
            self._signalled.set()

    # -- the lock ------------------------------------------------------------------------------

    async def run(self, make_manager: Callable[..., LockManager]) -> int:
        """Run the command under the lock and return the exit code."""
        self._catch_signals()
        plan = self._plan
        manager = make_manager(ttl=plan.ttl, extension=plan.extension, hooks=[self, self._guarded])
        try:
            lease = await self._wait_for_lock(manager)
            if lease is None:
                return SIGNALLED + (self._signal or 0)
            return await self._run_under(lease, manager)  # no await since the signals were looked at
        except LockTakenError:
            return plan.taken_code
        except QuorumUnavailableError as error:
            say(str(error))
            return UNAVAILABLE
        finally:
            await manager.aclose()

    async def _wait_for_lock(self, manager: LockManager) -> Lease | None:
        """Acquire; None when a signal came first."""
        acquiring = asyncio.create_task(self._acquire(manager))
        signalled = asyncio.create_task(self._signalled.wait())
        await asyncio.wait((acquiring, signalled), return_when=asyncio.FIRST_COMPLETED)
        if self._signal is None:
            signalled.cancel()
            return acquiring.result()
        acquiring.cancel()
        with contextlib.suppress(asyncio.CancelledError, LockError):
            await (await acquiring).release()
        return None

    async def _acquire(self, manager: LockManager) -> Lease:
        began = manager.clock.now()
        await manager.start()  # connecting takes the time it takes: no wait means none for the lock
        patience = self._plan.patience
        if patience is not None:
            patience = max(0.0, began + patience - manager.clock.now())
        try:
            return await self._plan.lock(manager, patience).acquire()
        except LockTakenError as error:
            if self._plan.taken_code != 0:  # a zero says that this is as good as any end
                say(await self._describe_holder(manager, error.retry_after))
            raise

    async def _describe_holder(self, manager: LockManager, retry_after: float | None) -> str:
        nodes = await manager.inspect(self._plan.name)
        seen = Counter(self._in_the_way(node) for node in nodes if node.held)
        if self._plan.fair and not seen:
            return (
                f"lock {self._shown} is reserved for the next waiter in its queue; the command was not "
                "started"
            )
        (by, _), *_ = seen.most_common(1) or [("taken", 0)]
        rest = (
            ""
            if retry_after is None
            else f", and expires in {retry_after:.1f} s unless its holder extends it"
        )
        return f"lock {self._shown} is {by}{rest}; the command was not started"

    def _in_the_way(self, node: NodeInspection) -> str:
        """Say what a node has there, in words that go behind "is"."""
        if node.permits:
            return f"held by the holders of {len(node.permits)} permits"
        if not node.readers:
            return f"held by {ascii(node.holder)[1:-1]}" if node.holder else "taken"
        if self._plan.mode == "read":
            return "reserved for a waiting writer"
        number = f"{len(node.readers)}{' or more' if node.more_readers else ''}"
        return f"held by {number} reader{'' if number == '1' else 's'}"

    # -- the command ---------------------------------------------------------------------------

    async def _run_under(self, lease: Lease, manager: LockManager) -> int:
        try:
            code = await self._guarded.run(lease, manager.clock)
        finally:
            held = lease.held
            report = await lease.release()
        if held and 2 * report.count(ReleaseOutcome.NOT_HELD) > len(report.nodes):
            say(
                f"lock {self._shown} was gone before the command ended: another holder may have run meanwhile"
            )
            return LOST
        return code
