"""aiohttp: a lock manager that lives with the application, and handlers that run under a lock.

    app = web.Application()
    setup(app, ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])

    @routes.post("/orders/{order_id}/pay")
    @locked("order:{order_id}", ttl=15, blocking_timeout=2)
    async def pay(request: web.Request) -> web.Response:
        request[LEASE].check()

One middleware, which `setup` installs, turns the lock errors of every handler into answers, whether
they come from `locked` or from an ``async with`` of the handler's own: 409 while another request holds
the lock, 503 without a quorum and when the lock was lost, each with ``Retry-After``; and 503 to a
`ConfigurationError`, such as that of nodes that cannot be one quorum.  The body has the reason as ``detail``.
It raises them as aiohttp's own `HTTPException`, so middlewares that roll back on an exception do.  Once the
response has begun, no status can be sent any more: a WebSocket is closed with 1013 ("try again later"), any
other connection is reset, so that no client takes what it got for the whole body; the error goes on.

The modules::

_application.py   the manager that lives with the application, and lock errors as HTTP answers
_locked.py        handlers that run under a lock
_page.py          the page of nodes and locks
"""

from ._application import LEASE, MANAGER, setup
from ._locked import locked
from ._page import add_locks_page

__all__ = ["LEASE", "MANAGER", "add_locks_page", "locked", "setup"]
