"""Elections between processes: a leader that is frozen, killed, or resigns; and what others hear of it.

How long a change of leaders takes is part of the contract.  It is told exactly on virtual time
(`unit/test_election.py`); here the best of some changes counts, since a busy machine may delay any of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import fenced_sqlite
import pytest

from aioredlock_ng.testing import LocalNodes
from tests.environments.interpreters import ROOT

CANDIDATE: Final = Path(__file__).with_name("candidate.py")

TTL: Final = 2.0  # seconds

PATIENCE: Final = 60.0  # seconds until something that must happen counts as not happening

CHANGES: Final = 5  # changes of leaders of which one has to be in time

Event = dict[str, Any]


@dataclass(eq=False)
class Member:
    """One process: a candidate or an observer."""

    label: str
    process: asyncio.subprocess.Process
    events: list[Event] = field(default_factory=list)

    def kill(self, what: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process.pid, what)

    def order(self) -> None:
        """Have it give up its leadership."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"resign\n")

    def of(self, term: int) -> dict[str, Event]:
        """Return what it has told of a term of its own, in order."""
        return {event["what"]: event for event in self.events if event.get("term") == term}


class Crew:
    """All processes of an election, and what they have told."""

    def __init__(self, urls: list[str], path: str) -> None:
        self._urls, self._path = urls, path
        self.members: list[Member] = []
        self._readers: list[asyncio.Task[None]] = []
        self._told = asyncio.Condition()

    async def join(self, label: str) -> Member:
        """Start a process."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(CANDIDATE), label, str(TTL), self._path, ",".join(self._urls)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'examples'}"},
        )
        member = Member(label, process)
        self.members.append(member)
        self._readers.append(asyncio.create_task(self._read(member)))
        await self.until(lambda: member.events, f"{label} is there")
        return member

    async def _read(self, member: Member) -> None:
        assert member.process.stdout is not None
        async for line in member.process.stdout:
            async with self._told:
                member.events.append(json.loads(line))
                self._told.notify_all()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition on what has been told."""
        try:
            async with asyncio.timeout(PATIENCE), self._told:
                await self._told.wait_for(lambda: bool(condition()))
        except TimeoutError:
            pytest.fail(f"{what}: {[(member.label, member.events) for member in self.members]}")

    def won(self) -> dict[int, Member]:
        """Return the leader of each term so far."""
        events = [(event, member) for member in self.members for event in member.events]
        return {event["term"]: member for event, member in events if event["what"] == "leads"}

    async def leader(self, after: int = 0) -> tuple[int, Member]:
        """Wait for a leader of a later term, and return the last."""
        await self.until(lambda: max(self.won(), default=0) > after, f"there is a leader after {after}")
        term = max(self.won())
        return term, self.won()[term]

    def heard(self) -> list[list[tuple[int | None, str | None]]]:
        """Return what each observer has been told of."""
        return [
            [(event["term"], event["label"]) for event in member.events if event["what"] == "hears"]
            for member in self.members
            if member.label == "observer"
        ]

    async def all_have_heard_of(self, term: int) -> None:
        """Wait until every observer has been told of a leader, or of a later one."""

        def told() -> bool:
            return all(any((each or 0) >= term for each, _ in heard) for heard in self.heard())

        await self.until(told, f"observers hear of {term}")

    def check(self) -> None:
        """Judge the whole history: what observers heard was won, by that label, and terms only grew."""
        won = {term: member.label for term, member in self.won().items()}
        claims = [
            event["term"] for member in self.members for event in member.events if event["what"] == "leads"
        ]
        assert len(claims) == len(set(claims)), "a term was won twice"
        for heard in self.heard():
            terms = [term for term, _ in heard if term is not None]
            assert terms == sorted(set(terms)), heard
            assert all(won[term] == label for term, label in heard if term is not None), (heard, won)

    async def end(self) -> None:
        """Kill them all, frozen ones, too."""
        for member in self.members:
            if member.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    member.process.kill()
            await member.process.wait()
        await asyncio.gather(*self._readers)


@pytest.fixture
async def crew(nodes5: LocalNodes, tmp_path: Path) -> AsyncIterator[Crew]:
    """Give three candidates and two observers in processes of their own, over five servers."""
    path = str(tmp_path / "bank.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(fenced_sqlite.TABLE)
        db.execute("INSERT INTO account VALUES (1, 100, 0)")
    crew = Crew(nodes5.urls, path)
    try:
        for label in ("observer", "observer", "a", "b", "c"):
            await crew.join(label)
        yield crew
    finally:
        await crew.end()
    crew.check()


async def test_a_leader_that_was_frozen_is_stopped_by_its_term(crew: Crew) -> None:
    """When it goes on it is cancelled before it does anything else, and its write is refused."""
    term, old = await crew.leader()
    await crew.all_have_heard_of(term)
    old.kill(signal.SIGSTOP)
    later, new = await crew.leader(after=term)
    assert new is not old
    await crew.until(lambda: "writes" in new.of(later), "the new leader writes")
    await crew.all_have_heard_of(later)
    old.kill(signal.SIGCONT)
    await crew.until(lambda: "writes late" in old.of(term), "the old leader writes")
    told = old.of(term)
    assert list(told) == ["leads", "writes", "is cancelled", "writes late"]
    assert told["writes"]["accepted"]
    assert not told["is cancelled"]["held"]
    assert not told["writes late"]["accepted"]
    assert new.of(later)["writes"]["accepted"]


async def test_another_one_leads_soon_after_a_leader_was_killed(crew: Crew) -> None:
    """Within the ttl and a second, and observers are told of it; killed with -9, it says no goodbye."""
    took: list[float] = []
    while not took or min(took) > TTL + 1.0:
        assert len(took) < CHANGES, took
        term, leader = await crew.leader()
        await crew.all_have_heard_of(term)
        killed_at = time.clock_gettime(time.CLOCK_MONOTONIC)
        leader.kill(signal.SIGKILL)
        later, new = await crew.leader(after=term)
        took.append(new.of(later)["leads"]["at"] - killed_at)
        await crew.all_have_heard_of(later)
        await crew.join("another")


async def test_another_one_leads_at_once_after_a_leader_has_resigned(crew: Crew) -> None:
    """Within a fifth of a second, and observers are told of it; the one that resigned may win again, too."""
    took: list[float] = []
    for _ in range(4 * CHANGES):
        term, leader = await crew.leader()
        await crew.all_have_heard_of(term)
        leader.order()
        later, new = await crew.leader(after=term)
        await crew.all_have_heard_of(later)
        resigns = leader.of(term).get("resigns")
        if new is not leader and resigns is not None:  # else it was lost before, on a busy machine
            took.append(new.of(later)["leads"]["at"] - resigns["at"])
            if took[-1] <= 0.2:
                return
    pytest.fail(f"never in time: {took}")
