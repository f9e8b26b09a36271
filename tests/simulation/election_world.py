"""One run of the search for what candidates and observers of an election may see (R31, R32).

The shipping manager over masters in memory, on virtual time; one seed decides everything.  Candidates
campaign, are cancelled at any moment, resign, die, or lead until they are lost; announcements get lost; nodes
freeze, lose their connections and, one after the other, their memory.  Observers come and go, and look in
passing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng import Leader, Leadership, LeaderUnknown, LockError, LockLostError, LockManager
from aioredlock_ng._core.command import Reply
from aioredlock_ng._core.quorum import majority
from aioredlock_ng._lock.election import Announcement
from aioredlock_ng.testing import SimLoop
from tests.simulation import searching
from tests.simulation.searching import ViolationError
from tests.simulation.wires import WiredNode

NAME: Final = "a"

TTL: Final = 1.0
QUARANTINE: Final = 1.5
LASTS: Final = 10.0
"""Seconds in which things happen."""
CALM: Final = 8.0
"""Seconds within which all know who leads at the end, when nothing happens any more."""
CANDIDATES: Final = 4


class Rule(StrEnum):
    """The rules of the judgement."""

    WON = "what an observer hears was won, by the one of that label"
    GROWING = "an observer hears of greater terms only"
    ALONE = "one leader at a time, with a term of its own; later ones have greater terms"
    NEWS = "a leader whose announcement Q nodes have acknowledged is heard of while it leads, or a later one"
    END = "in the end all know the leader, and that there is none when it has gone"


@dataclass(slots=True, eq=False)
class Term:
    """A leadership that was won."""

    leader: Leader
    asked: float
    since: float
    until: float = float("inf")
    """When its body had to stop, or it died."""
    nodes: set[int] = field(default_factory=set)
    """Where its announcement was acknowledged."""
    known_at: float = float("inf")
    """Since when that is a majority."""


@dataclass(slots=True)
class _Acknowledged:
    """Receives a node's answer to an announcement."""

    world: World
    announcement: Announcement
    awaited = True

    def on_reply(self, node: int, reply: Reply) -> None:
        """Note that the node knows the term, and when a majority does."""
        term = self.world.terms.get(self.announcement.leader.term)
        if term is not None and isinstance(reply, int):
            term.nodes.add(node)
            if len(term.nodes) == majority(self.world.size):
                term.known_at = min(term.known_at, SimLoop.running().time())


class World(searching.World):
    """One run; `counts` says what happened in it."""

    def __init__(self, seed: int) -> None:
        super().__init__("election", seed)
        self.size = self.draw.choice((3, 5))
        self.lossy = self.draw.choice((0.0, 0.0, 0.3))
        """The share of the announcements that get lost on their way to a node."""
        self.terms: dict[int, Term] = {}
        self.heard: set[Leader] = set()
        """All leaders that any observer has heard of."""
        self._observers = 0
        self.reports: list[tuple[float, int, Leader]] = []
        """When each observer heard of which leader, by the observer's number."""

    def __str__(self) -> str:
        return f"{self.size} nodes, announcements lost: {self.lossy:.0%}; {dict(self.counts)}"

    def run(self) -> World:
        """As in `searching.World`."""
        with self._announcements():
            return super().run()

    @contextlib.contextmanager
    def _announcements(self) -> Iterator[None]:
        """Lose some of the announcements, and write down who has acknowledged the others."""
        world = self

        def repeat(announcement: Announcement) -> None:
            outbox, command = announcement._outbox, announcement._subject.announce(announcement.leader)
            outbox.drain()
            for index, node in enumerate(outbox.nodes):
                if world.draw.random() >= world.lossy:
                    node.submit(command, _Acknowledged(world, announcement), index)

        with patch.object(Announcement, "repeat", repeat):
            yield

    async def _main(self) -> None:
        self.nodes = self._memory(self.size, slowest=0.01)
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            terms = {"ttl": TTL, "restart_quarantine": QUARANTINE}
            managers = [
                await self._manager(stack, self.nodes, holder=label, **terms)
                for label in [*(f"c{i}" for i in range(CANDIDATES)), "o0", "o1"]
            ]
            candidates, others = managers[:CANDIDATES], managers[CANDIDATES:]
            for manager in candidates:
                tasks.create_task(self._campaign(manager))
            for manager in (*others, candidates[0]):
                tasks.create_task(self._observe(manager))
                tasks.create_task(self._look(manager))
            tasks.create_task(self._trouble())
            await asyncio.sleep(LASTS)
            self._over = True
            await asyncio.sleep(2 * TTL + QUARANTINE)
            self._judge_terms()
            await self._judge_end(candidates[0], others)

    # -- candidates ----------------------------------------------------------------------------

    async def _campaign(self, manager: LockManager) -> None:
        """Campaign again and again; a campaign that has not won by a moment that is drawn is cancelled."""
        task = asyncio.current_task()
        assert task is not None, "it is one"
        while not self._over and not task.cancelling():  # it is when a rule was broken
            campaign = asyncio.create_task(self._win(manager))
            asked = SimLoop.running().time()
            try:
                await asyncio.wait([campaign], timeout=self.draw.choice((0.003, 0.01, 0.03, 0.3, 3.0)))
            finally:
                campaign.cancel()  # it may win at this very moment
            with contextlib.suppress(asyncio.CancelledError):
                await self._lead(await campaign, asked)
            await asyncio.sleep(self.draw.choice((0.0, self.draw.uniform(0, 0.2))))

    async def _win(self, manager: LockManager) -> Leadership:
        return await manager.election(NAME).campaign()

    async def _lead(self, leadership: Leadership, asked: float) -> None:
        now = SimLoop.running().time
        leader = Leader(leadership.term, leadership.holder)
        term = Term(leader, asked, now())
        if leader.term in self.terms:
            raise ViolationError(Rule.ALONE, f"{leader} and {self.terms[leader.term].leader}")
        self.terms[leader.term] = term
        how = self.draw.choice(("resigns", "resigns", "resigns", "resigns", "dies", "stays"))
        self.counts[how] += 1
        longest = 5 * TTL if how == "stays" else TTL * self.draw.choice((0.0, 0.02, 0.1, 1.0))
        try:
            async with asyncio.timeout(longest * self.draw.random()):
                await leadership.lost.wait()
            self.counts["lost"] += 1
        except TimeoutError:
            pass
        except asyncio.CancelledError:  # a rule was broken elsewhere
            await leadership.resign()
            raise
        finally:
            term.until = now()
        if how == "dies":
            holding = leadership._lease._holding
            holding._session.watchdog.forget(holding)  # it is never extended again
            await asyncio.sleep(TTL)
        await leadership.resign()

    # -- observers -----------------------------------------------------------------------------

    async def _observe(self, manager: LockManager) -> None:
        """Observe for a while, again and again."""
        now = SimLoop.running().time
        while not self._over:
            began, heard = now(), list[Leader | None]()
            observer = self._observers = self._observers + 1
            until = asyncio.timeout(self.draw.choice((0.2, 2.0, LASTS)))
            with contextlib.suppress(TimeoutError):
                async with until, contextlib.aclosing(manager.election(NAME).observe()) as news:
                    async for leader in news:
                        if not heard:
                            self._judge_news(began, leader)
                        heard.append(leader)
                        self._judge_heard(heard)
                        if leader and not self._over:
                            self.reports.append((now(), observer, leader))
                        if self.draw.random() < 0.2:
                            await asyncio.sleep(self.draw.random())  # busy

    async def _look(self, manager: LockManager) -> None:
        """Look in passing, often."""
        while not self._over:
            began = SimLoop.running().time()
            with contextlib.suppress(LockError):
                leader = await manager.election(NAME).leader()
                self.counts["looked"] += 1
                self._judge_news(began, leader)
                self._judge_heard([leader])
            await asyncio.sleep(self.draw.choice((0.02, 0.1, 0.3)) * self.draw.random())

    # -- faults --------------------------------------------------------------------------------

    async def _trouble(self) -> None:
        """Trouble a node at a time: after a loss of memory none until its quarantine is over."""
        while not self._over:
            await asyncio.sleep(self.draw.uniform(0, 1.0))
            node = self.draw.choice(self.nodes)
            kind: Any = self.draw.choice(
                (WiredNode.disconnect, WiredNode.freeze, WiredNode.flush, WiredNode.restart)
            )
            await self._strike(node, kind, 2 * TTL)
            if kind in (WiredNode.flush, WiredNode.restart):
                await asyncio.sleep(2 * QUARANTINE)

    # -- the judgement -------------------------------------------------------------------------

    def _judge_heard(self, heard: list[Leader | LeaderUnknown | None]) -> None:
        leader = heard[-1]
        if not leader:
            return
        self.counts["heard"] += 1
        self.heard.add(leader)
        before = max((one.term for one in heard[:-1] if one), default=0)
        again = heard[-2:-1] == [LeaderUnknown.UNKNOWN]  # the same one, after nothing was known for a while
        if leader.term < before or (leader.term == before and not again):
            raise ViolationError(Rule.GROWING, f"{heard}")

    def _judge_news(self, began: float, leader: Leader | None) -> None:
        """A leader that was announced before the look, and still leads when it is over, is heard of."""
        for term in self.terms.values():
            if term.known_at < began and term.until == float("inf"):
                self.counts["news"] += 1
                if leader is None or leader.term < term.leader.term:
                    raise ViolationError(Rule.NEWS, f"{leader} instead of {term}, asked at {began}")

    def _judge_terms(self) -> None:
        if never := self.heard - {term.leader for term in self.terms.values()}:
            raise ViolationError(Rule.WON, f"{never}")
        terms = sorted(self.terms.values(), key=lambda term: term.since)
        for earlier, later in itertools.pairwise(terms):
            if later.since < earlier.until or later.leader.term <= earlier.leader.term:
                raise ViolationError(Rule.ALONE, f"{earlier}, {later}")

    async def _judge_end(self, candidate: LockManager, others: list[LockManager]) -> None:
        """Nothing happens any more: each observer knows the leader, and then that there is none."""
        for manager in others:
            async with contextlib.aclosing(manager.election(NAME).observe()) as news:
                heard = [await anext(news)]
                async with candidate.election(NAME).campaign() as leadership:
                    self.terms[leadership.term] = Term(Leader(leadership.term, leadership.holder), 0.0, 0.0)
                    for there in (Leader(leadership.term, leadership.holder), None):
                        if there is None:
                            await leadership.resign()
                        try:
                            async with asyncio.timeout(CALM):
                                while heard[-1] != there:
                                    heard.append(await anext(news))
                        except (TimeoutError, LockLostError):
                            raise ViolationError(Rule.END, f"{heard}, not {there}") from None
                        self._judge_heard(heard)
