"""Writes down what clients do and what nodes execute for one name: the events of a trace (traces.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from unittest.mock import patch

from aioredlock_ng._core.command import Answer
from aioredlock_ng._core.quarantine import parse_any
from aioredlock_ng._lock.attempt import Attempt
from aioredlock_ng._lock.holding import Holding
from aioredlock_ng._node.redis_node import Node
from aioredlock_ng._round.releases import Releases
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.batches import singles
from tests.simulation.commands import command, holders, lock_keys, owner_of
from tests.simulation.plan import Plan
from tests.simulation.world import World
from tests.unit.traces import PREFIX

NAME: Final = "a"
KEY: Final = PREFIX + NAME.encode()
META: Final = PREFIX + b"{meta}"

EXECUTED: Final = {"acquire": "acquire", "extend": "extended", "repair": "repair", "release": "released"}
"""The commands that nodes execute, and their words in a trace."""

FREE: Final = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a trace, before owner values become clients of the model."""

    at: float
    what: str
    """As in RedlockTrace.tla."""
    owner: bytes = FREE
    """The owner value of the attempt it is about."""
    node: int = 0
    """From 1 on."""
    holder: bytes | None = FREE
    """The owner value under the key after a command; None: unknown."""


Note: TypeAlias = Callable[[str, bytes, str], None]
"""Takes what a client did, for which owner value, and the name of the node if it is about one."""


def _hearing(note: Note) -> Callable[..., object]:
    """Return what asks for an extension, and tells to which nodes it was not sent."""
    ask = Holding._ask_to_extend

    def wrapped(holding: Holding, ttl: float, on_answer: Callable[[int, Answer], None]) -> object:
        def answered(node: int, answer: Answer) -> None:
            if not answer.sent:
                note("unsent", holding.owner, holding._session.outbox.nodes[node].name)
            on_answer(node, answer)

        return ask(holding, ttl, answered)

    return wrapped


@contextmanager
def listening(note: Note) -> Iterator[None]:
    """Have all clients of this process tell what they do.

    The hooks of the package's users never tell owner values (`events`): so this wraps its functions.
    """
    with ExitStack() as stack:

        def before(owner: type, name: str, tell: Callable[..., object]) -> None:
            original = getattr(owner, name)

            def wrapped(*args: Any, **options: Any) -> Any:
                tell(*args, **options)
                return original(*args, **options)

            stack.enter_context(patch.object(owner, name, wrapped))

        grant, asked = Attempt.grant, []

        def granted(attempt: Attempt) -> Any:
            asked.append(grant(attempt))
            return asked[-1]

        def won(_holding: Holding, _session: Any, won: Any, *_: Any) -> None:
            if any(won is each for each in asked):  # else handed off: for the nodes nothing has changed (R43)
                note("win", won.owner, "")

        def forgets(node: Node, *_: Any) -> None:
            now = node.env.clock.now()
            for owner, release in node._ledger._releases.items():
                if release.until <= now:
                    note("forget", owner, node.name)

        stack.enter_context(patch.object(Holding, "_ask_to_extend", _hearing(note)))
        before(Attempt, "ask", lambda attempt: note("ask", attempt.owner, ""))
        stack.enter_context(patch.object(Attempt, "grant", granted))
        before(Holding, "__init__", won)
        before(Holding, "extend", lambda holding, *_, **__: note("extend", holding.owner, ""))
        before(Holding, "_won", lambda holding, *_: note("win", holding.owner, ""))
        before(Releases, "release", lambda _, __, owner, **___: note("release", owner, ""))
        before(Node, "_repeat_releases", forgets)
        yield


class Recorder:
    """The events of one simulated run."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._world: World | None = None
        self._keys: dict[int, bytes] = {}  # the owner value at each node, by what was written down
        self._expiries: dict[int, float | None] = {}  # when it ends, by the node's clock
        self._waits: dict[int, bool] = {}
        self._voting: dict[int, bytes] = {}  # the incarnation record by which each node has voted last

    def _write(self, what: str, owner: bytes = FREE, *, at: float | None = None, **about: Any) -> None:
        assert self._world is not None
        if not self._world._over:
            now = self._world.now
            self.events.append(Event(at=now if at is None else min(at, now), what=what, owner=owner, **about))

    def client(self, what: str, owner: bytes, node: str) -> None:
        """Write down what a client did."""
        self._write(what, owner, node=int(node.removeprefix("node-")) + 1 if node else 0)

    # -- nodes -----------------------------------------------------------------------------------

    def watch(self, world: World) -> None:
        """Write down what the nodes of a world execute."""
        self._world = world
        for number, node in enumerate(world.nodes, 1):
            self._keys[number], self._waits[number] = FREE, False
            self._watch(number, node)

    def _watch(self, number: int, node: MemoryNode) -> None:
        server = node._server
        execute, flush_all, new_process = node.execute, server.flush_all, server.new_process
        set_rate = server.clock.set_rate

        def executed(words: list[bytes], client: Any = None) -> bytes:
            about = KEY in lock_keys(words)
            # Any command, such as a greeting, may be the first one that finds the quarantine over.
            if (about or self._waits[number]) and not node.refusal:
                self._look(number, node)
            answer = execute(words, client)
            if about and not answer.startswith(b"-"):
                self._executed(number, node, words)
            return answer

        def lost() -> None:
            self._look(number, node)
            flush_all()
            self._keys[number], self._waits[number] = FREE, True
            self._write("lose", node=number)

        def restarted() -> None:
            self._look(number, node)
            new_process()
            self._waits[number] = True
            self._write("restart", node=number)

        def at_another_rate(rate: float) -> None:
            # What has ended by now ended by the rate of until now.
            self._look(number, node)
            set_rate(rate)

        server.clock.set_rate = at_another_rate  # type: ignore[method-assign]
        node.execute = executed  # type: ignore[method-assign]
        server.flush_all, server.new_process = lost, restarted  # type: ignore[method-assign]

    def _executed(self, number: int, node: MemoryNode, words: list[bytes]) -> None:
        about = [
            one for one in map(list, singles(words)) if lock_keys(one) == [KEY] and command(one) in EXECUTED
        ]
        self._keys[number] = now = self._holder(node)
        self._expiries[number] = node._server.data.get(KEY, (None, None))[1]
        for one in about:
            # A node that has another incarnation than the client expects changes nothing (R12), as where it
            # answers by an error: in the model, such a command was lost.
            if now == FREE and command(one) == "acquire":
                continue
            holder = now if one is about[-1] else None
            self._write(EXECUTED[command(one)], owner_of(one), node=number, holder=holder)

    @staticmethod
    def _holder(node: MemoryNode) -> bytes:
        return next((seat.owner for seat in holders(node, KEY)), FREE)

    def _look(self, number: int, node: MemoryNode) -> None:
        """Write down what has ended by the node's clock since the last look, and when that was."""
        before = self._keys[number]
        if before and self._holder(node) == FREE:
            # Whatever looks at the node's data, such as a check of the simulation, removes what has ended.
            self._write("expire", before, at=self._when(node, self._expiries[number]), node=number)
            self._keys[number] = FREE
        record = node.get(META) or b""
        found = parse_any(record)
        mine = found is not None and found.identity == "".join(node.identity).encode()
        ready = found.ready_ms / 1000 - EPOCH if found is not None else 0.0
        # What is over stays so if the clock is set back after that: nodes and clients compare the record.
        waits = not mine or (ready > node._server.clock.now() and record != self._voting.get(number))
        if not waits:
            self._voting[number] = record
        if waits != self._waits[number]:
            self._waits[number] = waits
            self._write("restart" if waits else "vouch", node=number, at=self._when(node, ready))

    def _when(self, node: MemoryNode, moment: float | None) -> float | None:
        """Return the true time at which a node's clock, at the rate of now, showed a moment."""
        assert self._world is not None
        clock = node._server.clock
        if moment is None or not clock.rate:
            return None
        return self._world.now - (clock.now() - moment) / clock.rate


@dataclass(frozen=True, slots=True)
class Recorded:
    """The events of the one name of a run."""

    nodes: int
    events: Sequence[Event]
    killed: frozenset[int] = frozenset()
    """The processes, by the numbers in their owner values, that did not come to their end."""

    @property
    def asked(self) -> set[bytes]:
        """The owner values of all attempts."""
        return {event.owner for event in self.events if event.what == "ask"}


def record(plan: Plan) -> Recorded:
    """Simulate, and return what happened to the one name."""
    recorder = Recorder()
    with listening(recorder.client):
        world = World(plan)
        recorder.watch(world)
        run = world.run()
    claims = [claim for claim in run.history.claims if claim.since < claim.until]
    beliefs = [Event(at=claim.until, what="until", owner=claim.owner) for claim in claims]
    events = sorted([*beliefs, *recorder.events], key=lambda event: event.at)
    killed = {n for n, one in world.clients.items() if not (one.served and one.process.alive)}
    return Recorded(plan.nodes, events, frozenset(killed))
