"""Where the lock manager of an application is found."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from ... import LockManager


async def get_lock_manager(connection: HTTPConnection) -> LockManager:
    """Return the lock manager of the application.  Tests override it: ``app.dependency_overrides``.

    Raises:
        RuntimeError: there is none; says how to provide it.
    """
    for state in (connection.state, connection.app.state):
        manager = getattr(state, "lock_manager", None)
        if isinstance(manager, LockManager):
            return manager
        if manager is not None:
            raise RuntimeError(f"the application's lock_manager must be a LockManager, got {manager!r}")
    raise RuntimeError(
        'this application has no lock manager: write `yield {"lock_manager": manager}` in its lifespan '
        "(and make sure that the lifespan runs), or set `app.state.lock_manager` of the app or sub-app itself"
    )


ManagerDep = Annotated[LockManager, Depends(get_lock_manager)]
"""For endpoints that make locks of their own: ``async def endpoint(manager: ManagerDep)``."""
