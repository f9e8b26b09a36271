"""The accounts of the examples, and the same without their guard; the frozen process imports this, too."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import fenced_postgres
import fenced_redis
import fenced_sqlite
import psycopg

from tests.servers import ask


class PlainSqlite(fenced_sqlite.Account):
    """Writes whatever comes."""

    async def write(self, balance: int, fence: int) -> bool:
        """Write."""
        with contextlib.closing(sqlite3.connect(self.path)) as db, db:
            return db.execute("UPDATE account SET balance = ?", (balance,)).rowcount == 1


GUARDED: dict[str, type[Any]] = {
    "sqlite": fenced_sqlite.Account,
    "postgres": fenced_postgres.Account,
    "redis": fenced_redis.Account,
}


@contextlib.contextmanager
def filled(resource: str, place: str) -> Iterator[None]:
    """Have an account with a balance of 100 at a path, a DSN or a URL."""
    if resource == "sqlite":
        with contextlib.closing(sqlite3.connect(place)) as db, db:
            db.execute(fenced_sqlite.TABLE)
            db.execute("INSERT INTO account VALUES (1, 100, 0)")
        yield
    elif resource == "postgres":
        with psycopg.connect(place, autocommit=True) as db:
            db.execute(fenced_postgres.TABLE)
            db.execute("INSERT INTO redlock_account VALUES (1, 100, 0)")
            yield
            db.execute("DROP TABLE redlock_account")
    else:
        ask(place, "HSET", "account:1", "value", 100, "fence", 0)
        yield
