"""Elections between processes: a leader that is frozen, and the reports of its observers.

The time that a change of leaders takes is measured exactly on virtual time (`unit/test_election.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE, python
from tests.environments.interpreters import ROOT
from tests.faults.accounts import filled

CANDIDATE: Final = str(Path(__file__).with_name("candidate.py"))
TTL: Final = 2.0  # seconds


class Member:
    """One process, a candidate or an observer, and what it tells."""

    def __init__(self, label: str, process: asyncio.subprocess.Process) -> None:
        self.label, self.process = label, process
        self.events: list[dict[str, Any]] = []

    def of(self, term: int) -> dict[str, dict[str, Any]]:
        """Return its reports of a term of its own, in order."""
        return {event["what"]: event for event in self.events if event.get("term") == term}

    def all(self, what: str) -> list[dict[str, Any]]:
        """Return its reports of one sort."""
        return [event for event in self.events if event["what"] == what]


class Crew:
    """All processes of an election, and their reports."""

    def __init__(self, stack: contextlib.AsyncExitStack, arguments: tuple[str, ...]) -> None:
        self._stack, self._arguments = stack, arguments
        self.members: list[Member] = []
        self._told = asyncio.Condition()
        self.readers: list[asyncio.Task[None]] = []

    async def join(self, label: str) -> None:
        """Start a process."""
        started = python(CANDIDATE, label, *self._arguments, development=False)
        member = Member(label, (await self._stack.enter_async_context(started)).process)
        self.members.append(member)
        self.readers.append(asyncio.create_task(self._read(member)))
        await self.until(lambda: member.events, f"{label} is there")

    async def _read(self, member: Member) -> None:
        assert member.process.stdout is not None
        async for line in member.process.stdout:
            async with self._told:
                member.events.append(json.loads(line))
                self._told.notify_all()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition on the reports."""
        try:
            async with asyncio.timeout(PATIENCE), self._told:
                await self._told.wait_for(lambda: bool(condition()))
        except TimeoutError:
            pytest.fail(f"{what}: {[(member.label, member.events) for member in self.members]}")

    def won(self) -> dict[int, Member]:
        """Return the leader of each term so far; none was won twice."""
        won = [(event["term"], member) for member in self.members for event in member.all("leads")]
        assert len(won) == len(dict(won)), won
        return dict(won)

    async def leader(self, after: int = 0) -> tuple[int, Member]:
        """Wait for a leader of a later term of which every observer has heard, and return the last."""
        await self.until(lambda: max(self.won(), default=0) > after, f"there is a leader after {after}")
        term = max(self.won())

        def facts() -> bool:
            return all(any((each or 0) >= term for each, _ in heard) for heard in self.heard())

        await self.until(facts, f"observers hear of {term}")
        return term, self.won()[term]

    def heard(self) -> list[list[tuple[int | None, str | None]]]:
        """Return the leaders that each observer has heard of."""
        observers = [member for member in self.members if member.label == "observer"]
        return [[(event["term"], event["label"]) for event in each.all("hears")] for each in observers]

    def check(self) -> None:
        """Judge the whole history: what observers heard was won, by that label, and terms only grew."""
        won = {term: member.label for term, member in self.won().items()}
        for heard in self.heard():
            known = [(term, label) for term, label in heard if term is not None]
            assert all(one < two for (one, _), (two, _) in itertools.pairwise(known)), heard
            assert all(won[term] == label for term, label in known), (heard, won)


@pytest.fixture
async def crew(nodes5: LocalNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crew]:
    """Give three candidates and two observers in processes of their own, over five servers."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "examples"))
    path = str(tmp_path / "bank.sqlite")
    with filled("sqlite", path):
        async with contextlib.AsyncExitStack() as stack:
            crew = Crew(stack, (str(TTL), path, ",".join(nodes5.urls)))
            for label in ("observer", "observer", "a", "b", "c"):
                await crew.join(label)
            yield crew
            for member in crew.members:
                with contextlib.suppress(ProcessLookupError):
                    member.process.kill()
            await asyncio.gather(*crew.readers)
    crew.check()


async def test_a_leader_that_was_frozen_is_stopped_by_its_term(crew: Crew) -> None:
    """When it goes on it is cancelled before it does anything else, and its write is refused."""
    term, old = await crew.leader()
    old.process.send_signal(signal.SIGSTOP)
    later, new = await crew.leader(after=term)
    assert new is not old
    await crew.until(lambda: "writes" in new.of(later), "the new leader writes")
    old.process.send_signal(signal.SIGCONT)
    await crew.until(lambda: "writes late" in old.of(term), "the old leader writes")
    facts = old.of(term)
    assert list(facts) == ["leads", "writes", "is cancelled", "writes late"]
    assert facts["writes"]["accepted"]
    assert not facts["is cancelled"]["held"]
    assert not facts["writes late"]["accepted"]
    assert new.of(later)["writes"]["accepted"]
