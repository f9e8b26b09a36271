"""A transaction of PostgreSQL or SQLite under a lock; a holder whose lock has gone to another one is refused.

    async with locked_transaction(manager.lock("account:1"), session) as lease:
        ...                                     # reads and writes of `session`, and no commit of your own

The order is fixed: the lock, the transaction, the claim of the fence, your statements, the commit, the
release.  A claim is a row per name in the table that `CREATE_TABLE` makes.  Until the commit no other holder
gets past it, and after it no earlier one, such as a process that stood still while its lock went on.

`session` is an `AsyncSession` or `AsyncConnection` of SQLAlchemy, or an `AsyncConnection` of psycopg.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import iscoroutinefunction
from typing import Any, Final

from .. import Lease, Lock, LockLostError, LossReason

__all__ = ["CREATE_TABLE", "locked_transaction"]

CREATE_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS redlock_fences (name text PRIMARY KEY, fence bigint NOT NULL)"
)
"""For your migrations.  A row of a name that is not used any more may be deleted."""

_CLAIM: Final = (
    "INSERT INTO redlock_fences AS seen (name, fence) VALUES ({}, {}) ON CONFLICT (name) "
    "DO UPDATE SET fence = excluded.fence WHERE seen.fence <= excluded.fence"
)


@asynccontextmanager
async def locked_transaction(lock: Lock, session: Any) -> AsyncIterator[Lease]:
    """Hold a lock around a transaction that begins with the claim of the lock's fence.

    Args:
        lock: of `LockManager.lock`, or the write side of a read-write lock.
        session: where the transaction is, which must not have one yet: what it has read may be old.  So the
            objects that an `AsyncSession` has loaded before expire: load them inside, for example by ``get``.
            One of SQLAlchemy's isolation level ``AUTOCOMMIT`` never has a transaction: it cannot be used.

    Raises:
        TypeError: `session` is something else, such as what makes sessions, or one that is not async.
        LockLostError: a later holder was here, or the lock is lost before the commit: nothing is written.
        RuntimeError: psycopg: the connection has a transaction, or is in pipeline mode.
        sqlalchemy.exc.InvalidRequestError: SQLAlchemy: the session has one.
    """
    if not (iscoroutinefunction(getattr(session, "execute", None)) and hasattr(session, "info")):
        raise TypeError(
            "session must be an AsyncSession or AsyncConnection of SQLAlchemy, or an AsyncConnection of "
            f"psycopg, got {type(session).__module__}.{type(session).__qualname__}"
        )
    async with lock as lease, _transaction(session):
        if hasattr(session, "expire_all"):  # with `expire_on_commit=False` it keeps what it read earlier
            session.expire_all()
        for name in lease.names:
            if not await _claimed(session, name, lease.fence):
                raise LockLostError(
                    f"lock {name!a}: the database has seen a later holder than fence {lease.fence}",
                    reason=LossReason.REFUSED,
                    names=lease.names,
                )
        yield lease
        lease.check()


def _transaction(session: Any) -> AbstractAsyncContextManager[object]:
    if hasattr(session, "begin"):  # SQLAlchemy, which refuses a second one itself
        return session.begin()  # type: ignore[no-any-return]
    # psycopg, which would make a savepoint, or queue the commit: that came after the release.
    if session.info.transaction_status or session.pgconn.pipeline_status:
        raise RuntimeError(
            f"end the transaction or pipeline of {session!r} before locked_transaction() begins a transaction"
        )
    return session.transaction()  # type: ignore[no-any-return]


async def _claimed(session: Any, name: str, fence: int) -> bool:
    if not hasattr(session, "begin"):
        return bool((await session.execute(_CLAIM.format("%s", "%s"), (name, fence))).rowcount > 0)
    from sqlalchemy import text

    claim = text(_CLAIM.format(":name", ":fence"))
    return bool((await session.execute(claim, {"name": name, "fence": fence})).rowcount > 0)
