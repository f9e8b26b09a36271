"""An account in PostgreSQL that takes no write from a holder whose lock has gone to another one.

A process is frozen past its ttl between its reading and its writing.  Ends with 0 only if that is refused.
Needs `psycopg[binary]`, and makes and drops a table `redlock_account` where `REDLOCK_POSTGRES_DSN` leads.
Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over three local ones of its own:

    REDLOCK_POSTGRES_DSN=postgresql:///test python examples/fenced_postgres.py
"""

import asyncio
import os
import sys
from dataclasses import dataclass

from _frozen_holder import show
from psycopg import AsyncConnection

TABLE = "CREATE TABLE redlock_account (id int PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL)"

# To read in order to write, put the fence down first: from here on no earlier holder changes what is read.
READ = """
    UPDATE redlock_account SET fence = %(fence)s
    WHERE id = %(id)s AND fence <= %(fence)s RETURNING balance
"""

# No row: a holder with a greater fence was here, so the lock was lost, whatever its holder believes.
# Of several changes this comes first, in the same transaction: until its end no other changes the row.
WRITE = """
    UPDATE redlock_account SET balance = %(balance)s, fence = %(fence)s
    WHERE id = %(id)s AND fence <= %(fence)s
"""


@dataclass
class Account:
    """One account; `_frozen_holder.py` deposits to it."""

    dsn: str
    id: int = 1

    async def read(self, fence: int) -> int | None:
        """Return the balance, and refuse older fences from here on; None if this one is older."""
        async with await AsyncConnection.connect(self.dsn) as db:
            done = await db.execute(READ, {"id": self.id, "fence": fence})
            row = await done.fetchone()
            return None if row is None else row[0]

    async def write(self, balance: int, fence: int) -> bool:
        """Return whether it was written."""
        async with await AsyncConnection.connect(self.dsn) as db:
            done = await db.execute(WRITE, {"id": self.id, "balance": balance, "fence": fence})
            return done.rowcount == 1


async def main() -> None:
    if not (dsn := os.environ.get("REDLOCK_POSTGRES_DSN")):
        sys.exit("REDLOCK_POSTGRES_DSN must name a database, such as postgresql:///test")
    async with await AsyncConnection.connect(dsn, autocommit=True) as db:
        await db.execute(TABLE)
        try:
            await db.execute("INSERT INTO redlock_account VALUES (1, 100, 0)")
            await show(Account(dsn))
        finally:
            await db.execute("DROP TABLE redlock_account")


if __name__ == "__main__":
    asyncio.run(main())
