"""What is compared: one module per peer, each with a class `Peer` that locks as its documentation shows.

`Peer(urls, **options)` is made in a worker process; `cycle(name, body)` acquires, awaits `body()` and
releases.  Those with a watchdog also have `hold(name)` and `drop(held)`.  A peer that is not asyncio's
measures some slices itself, and can be asked for these alone; one for Node.js is a whole worker.  This
package imports nothing but the standard library, since not every peer can live in the environment of the
others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, final

Body: TypeAlias = Callable[[], Awaitable[None]]
"""What runs while the lock is held."""

TTL: Final = 10.0
"""Seconds that every peer's locks live."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A peer: its module, its options, and what can be asked of it."""

    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    """What an environment of its own needs, from pip or npm; empty: it lives in the one of the runner."""
    quorum: bool = True
    """Whether it uses all nodes."""
    slices: tuple[str, ...] = ()
    """What it can be asked for, and measures itself if it has a method for it; empty: whatever is asked."""
    excludes: bool = True
    """Whether it is a lock, rather than the floor below one."""
    inside: bool = False
    """Whether it locks inside one process only, without nodes."""
    holds: bool = False
    """Whether it has a watchdog."""
    needs_cc: bool = False
    only: str = ""
    """The one question that it is asked; empty: whatever fits."""
    node: bool = False
    """Whether its module is a worker for Node.js."""

    def can(self, *slices: str) -> bool:
        """Return whether these can be asked of it."""
        return not self.slices or set(slices) <= set(self.slices)


# aioredlock imports `distutils`, which Python 3.12 does not have; setuptools puts it back until version 81.
AIOREDLOCK: Final = ("aioredlock==0.7.3", "aioredis==1.3.1", "setuptools<81", "uvloop")
NODE_REDLOCK: Final = ("redlock@5.0.0-beta.2", "ioredis@5.4.1")
REDLOCK_NG: Final = ("redlock-ng==2.0.4", "redis[hiredis]", "uvloop")
"""It needs redis-py 5."""

PEERS: Final[Mapping[str, Spec]] = {
    "ours-plain": Spec(module="ours", options={"fencing": False, "restart_quarantine": 0}, holds=True),
    "ours-fenced": Spec(module="ours", holds=True),
    "ours-fair": Spec(module="ours", options={"fair": True}, only="processes"),
    "aioredlock": Spec(module="aioredlock_0_7", requirements=AIOREDLOCK, holds=True),
    "pottery": Spec(module="pottery_aioredlock"),
    "node-redlock": Spec(
        module="node_redlock", requirements=NODE_REDLOCK, slices=("latency", "throughput"), node=True
    ),
    "redlock-ng": Spec(module="redlock_ng", requirements=REDLOCK_NG, slices=("latency", "throughput")),
    "redis-py": Spec(module="redis_py_lock", quorum=False),
    "gather": Spec(module="gather"),
    "floor": Spec(module="floor", excludes=False),
    "floor-c": Spec(module="floor_c", excludes=False, slices=("latency",), needs_cc=True),
    "asyncio.Lock": Spec(module="asyncio_lock", quorum=False, inside=True),
}
