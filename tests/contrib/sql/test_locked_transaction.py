"""Transactions under a lock, over a real PostgreSQL, by psycopg and by SQLAlchemy."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from aioredlock_ng import LockLostError, LockManager
from aioredlock_ng.contrib.sql import CREATE_TABLE, locked_transaction
from aioredlock_ng.testing import MemoryNode


@pytest.fixture
def admin(postgres_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Give a connection of its own, and a table with one row, and that of fences."""
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute(CREATE_TABLE)
        admin.execute("CREATE TABLE rows AS SELECT 1 AS id, 0 AS n")
        yield admin
        admin.execute("DROP TABLE rows, redlock_fences")


class Base(DeclarativeBase):
    """Of the mapped classes."""


class Row(Base):
    """The row, as an object."""

    __tablename__ = "rows"
    id: Mapped[int] = mapped_column(primary_key=True)
    n: Mapped[int]


@contextlib.asynccontextmanager
async def by_psycopg(dsn: str) -> AsyncIterator[Any]:
    """Connect."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield connection


@contextlib.asynccontextmanager
async def by_sqlalchemy(dsn: str) -> AsyncIterator[Any]:
    """Open a session."""
    place = dict(part.split("=") for part in dsn.split())
    engine = create_async_engine(
        f"postgresql+psycopg://{place['user']}@/{place['dbname']}?host={place['host']}", poolclass=NullPool
    )
    async with AsyncSession(engine) as session:
        yield session


async def run(session: Any, statement: str) -> Any:
    """Execute SQL."""
    return await session.execute(text(statement) if isinstance(session, AsyncSession) else statement)


async def add(session: Any) -> None:
    """Read in order to write."""
    row = (await run(session, "SELECT n FROM rows")).fetchone()
    (n,) = await row if asyncio.iscoroutine(row) else row
    await asyncio.sleep(0.002)
    await run(session, f"UPDATE rows SET n = {n + 1}")  # noqa: S608 (a number)


BOTH = pytest.mark.parametrize("opened", [by_psycopg, by_sqlalchemy])


@BOTH
async def test_no_update_is_lost(opened: Any, postgres_dsn: str, admin: psycopg.Connection[Any]) -> None:
    """Each holder reads what those before it have committed."""
    async with LockManager([MemoryNode() for _ in range(3)]) as manager:

        async def work() -> None:
            async with opened(postgres_dsn) as session:
                async with locked_transaction(manager.lock("b", "a"), session) as lease:
                    await add(session)
                assert not lease.held

        await asyncio.gather(*(work() for _ in range(5)))
    assert admin.execute("SELECT n FROM rows").fetchone() == (5,)
    assert admin.execute("SELECT name FROM redlock_fences ORDER BY 1").fetchall() == [("a",), ("b",)]


@BOTH
@pytest.mark.parametrize("how", ["a later holder was here", "lost before the commit", "an error"])
async def test_nothing_is_written(
    how: str, opened: Any, postgres_dsn: str, admin: psycopg.Connection[Any]
) -> None:
    """By a holder that comes too late, or whose lock was lost, or that fails; and the lock is free again."""
    if how.startswith("a later"):
        admin.execute("INSERT INTO redlock_fences VALUES ('a', 2^53)")
    async with LockManager([MemoryNode() for _ in range(3)]) as manager, opened(postgres_dsn) as session:

        async def work() -> None:
            async with locked_transaction(manager.lock("a", on_lost="raise"), session) as lease:
                assert not how.startswith("a later")
                await add(session)
                if how == "an error":
                    raise ArithmeticError
                await lease.release()

        with pytest.raises(ArithmeticError if how == "an error" else LockLostError):
            await work()
        async with manager.lock("a", blocking=False):
            pass
    assert admin.execute("SELECT n FROM rows").fetchone() == (0,)


@BOTH
async def test_a_transaction_that_has_begun_is_refused(
    opened: Any, postgres_dsn: str, admin: psycopg.Connection[Any]
) -> None:
    """It may have read rows from before the lock, and would commit after it."""
    async with LockManager([MemoryNode() for _ in range(3)]) as manager, opened(postgres_dsn) as session:
        await run(session, "SELECT 1")
        with pytest.raises((RuntimeError, InvalidRequestError), match=r"transaction"):
            async with locked_transaction(manager.lock("a"), session):
                raise AssertionError("not reached")
        async with manager.lock("a", blocking=False):
            pass


async def test_a_pipeline_is_refused(postgres_dsn: str, admin: psycopg.Connection[Any]) -> None:
    """It would commit after the release, and not know how the claim ended."""
    async with LockManager([MemoryNode() for _ in range(3)]) as manager, by_psycopg(postgres_dsn) as session:
        async with session.pipeline():
            with pytest.raises(RuntimeError, match=r"transaction or pipeline"):
                async with locked_transaction(manager.lock("a"), session):
                    raise AssertionError("not reached")
        async with locked_transaction(manager.lock("a"), session), session.pipeline():
            await add(session)
    assert admin.execute("SELECT n FROM rows").fetchone() == (1,)


async def test_objects_of_earlier_transactions_are_read_again(
    postgres_dsn: str, admin: psycopg.Connection[Any]
) -> None:
    """A session with `expire_on_commit=False` would write what it read before the lock."""
    nodes = [MemoryNode() for _ in range(3)]
    async with LockManager(nodes) as manager, by_sqlalchemy(postgres_dsn) as session:
        session.sync_session.expire_on_commit = False
        kept = await session.get(Row, 1)  # which also keeps it in the session
        await session.commit()
        admin.execute("UPDATE rows SET n = 10")
        async with locked_transaction(manager.lock("a"), session):
            assert await session.get(Row, 1) is kept
            kept.n += 1
    assert admin.execute("SELECT n FROM rows").fetchone() == (11,)


@pytest.mark.parametrize(
    "wrong",
    [async_sessionmaker(), Session(), create_async_engine("postgresql+psycopg://"), None],
    ids=lambda wrong: type(wrong).__name__,
)
async def test_what_is_no_session_is_refused(wrong: object) -> None:
    """Before the lock is acquired, and with the name of its type."""
    async with LockManager([MemoryNode() for _ in range(3)]) as manager:
        with pytest.raises(TypeError, match=rf"AsyncSession .*, got .*\.{type(wrong).__qualname__}"):
            async with locked_transaction(manager.lock("a"), wrong):
                raise AssertionError("not reached")
        assert manager.statistics().acquired == 0
