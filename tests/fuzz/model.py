"""What the public API must keep to, as a model that is simple on purpose.

Nodes live, so that nothing excuses a broken promise; what faults do to calls is the simulation's matter.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from aioredlock_ng import (
    ConfigurationError,
    Lease,
    LockError,
    LockLostError,
    LockManager,
    LockNotAcquiredError,
    LockTakenError,
    LossReason,
    ManagerClosedError,
    QuorumUnavailableError,
    WouldDeadlockError,
)
from aioredlock_ng._core.validity import drift
from aioredlock_ng.testing import MemoryNode
from tests.unit.traces import PREFIX

# Seconds: nodes tell in whole milliseconds how long a key will live, and extend by them.
ROUNDING: Final = 0.001 + 1e-6

# The documented ends of the tree of errors.
KINDS: Final = (LockTakenError, QuorumUnavailableError, LockLostError, WouldDeadlockError, ManagerClosedError)


@dataclass(eq=False)
class Process:
    """A manager, which stands for a process of its own."""

    manager: LockManager
    waits: int = 0  # calls of `acquire` that have not ended


@dataclass(eq=False)
class Call:
    """One call that acquires, from its start on; in a block, up to the block's end."""

    process: Process
    names: tuple[str, ...]
    ttl: float
    cancelled: bool = False
    task: asyncio.Task[Any] | None = None
    grant: Grant | None = None
    orders: asyncio.Future[str] | None = None  # how the body under the lease shall end; None without a body


@dataclass(eq=False)
class Grant:
    """A lease, and what the model knows of it."""

    lease: Lease
    call: Call
    ttls: list[float]
    owner: bytes


@dataclass
class Model:
    """All grants of all processes."""

    nodes: list[MemoryNode]
    fenced: bool
    grants: list[Grant] = field(default_factory=list)  # those that are not released
    fences: dict[str, int] = field(default_factory=dict)
    given: int = 0

    def grant(self, call: Call, lease: Lease) -> Grant:
        """Note a new lease; called in the very step in which `acquire` returns."""
        grant = Grant(lease, call, [call.ttl], lease._holding.owner)
        call.grant = grant
        self.given += 1
        assert lease.names == call.names, "the lease is of what was asked for"
        assert lease.held, "a lease is held when it is returned"
        assert bool(lease._holding.fence) == self.fenced
        for name in call.names:
            self._check_exclusion(grant, name)
            if self.fenced:
                self._check_fence(grant, name, lease.fence)
        self.grants.append(grant)
        return grant

    def _check_exclusion(self, new: Grant, name: str) -> None:
        for old in self.grants:
            if name in old.lease.names and old.lease.held:
                raise AssertionError(f"two hold {name!r}: {old.lease!r} and {new.lease!r}")

    def _check_fence(self, new: Grant, name: str, fence: int) -> None:
        before = self.fences.get(name, 0)
        assert fence > before, f"fence {fence} of {name!r} after {before}"
        self.fences[name] = fence

    def forget(self, grant: Grant) -> None:
        """Forget a lease: it is released."""
        if grant in self.grants:
            self.grants.remove(grant)

    # -- what holds after every step -----------------------------------------------------------

    def check(self) -> None:
        """Check all that is promised of leases."""
        held: dict[str, Grant] = {}
        for grant in self.grants:
            self._check_lease(grant)
            for name in grant.lease.names if grant.lease.held else ():
                other = held.get(name)
                assert other is None, (other, grant)
                held[name] = grant

    def _check_lease(self, grant: Grant) -> None:
        lease = grant.lease
        if not lease.held:
            assert lease.remaining == 0
            error = _raised(lease.check)
            assert isinstance(error, LockLostError), f"{lease!r} is not held, and check() says {error!r}"
            assert error.reason in LossReason
            check_error(error, lease.names)
            return
        lease.check()
        assert 0 < lease.remaining <= max(grant.ttls) - drift(max(grant.ttls)) + 1e-6, lease
        backed, claim = self.backed(grant), lease.remaining + drift(min(grant.ttls))
        assert claim <= backed + ROUNDING, f"{lease!r} claims {claim}, backed for {backed}"

    def backed(self, grant: Grant) -> float:
        """Return for how many seconds a majority of the nodes has all keys of a lease."""
        lives = []
        for node in self.nodes:
            keys = [PREFIX + name.encode() for name in grant.lease.names]
            ours = all(node.get(key) == grant.owner for key in keys)
            lives.append(min((node.ttl(key) or 0.0) for key in keys) if ours else 0.0)
        return sorted(lives, reverse=True)[len(self.nodes) // 2]

    def check_statistics(self, process: Process) -> None:
        """Check a manager's figures against the model."""
        figures = process.manager.statistics()
        ours = [grant for grant in self.grants if grant.call.process is process]
        assert figures.held == sum(grant.lease.held for grant in ours), (figures, ours)
        assert figures.waiting <= process.waits, (figures.waiting, process.waits)
        assert figures.released <= figures.acquired
        assert figures.acquired >= len(ours)
        assert figures.lost <= figures.acquired
        assert repr(process.manager).startswith("<LockManager")


def check_error(error: BaseException, names: tuple[str, ...]) -> None:
    """Check that an error is one of the documented ones, and says of which lock."""
    assert not isinstance(error, ConfigurationError), error
    assert isinstance(error, LockError), repr(error)
    assert type(error) in KINDS, repr(error)
    assert isinstance(error, LockNotAcquiredError) == (type(error) in KINDS[:2])
    if not isinstance(error, ManagerClosedError):  # which concerns no lock alone
        assert error.names == names, (error, names)
        assert any(ascii(name) in str(error) for name in names), error
    if isinstance(error, LockTakenError) and error.retry_after is not None:
        assert error.retry_after >= 0, error.retry_after


def _raised(call: Any) -> BaseException | None:
    try:
        call()
    except LockError as error:
        return error
    return None
