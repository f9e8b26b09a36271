"""Several processes that contend for locks, and what becomes of it (``contender.py`` is one of them)."""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from aioredlock_ng._core.quarantine import parse
from tests.behaviour.tools import PATIENCE, Worker, python
from tests.faults.claims import Claim, check_claims
from tests.servers import ask, eventually

CONTENDER: Final = str(Path(__file__).with_name("contender.py"))

UNTIL_STOPPED: Final = 10**9  # a quota that is not used up


class Contention:
    """Processes that contend."""

    def __init__(self, workers: list[Worker], record: Path) -> None:
        self.workers = workers
        self._record = record
        self.claims: dict[str, list[Claim]] = {}
        self.counts: Counter[str] = Counter()  # what their managers counted
        self.handovers = 0  # how often a lock went from one process to another

    @property
    def goes_on(self) -> bool:
        """Whether all of them are still at it."""
        return all(worker.process.returncode is None for worker in self.workers)

    @property
    def turns(self) -> list[tuple[int, str, Claim]]:
        """Every claim so far, with its process and name, in the order of their ends."""
        lines = map(json.loads, self._record.read_bytes().splitlines())
        return [(number, name, Claim(*claim)) for number, name, claim in lines]

    async def more(self, count: int) -> list[tuple[int, str, Claim]]:
        """Wait for `count` more claims, and return them."""
        before = len(self.turns)
        await eventually(lambda: len(self.turns) >= before + count, within=PATIENCE, what=f"{count} claims")
        return self.turns[before : before + count]

    def stop(self) -> None:
        """Tell them to end."""
        for worker in self.workers:
            worker.process.terminate()

    async def ended(self, *, within: float = PATIENCE) -> None:
        """Wait for their end, read what they recorded, and check it."""
        for worker in self.workers:
            out, errors = await worker.ended(within=within)
            assert worker.process.returncode == 0, errors
            self.counts.update(json.loads(out.splitlines()[-1]))
        turns = sorted(self.turns, key=lambda turn: turn[2])
        for name in sorted({name for _, name, _ in turns}):
            self.claims[name] = [claim for _, of, claim in turns if of == name]
            check_claims(self.claims[name])
            holders = [number for number, of, _ in turns if of == name]
            self.handovers += sum(one != two for one, two in itertools.pairwise(holders))

    @property
    def number(self) -> int:
        """The number of claims."""
        return sum(map(len, self.claims.values()))


@contextlib.asynccontextmanager
async def contention(
    urls: Sequence[str],
    *,
    names: Sequence[str],
    apart: Sequence[float] = (),
    kinds: Sequence[str] = (),
    path: Path | None = None,
    quota: int = UNTIL_STOPPED,
    stays: bool = False,
    inside: float = 0.0,
    retry: float = 0.5,
    idle: float = 0.0,
    **options: Any,
) -> AsyncIterator[Contention]:
    """Have a process contend for each kind of lock in `kinds`, or number of seconds in `apart`.

    Its clocks are ahead by this.  The other arguments are those of `contender.Orders`; `quota` is that of
    each process.
    """
    with tempfile.NamedTemporaryFile() as record:
        orders = {"urls": list(urls), "record": record.name, "names": list(names), "quota": quota}
        orders |= {"path": str(path or ""), "stays": stays, "inside": inside, "retry": retry, "idle": idle}
        each = zip(apart or [0.0] * len(kinds), kinds or ["lock"] * len(apart), strict=True)
        async with contextlib.AsyncExitStack() as stack:
            workers = []
            for number, (seconds, kind) in enumerate(each):
                own = orders | {"number": number, "apart": seconds, "kind": kind, "options": options}
                process = python(CONTENDER, json.dumps(own), development=False)
                workers.append(await stack.enter_async_context(process))
            for worker in workers:
                await worker.said("ready")
            for worker in workers:
                worker.go()
            yield Contention(workers, Path(record.name))


def may_vote(url: str) -> bool:
    """Return whether a server's incarnation record lets it vote, by its own clock."""
    value = ask(url, "GET", "redlock:{meta}")
    incarnation = None if value is None else parse(value)
    seconds, microseconds = ask(url, "TIME")
    return incarnation is not None and incarnation.ready_ms <= (seconds * 1_000_000 + microseconds) // 1000


async def votes_again(url: str) -> None:
    """Wait until a server that has lost its memory has been greeted, and has waited."""
    await eventually(lambda: may_vote(url), within=PATIENCE, what=f"{url} may vote")
