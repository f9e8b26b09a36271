"""What is kept in the application and in requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from aiohttp import web

from ... import Lease, LockManager
from .._http import Taken

MANAGER: Final[web.AppKey[LockManager]] = web.AppKey("MANAGER", LockManager)
"""The lock manager: ``app[MANAGER]``, and in handlers, also of sub-apps, ``request.config_dict[MANAGER]``."""

if TYPE_CHECKING or hasattr(web, "RequestKey"):
    LEASE: Final[web.RequestKey[Lease]] = web.RequestKey("LEASE", Lease)
    """The lease of a `locked` handler, ``request[LEASE]``; under several locks the innermost."""
    TAKEN: Final = web.RequestKey("TAKEN", Taken)
    WEBSOCKET: Final = web.RequestKey("WEBSOCKET", web.WebSocketResponse)
else:  # before aiohttp 3.14, where a request takes any key
    LEASE = web.AppKey("LEASE", Lease)
    TAKEN = web.AppKey("TAKEN", Taken)
    WEBSOCKET = web.AppKey("WEBSOCKET", web.WebSocketResponse)

locked_handlers: WeakSet[Callable[..., object]] = WeakSet()
"""The handlers that `locked` made."""


def path_of(route: web.AbstractRoute) -> str:
    """Return how a route is written, for people."""
    return "*" if route.resource is None else route.resource.canonical
