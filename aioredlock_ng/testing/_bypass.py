"""Locks without nodes: for unit tests of code whose manager points at production.

`LockManager.ready`, which gives every acquire the runtime to work with, is the seam: a bypassed acquire
gets a runtime of its own, over nodes that grant everything at once, or refuse it, or say nothing.  All the
rest is the shipping code.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast, final
from weakref import WeakKeyDictionary

from .. import _scripts
from .._clock import Clock, wall_of
from .._core.command import Command, Purpose, Reply, Silence, Sink
from .._core.diagnosis.findings import Finding
from .._core.fencing import at
from .._lease import Lease
from .._lock import Lock
from .._manager import LockManager
from .._node import Node, NodeState, Standing
from .._session.runtime import Counters, Runtime
from ..errors import LossReason

_REPLIES: Final[dict[Purpose, Reply]] = {
    Purpose.ACQUIRE: 0,  # without a fence
    Purpose.RAISE: 1,
    Purpose.EXTEND: 1,
    Purpose.RELEASE: [1, 0, 0],
}
_LOOKS: Final[dict[bytes, Reply]] = {b"SCAN": [b"0", []], b"DEL": 0, b"TIME": [b"0", b"0"]}
_SCRIPTED_LOOKS: Final[dict[str, Reply]] = {
    _scripts.INSPECT.name: [None, -2],
    _scripts.INIT.name: b"1:-:0:0:0:0:0:0:init:",
}
"""What those find who look at nodes, or administer them: nothing."""

RETRY_AFTER: Final = 5.0
"""Seconds until the others give back the locks that they seem to hold, when every lock is refused."""

_LEFT_MS: Final = int(RETRY_AFTER * 1000)

_SILENCE: Final = Silence("no node answers: all locks are bypassed, and refused for want of a quorum")

Refuse: TypeAlias = bool | Literal["quorum"]
"""What happens to locks: granted, taken, or not to be had because no node answers."""

_runtimes: Final[WeakKeyDictionary[Runtime, LockManager]] = WeakKeyDictionary()


class _Willing:
    """A node that grants everything; a round needs no more of a node than this."""

    standing = Standing(state=NodeState.UP)

    def __init__(self, name: str, fence: int) -> None:
        self.name = name
        self._fence = fence

    def submit(self, command: Command, sink: Sink, index: int) -> None:
        sink.on_reply(index, self.reply(command))

    def reply(self, command: Command) -> Reply:
        """Return what a server would answer."""
        if command.script is _scripts.ACQUIRE:
            return [1, self._fence, 0]
        if command.purpose is not Purpose.OTHER:
            return _REPLIES[command.purpose]
        return _LOOKS[command.verb] if command.script is None else _SCRIPTED_LOOKS[command.script.name]

    async def greet(self) -> None:
        """Do nothing: there is no sentinel to look at."""


@final
class _Unwilling(_Willing):
    """A node on which another client holds every name; or that does not answer."""

    def __init__(self, name: str, *, silent: bool) -> None:
        super().__init__(name, fence=0)
        self._silent = silent

    def reply(self, command: Command) -> Reply:
        """Return what a server would answer."""
        if self._silent:
            return _SILENCE
        if command.purpose is Purpose.ACQUIRE:
            fenced = command.script is _scripts.ACQUIRE
            return [0, _LEFT_MS, 0] if fenced else None if command.script is None else _LEFT_MS
        if command.purpose is Purpose.RELEASE:
            return [0, _LEFT_MS, 0]
        if command.script is _scripts.INSPECT:
            return [b"somebody else", _LEFT_MS]
        return super().reply(command)


@final
class _Standing:
    """A clock that stands still: nobody extends a bypassed lease, so it must not run out either."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now()
        self.wall = wall_of(clock)

    def now(self) -> float:
        return self._now


async def _ready(manager: LockManager, _patience: float | None = None, **_looking: bool) -> Runtime:
    """Stand in for `LockManager.ready`; `manager` itself stays as it was."""
    await asyncio.sleep(0)  # as with a real acquire, whoever takes locks in a loop lets others run
    clock = _Standing(manager.clock)
    names = [node.name for node in manager._nodes]  # noqa: SLF001 (here and below: it stands in for a method)
    made: list[_Willing]
    if refuse := bypass.refuses():
        made = [_Unwilling(name, silent=refuse == "quorum") for name in names]
    else:
        # One acquire, one runtime, one fence.  All names share them, so that each of them sees them grow.
        bypass.fence = max(bypass.fence + 1, at(int(clock.wall() * 1000)))
        made = [_Willing(name, bypass.fence) for name in names]
    nodes = [cast("Node", node) for node in made]
    options, random, audience = manager._options, manager._random, manager._audience  # noqa: SLF001
    runtime = Runtime(nodes, options, clock, random, audience, counters=Counters())
    _runtimes[runtime] = manager
    return runtime


async def _aclose(manager: LockManager) -> None:
    """Stand in for `LockManager.aclose`: the next test can use the same manager again."""
    for runtime in bypassed(manager):
        for holding in list(runtime.holdings):
            if holding.body is None or holding.body.task is not asyncio.current_task():
                holding.lose(LossReason.MANAGER_CLOSED)
            holding.release()
    if manager._runtime is not None:  # noqa: SLF001 (it was started outside, so it has what must end)
        await bypass.saved[LockManager, "aclose"](manager)


async def _diagnose(_manager: LockManager) -> tuple[Finding, ...]:
    """Stand in for `LockManager.diagnose`: of nodes that are not asked there is nothing to find."""
    await asyncio.sleep(0)
    return ()


async def _acquire(lock: Lock, patience: float | None) -> Lease:
    """Stand in for `Lock._acquire`: where every lock is refused, the first try is as good as the last."""
    lease: Lease = await bypass.saved[Lock, "_acquire"](lock, 0.0 if bypass.refuses() else patience)
    return lease


def _unavailable_for(_manager: LockManager) -> float:
    """Stand in for `LockManager.unavailable_for`."""
    return math.inf if bypass.refuses() == "quorum" else 0.0


def bypassed(manager: LockManager[int | None]) -> list[Runtime]:
    """Return the runtimes of the bypassed leases that `manager` has in the running loop."""
    loop = asyncio.get_running_loop()
    return [runtime for runtime, owner in _runtimes.items() if owner is manager and runtime.loop is loop]


_SUBSTITUTES: Final[dict[tuple[type, str], object]] = {
    (LockManager, "ready"): _ready,
    (LockManager, "_settled"): _ready,
    (LockManager, "aclose"): _aclose,
    (LockManager, "diagnose"): _diagnose,
    (LockManager, "unavailable_for"): property(_unavailable_for),
    (Lock, "_acquire"): _acquire,
}
"""What stands in for which of whose methods."""


@final
class bypass:  # noqa: N801 (a context manager that reads like `contextlib.suppress`)
    """Grant every lock of every manager of this process at once, for the length of a ``with`` block; or none.

    Nothing is sent, nobody waits, nothing runs in the background, and no manager is bound to a loop: a
    module-level manager over production nodes needs no server, and no closing.  *Nobody is excluded*,
    not even by a lock of the same name around this one.  Leases, decorators, hooks, options and
    `lose` work as ever, and fences grow from one lease to the next; but a bypassed lease does not run
    out, `LockManager.statistics` does not count it, and whoever looks at the nodes finds nothing.  For
    tests only; it can be nested, and the block that was entered last counts.

    Args:
        refuse: True: every lock is held by another client for five seconds more: `try_acquire`
            returns None, `acquire` and ``async with`` raise `LockTakenError`.  ``"quorum"``: no node answers,
            so they raise `QuorumUnavailableError`.  At once, whatever their `blocking_timeout`, as if it had
            passed; leases that were granted before stay as they are.

    Raises:
        ValueError: `refuse` is anything else.
    """

    active: ClassVar[list[bypass]] = []
    """The blocks that were entered and not left."""
    fence: ClassVar[int] = 0
    """The last one that was given out in this process."""
    saved: ClassVar[dict[tuple[type, str], Any]] = {}

    def __init__(self, *, refuse: Refuse = False) -> None:
        if refuse is not True and refuse is not False and refuse != "quorum":
            raise ValueError(f"refuse must be True, False or 'quorum', got {refuse!r}")
        self.refuse: Refuse = refuse

    @classmethod
    def refuses(cls) -> Refuse:
        """Say what happens to locks now."""
        return bool(cls.active) and cls.active[-1].refuse

    def __enter__(self) -> None:
        if not bypass.active:
            for (owner, name), substitute in _SUBSTITUTES.items():
                bypass.saved[owner, name] = getattr(owner, name)
                setattr(owner, name, substitute)
        bypass.active.append(self)

    def __exit__(self, *_: object) -> None:
        bypass.active.remove(self)
        if not bypass.active:
            for (owner, name), original in bypass.saved.items():
                setattr(owner, name, original)
