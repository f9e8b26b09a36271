"""Locks without nodes: for unit tests of code whose manager points at production.

`LockManager.ready`, which gives every acquire the runtime to work with, is the seam: a bypassed acquire
gets a runtime of its own, over nodes that grant everything at once.  All the rest is the shipping code.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final, cast, final
from weakref import WeakKeyDictionary

from .. import _scripts
from .._clock import Clock, wall_of
from .._core.command import Command, Purpose, Reply, Sink
from .._core.diagnosis.findings import Finding
from .._core.fencing import at
from .._manager import LockManager
from .._node import Node, NodeState, Standing
from .._runtime import Counters, Runtime
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
    _scripts.INIT.name: b"1:-:0:0:0:0",
}
"""What those find who look at nodes, or administer them: nothing."""

_runtimes: Final[WeakKeyDictionary[Runtime, LockManager]] = WeakKeyDictionary()


@final
class _Willing:
    """A node that grants everything; a round needs no more of a node than this."""

    standing = Standing(state=NodeState.UP)

    def __init__(self, name: str, fence: int) -> None:
        self.name = name
        self._fence = fence

    def submit(self, command: Command, sink: Sink, index: int) -> None:
        sink.on_reply(index, self._reply(command))

    def _reply(self, command: Command) -> Reply:
        if command.script is _scripts.ACQUIRE:
            return [1, self._fence, 0]
        if command.purpose is not Purpose.OTHER:
            return _REPLIES[command.purpose]
        return _LOOKS[command.verb] if command.script is None else _SCRIPTED_LOOKS[command.script.name]

    async def greet(self) -> None:
        """Do nothing: there is no sentinel to look at."""


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
    # One acquire, one runtime, one fence.  All names share them, so that each of them sees them grow.
    bypass.fence = max(bypass.fence + 1, at(int(clock.wall() * 1000)))
    nodes = [cast("Node", _Willing(node.name, bypass.fence)) for node in manager._nodes]  # noqa: SLF001
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
        await bypass.saved["aclose"](manager)


async def _diagnose(_manager: LockManager) -> tuple[Finding, ...]:
    """Stand in for `LockManager.diagnose`: of nodes that are not asked there is nothing to find."""
    await asyncio.sleep(0)
    return ()


def bypassed(manager: LockManager) -> list[Runtime]:
    """Return the runtimes of the bypassed leases that `manager` has in the running loop."""
    loop = asyncio.get_running_loop()
    return [runtime for runtime, owner in _runtimes.items() if owner is manager and runtime.loop is loop]


_SUBSTITUTES: Final[dict[str, object]] = {
    "ready": _ready,
    "_settled": _ready,
    "aclose": _aclose,
    "diagnose": _diagnose,
    "unavailable_for": property(lambda _: 0.0),
}
"""What stands in for which of the manager's methods."""


@final
class bypass:  # noqa: N801 (a context manager that reads like `contextlib.suppress`)
    """Grant every lock of every manager of this process at once, for the length of a ``with`` block.

    Nothing is sent, nobody waits, nothing runs in the background, and no manager is bound to a loop: a
    module-level manager over production nodes needs no server, and no closing.  *Nobody is excluded*,
    not even by a lock of the same name around this one.  Leases, decorators, hooks, options and
    `lose` work as ever, and fences grow from one lease to the next; but a bypassed lease does not run
    out, `LockManager.statistics` does not count it, and whoever looks at the nodes finds nothing.  For
    tests only; it can be nested.
    """

    depth: ClassVar[int] = 0
    fence: ClassVar[int] = 0
    """The last one that was given out in this process."""
    saved: ClassVar[dict[str, Any]] = {}

    def __enter__(self) -> None:
        if bypass.depth == 0:
            for name, substitute in _SUBSTITUTES.items():
                bypass.saved[name] = getattr(LockManager, name)
                setattr(LockManager, name, substitute)
        bypass.depth += 1

    def __exit__(self, *_: object) -> None:
        bypass.depth -= 1
        if bypass.depth == 0:
            for name, original in bypass.saved.items():
                setattr(LockManager, name, original)
