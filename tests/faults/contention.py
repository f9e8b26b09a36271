"""Several processes that contend for locks, and what becomes of it (``contender.py`` is one of them)."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from aioredlock_ng._core.quarantine import parse
from tests.behaviour.tools import PATIENCE, Worker, python
from tests.faults.claims import Claim, check_claims
from tests.servers import ask, eventually

CONTENDER: Final = Path(__file__).with_name("contender.py")

UNTIL_STOPPED: Final = 10**9  # a quota that is not used up


class Contention:
    """Processes that contend."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self.claims: dict[str, list[Claim]] = {}
        self.counts: Counter[str] = Counter()  # what their managers counted
        self.handovers = 0  # how often a lock went from one process to another

    @property
    def goes_on(self) -> bool:
        """Whether all of them are still at it."""
        return all(worker.process.returncode is None for worker in self._workers)

    def stop(self) -> None:
        """Tell them to end."""
        for worker in self._workers:
            worker.process.terminate()

    async def ended(self, *, within: float) -> None:
        """Wait for their end, read what they recorded, and check it."""
        owners: dict[tuple[str, Claim], int] = {}
        for number, worker in enumerate(self._workers):
            out, errors = await worker.ended(within=within)
            assert worker.process.returncode == 0, errors
            record = json.loads(out)
            self.counts.update(record["counts"])
            for name, values in record["claims"].items():
                claims = [Claim(*value) for value in values]
                self.claims.setdefault(name, []).extend(claims)
                owners.update(dict.fromkeys(((name, claim) for claim in claims), number))
        for name, claims in self.claims.items():
            check_claims(claims)
            order = [owners[name, claim] for claim in sorted(claims)]
            self.handovers += sum(one != two for one, two in itertools.pairwise(order))

    @property
    def number(self) -> int:
        """How many claims there were."""
        return sum(map(len, self.claims.values()))


@contextlib.asynccontextmanager
async def contention(
    urls: Sequence[str],
    *,
    apart: Sequence[float],
    names: Sequence[str],
    quota: int = UNTIL_STOPPED,
    inside: float = 0.0,
    retry: float = 0.5,
    idle: float = 0.0,
    **options: Any,
) -> AsyncIterator[Contention]:
    """Have a process contend for each number of seconds in `apart`, by which its clocks are ahead.

    The other arguments are those of `contender.Orders`; `quota` is that of each process.
    """
    orders = {"urls": list(urls), "names": list(names), "quota": quota}
    orders |= {"inside": inside, "retry": retry, "idle": idle}
    async with contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                python(
                    str(CONTENDER),
                    json.dumps(orders | {"apart": seconds, "options": options}),
                    development=False,
                )
            )
            for seconds in apart
        ]
        for worker in workers:
            await worker.said("ready")
        for worker in workers:
            worker.go()
        yield Contention(workers)


def may_vote(url: str) -> bool:
    """Return whether a server's sentinel lets it vote, by its own clock."""
    value = ask(url, "GET", "redlock:{meta}")
    sentinel = None if value is None else parse(value)
    seconds, microseconds = ask(url, "TIME")
    return sentinel is not None and sentinel.ready_ms <= (seconds * 1_000_000 + microseconds) // 1000


async def votes_again(url: str) -> None:
    """Wait until a server that has lost its memory has been greeted, and has waited."""
    await eventually(lambda: may_vote(url), within=PATIENCE, what=f"{url} may vote")
