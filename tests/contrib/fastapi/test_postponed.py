"""Annotations that are evaluated late, and again for every override."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from aioredlock_ng import Lease, LockManager
from aioredlock_ng.contrib.fastapi import get_lock_manager, locked
from tests.contrib.fastapi.tools import new_app, site
from tests.unit.tasks import virtual


async def order_lock(lease: Annotated[Lease, locked("order:{order_id}")]) -> Lease:
    """Hold a lock for an endpoint."""
    return lease


async def pay(order_id: int, lease: Annotated[Lease, Depends(order_lock)]) -> str:
    """Pay under a lock."""
    return lease.name


@virtual
async def test_postponed_annotations_with_an_override() -> None:
    """An application's tests override the manager; FastAPI then evaluates string annotations again."""
    app = new_app()
    app.post("/{order_id}")(pay)

    async with site(app) as here:
        manager: LockManager = app.state.lock_manager
        del app.state.lock_manager

        async def overriding() -> LockManager:
            return manager

        app.dependency_overrides[get_lock_manager] = overriding
        assert (await here.post("/042")).json() == "order:42"
