"""An account in SQLite that takes no write from a holder whose lock has gone to another one.

A process is frozen past its ttl between its reading and its writing.  Ends with 0 only if that is refused.
Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over three local ones of its own:

    python examples/fenced_sqlite.py
"""

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass

from _frozen_holder import show

TABLE = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL)"

# To read in order to write, put the fence down first: from here on no earlier holder changes what is read.
READ = "UPDATE account SET fence = :fence WHERE id = :id AND fence <= :fence RETURNING balance"

# No row: a holder with a greater fence was here, so the lock was lost, whatever its holder believes.
WRITE = "UPDATE account SET balance = :balance, fence = :fence WHERE id = :id AND fence <= :fence"


@dataclass
class Account:
    """One account; `_frozen_holder.py` deposits to it."""

    path: str
    id: int = 1

    async def read(self, fence: int) -> int | None:
        """Return the balance, and refuse older fences from here on; None if this one is older."""
        with closing(sqlite3.connect(self.path)) as db, db:
            row = db.execute(READ, {"id": self.id, "fence": fence}).fetchone()
            return None if row is None else row[0]

    async def write(self, balance: int, fence: int) -> bool:
        """Return whether it was written."""
        with closing(sqlite3.connect(self.path)) as db, db:
            done = db.execute(WRITE, {"id": self.id, "balance": balance, "fence": fence})
            return done.rowcount == 1


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        account = Account(f"{folder}/bank.sqlite")
        with closing(sqlite3.connect(account.path)) as db, db:
            db.execute(TABLE)
            db.execute("INSERT INTO account VALUES (1, 100, 0)")
        await show(account)


if __name__ == "__main__":
    asyncio.run(main())
