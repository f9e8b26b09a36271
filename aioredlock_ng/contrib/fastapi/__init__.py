"""FastAPI: endpoints that run under a lock, and lock errors as HTTP answers.

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, LockManager]]:
        async with LockManager.from_env() as manager:
            yield {"lock_manager": manager}

    app = FastAPI(lifespan=lifespan)
    add_exception_handlers(app)

    OrderLock = Annotated[Lease, locked("order:{order_id}", ttl=15, blocking_timeout=2)]

    @app.post("/orders/{order_id}/pay", responses=LOCK_RESPONSES)
    async def pay(order_id: int, lease: OrderLock) -> None:
        lease.check()

Needs FastAPI 0.121.1 or newer: 0.121.0 brought ``Depends(scope=…)``, but holds locks that are given as
``dependencies=[…]`` until the response is sent.

The modules::

_locked.py    the dependency that holds a lock
_requests.py  what is read from a request: the lock manager, and lock names from its parameters
_answers.py   lock errors as HTTP answers and WebSocket closes
_page.py      the page of nodes and locks
"""

from ._answers import LOCK_RESPONSES, add_exception_handlers
from ._locked import locked
from ._page import locks_router
from ._requests import ManagerDep, get_lock_manager

__all__ = [
    "LOCK_RESPONSES",
    "ManagerDep",
    "add_exception_handlers",
    "get_lock_manager",
    "locked",
    "locks_router",
]
