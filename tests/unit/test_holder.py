"""`LockTakenError.holder`: what the holder of a taken lock calls itself."""

from __future__ import annotations

import itertools

import pytest

from aioredlock_ng import LockTakenError
from tests.unit.tasks import in_task
from tests.unit.worlds import opened, world


@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("fencing", [True, False])
async def test_an_error_names_the_holder(fencing, names):
    """The label of the manager that holds the lock, in the error and its message, never its owner value; for
    a task of its own process, too.
    """
    options = {"fencing": fencing}
    async with world(holder="billing-7", **options) as w, opened(w.nodes, seed=2, **options) as other:
        lease = await w.manager.lock(*names).acquire()
        for manager, timeout in itertools.product((other, w.manager), (0, 1)):
            error = (await in_task(manager.lock("a", blocking_timeout=timeout).acquire)).error
            assert isinstance(error, LockTakenError)
            assert error.holder == "billing-7"
            assert manager is w.manager or "is held by billing-7" in str(error)
            owner = lease._holding.owner.decode()
            assert owner.partition(":")[0] not in f"{error!r}{error.__dict__}"
        await lease.release()
