"""One run of the search: model nodes and clients under an adversary; one seed decides everything."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import itemgetter
from typing import Final

from aioredlock_ng._core.fencing import MAX_BLOCK
from aioredlock_ng._core.quarantine import NO_INCARNATION

from .fence_client import Attempt, Client, Connection, Phase
from .fence_faults import FAULTS, UNTIMED, ahead, initialise, keep, pause, relapse
from .fence_node import EPOCH_US, Claim, ModelNode
from .fence_rules import SHIPPING, Rules
from .history import Mode
from .searching import ViolationError

HOUR_US: Final = 3_600_000_000

STEPS: Final = 250
"""Steps of one run, and as many for every two nodes more: an act, a fault, or a message that arrives."""

MIXES: Final[tuple[tuple[Mode, ...], ...]] = (
    ("read", "write"),
    ("read", "read", "read", "write"),
    ("read", "write", "write", "lock"),
    ("fair", "fair", "lock", "write"),
)
"""As what attempts want their names, where they are not mutexes alone."""

PERMITS: Final = (1, 2, 2, 3)
"""How many permits there are, where they are wanted."""

BLOCKS: Final = (1, 2, 5, MAX_BLOCK)
"""How many fences an attempt may ask for, where there are blocks."""

TRAITS: Final = (
    "several names",
    "clocks apart",
    "wall clocks apart",
    "wall clocks late",
    "contention",
    "hasty",
    "repeat",
    "blocks",
)
"""What a run may be like, besides the kinds of faults that it has."""


class Rule(StrEnum):
    """What is judged."""

    ORDER = "no fence is made twice, or against the order of time"
    LAW = "a node's counter rises"
    """Else there is no harm so far, but what the proof rests on is gone."""
    EXCLUSION = "one holder at a time"
    FOLLOWING = "a writer learns that none came since a read lease only if none did"


@dataclass(frozen=True, slots=True)
class Given:
    """A fence that was given, with the steps at which its attempt began and a lease got it."""

    number: int
    began: int
    until: int
    owner: int
    alone: bool
    """Whether to no reader."""
    held: bool
    """Whether it was still valid then."""


class World:
    """One run.

    Args:
        seed: decides everything else.
        rules: what is searched.
        timed: whether holds end by time alone, so that there must be one holder at a time.
        mixed: whether some attempts are readers' and writers'; all else is drawn as without.
        permits: whether attempts want permits of semaphores, and there are more clients.
    """

    def __init__(
        self,
        seed: int,
        *,
        rules: Rules = SHIPPING,
        size: int,
        timed: bool = False,
        mixed: bool = False,
        permits: bool = False,
    ) -> None:
        self._looks = random.Random(f"{seed} permits") if permits else None
        self._permits = self._looks.choice(PERMITS) if self._looks else 0
        self._modes = random.Random(f"{seed} modes") if mixed else None
        self._mix: tuple[Mode, ...] = self._modes.choice(MIXES) if self._modes else ("lock",)
        self.random = draw = random.Random(f"{seed} {size} {timed}")
        self.rules = rules
        self.size = size
        self.timed = timed
        self.counts: Counter[str] = Counter()
        self.now_us = EPOCH_US
        self.steps = 0
        self.owners = 0
        self.later: list[tuple[int, Callable[[], None]]] = []
        """What the adversary will do, and at which step."""
        self.tokens: list[Connection] = []
        """One for every message that is under way; a connection's next message goes first."""
        share = draw.choice((0.15, 0.3, 0.5))
        self.kinds = [kind for kind in FAULTS if not (timed and kind in UNTIMED) and draw.random() < share]
        self.traits = {trait for trait in TRAITS if draw.random() < 1 / 2}
        self.replies_first = draw.choice((0.5, 0.9))
        self._fault_rate = draw.choice((0.005, 0.015, 0.04))
        self._act_rate = draw.choice((0.08, 0.15))
        self._idleness = draw.choice((0, 0.02, 0.1))
        self._tick_us = draw.choice((1, 100, 1000, 5000))
        self.ttl_ms = draw.choice((1000, 10_000, 60_000))
        wanted = self.ttl_ms if timed or draw.random() < 1 / 2 else 0
        self.quarantine_ms = rules.quarantine(wanted)
        self._won: defaultdict[str, list[Given]] = defaultdict(list)
        """For each name, or slot, the fences that were given."""
        self._rivals = ""
        self._held: defaultdict[str, list[Attempt]] = defaultdict(list)
        self.nodes = [
            ModelNode(rules, number, self.counts, size=size, offset_us=offset)
            for number, offset in enumerate(self._clock_offsets())
        ]
        if not timed or draw.random() < 1 / 2:
            with rules.in_force():
                initialise(self)
        self.clients = [self._client(number) for number in range(1, 2 + self._permits + draw.randrange(1, 3))]

    def _clock_offsets(self) -> list[int]:
        draw = self.random
        spread = draw.choice((0, 1000, 5_000_000))
        offsets = [draw.randrange(-spread, spread + 1) for _ in range(self.size)]
        if "clocks apart" in self.traits and draw.random() < 1 / 2:
            far = draw.choice((15_000_000, 400_000_000, HOUR_US)) * draw.choice((-1, 1))
            offsets = [offset + far * (draw.random() < 1 / 3) for offset in offsets]
        return offsets

    def _client(self, number: int) -> Client:
        draw = self.random
        offset = 0
        if "wall clocks late" in self.traits:
            offset = -HOUR_US
        elif "wall clocks apart" in self.traits:
            offset = draw.choice((-HOUR_US, -10_000_000, 0, HOUR_US))
        return Client(self, number, wall_offset_us=offset, keep_ms=draw.choice(self.rules.keep_ms))

    @property
    def fences(self) -> int:
        """How many fences were made."""
        return sum(map(len, self._won.values()))

    @property
    def seconds(self) -> float:
        """Seconds since the run began: the clients' own, suspend-safe clock."""
        return (self.now_us - EPOCH_US) / 1_000_000

    def chance(self, trait: str) -> bool:
        """Say whether to do, now and then, what only some runs do."""
        return trait in self.traits and self.random.random() < 1 / 8

    # -- running -------------------------------------------------------------------------------

    def run(self, steps: int = 0) -> None:
        """Run to the end, or for `steps`; raises `ViolationError`."""
        with self.rules.in_force():
            self._run(steps)

    def _run(self, steps: int) -> None:
        steps = steps or STEPS * (self.size + 1) // 2
        self.now_us += self.random.choice((0, 3, 8, 15, 30, 2 * self.ttl_ms // 1000)) * 1_000_000
        draw = self.random.random
        for self.steps in range(1, steps + 1):
            self.now_us += 1 + int(draw() * self._tick_us)
            chance = draw()
            if self.later and self.later[0][0] <= self.steps:
                self.later.pop(0)[1]()
            elif chance < self._fault_rate:
                self._fault()
            elif chance < self._act_rate or not self.tokens:
                self._act(self.random.choice(self.clients))
            else:
                self._deliver()
        for node in self.nodes:
            if node.broken_law:
                raise ViolationError(Rule.LAW, node.broken_law)
        if self._rivals and self.timed:
            raise ViolationError(Rule.EXCLUSION, self._rivals)

    def _deliver(self) -> None:
        tokens = self.tokens
        index = int(self.random.random() * len(tokens))
        tokens[index], tokens[-1] = tokens[-1], tokens[index]
        connection = tokens[-1]
        if connection.blocked_until <= self.steps:
            tokens.pop()
            connection.carry(self.nodes[connection.node])

    def put_off(self, what: Callable[[], None], steps: int) -> None:
        """Let the adversary do it after some steps."""
        self.later = sorted([*self.later, (self.steps + steps, what)], key=itemgetter(0))

    def in_between(self, attempt: Attempt) -> None:
        """Give the adversary its chance while an attempt has not made its fence."""
        chance = self.random.random()
        if chance < 0.1 and "pause a client" in self.kinds:
            pause(self, attempt.client)
        elif "relapse" not in self.kinds or attempt.phase is not Phase.ASKING:
            return
        elif chance > 0.9 or (chance > 0.4 and ahead(self, attempt)):
            relapse(self, attempt.client)

    def _fault(self) -> None:
        if self.random.random() < 1 / 4:
            keep(self)
        if self.kinds:
            kind = self.random.choice(self.kinds)
            FAULTS[kind](self)

    def _act(self, client: Client) -> None:
        draw = self.random.random
        if draw() < self._idleness:
            self.now_us += round(self.ttl_ms * 1000 * draw())
        if client.attempt is not None:
            self._go_on(client, client.attempt)
        elif draw() < (1 / 3 if self._permits or "contention" in self.traits else 1 / 10) or not self._busy:
            self._begin(client)
        for connection in client.connections:
            if not connection.greeting and (connection.expected is NO_INCARNATION or draw() < 0.02):
                connection.greet(connection.expected.incarnation if self.chance("repeat") else b"")

    def _go_on(self, client: Client, attempt: Attempt) -> None:
        if self._modes and attempt.valid and attempt.claim.mode == "write" and self._modes.random() < 0.05:
            attempt.downgrade()
            return
        chance = self.random.random()
        if attempt.phase is not Phase.HELD:
            impatience = 1 / 4 if "hasty" in self.traits else 1 / 20
            if client.paused_until < self.steps and chance < impatience:
                attempt.impatient()
        elif chance < 0.15:
            attempt.extend()
        elif chance < 0.25 and attempt.left:
            attempt.hand_off()
        elif chance < 0.3:
            attempt.end(attempt.fence)
        elif chance < 0.35:
            attempt.forget()

    @property
    def _busy(self) -> bool:
        """Whether another attempt would be in the way of one that is under way, or held."""
        return any(client.attempt and client.paused_until < self.steps for client in self.clients)

    def _begin(self, client: Client) -> None:
        self.owners += 1
        choices = (("x",), ("y",), ("x", "y")) if "several names" in self.traits else (("x",),)
        if self.random.random() < 1 / 2:
            client.seen = 0  # not another attempt, but another acquisition
        owner = self.rules.new_owner(client.number, self.owners)
        names = self.random.choice(choices)
        block = self.random.choice(BLOCKS) if "blocks" in self.traits else 1
        mode, ttl_ms, follows = "lock", self.ttl_ms, False
        if self._modes is not None:
            mode = self._modes.choice(self._mix)
            ttl_ms = self._modes.choice((self.ttl_ms, self.ttl_ms * 3 // 10))
            follows = self._modes.random() < 1 / 2
        claim = Claim(
            owner=owner,
            names=names,
            ttl_ms=ttl_ms,
            keep_ms=client.keep_ms,
            block=block if mode == "lock" else 1,
            mode=mode,
        )
        if mode == "fair":
            claim = replace(claim, names=names[:1])
        if self._looks is not None:
            span = self._looks.choice((1, self._permits))
            look = (self._looks.randrange(self._permits), span)
            claim = replace(claim, names=names[:1], mode="permit", block=1, permits=self._permits, look=look)
        client.begin(claim, follows=follows)

    # -- checking ------------------------------------------------------------------------------

    def won(self, attempt: Attempt) -> None:
        """Check a fence against all others, and a holder against its rivals."""
        for name in attempt.claim.places:
            self._given(name, attempt, attempt.number)
        self.counts["a fair lock won"] += attempt.claim.mode == "fair"
        self._holds(attempt)
        self._count(attempt)

    def _holds(self, attempt: Attempt) -> None:
        """Check a holder against its rivals: others, unless both are readers."""
        for name in attempt.claim.places:
            held = [other for other in self._held[name] if other.valid]
            self._held[name] = [*held, attempt]
            rivals = [other for other in held if other.claim.alone or attempt.claim.alone]
            if rivals and attempt.valid:
                self._two_hold(name, rivals[0].claim, attempt)
            self.counts["readers together"] += bool(held and not rivals)

    def _count(self, attempt: Attempt) -> None:
        """Check that no more hold a semaphore than it has permits, whatever their slots (R24)."""
        name, permits = attempt.claim.names[0], attempt.claim.permits
        holding = [one for client in self.clients if (one := client.attempt) and one.valid]
        held = [one for one in holding if one.claim.permits and one.claim.names[0] == name]
        self.counts["permits together"] += len(held) > 1
        if len(held) > permits > 0:
            self._two_hold(name, held[0].claim, attempt)

    def holds_on(self, attempt: Attempt) -> None:
        """Check a holder whose end has moved: it has had its names all the time, and no other in between."""
        for name in attempt.claim.places:
            for other in self._won[name]:
                shared = not (other.alone or attempt.claim.alone)
                if (
                    not shared
                    and other.held
                    and other.owner != attempt.claim.owner
                    and other.until > attempt.won_at
                ):
                    self._two_hold(name, other, attempt)

    def _two_hold(self, name: str, other: object, attempt: Attempt) -> None:
        self.counts["two holders at once"] += 1
        self._rivals = f"{name}: two holders at step {self.steps}, {other}, {attempt.claim}"

    def unchanged(self, attempt: Attempt) -> None:
        """Check what a writer learns: that none came since it read."""
        self.counts["unchanged"] += 1
        assert attempt.since is not None, "it has asked"
        # While holds end by time alone, none can have come while it waited, either.
        before = self.steps if self.timed else attempt.began
        for name in attempt.claim.names:
            for other in self._won[name]:
                if other.alone and attempt.since < other.number != attempt.number and other.until < before:
                    raise ViolationError(
                        Rule.FOLLOWING,
                        f"{name}: {other}, but {attempt.claim} heard of none since {attempt.since}",
                    )

    def handed_off(self, attempt: Attempt) -> None:
        """Check the next number of a block, which is as old as the attempt."""
        self.counts["handed off"] += 1
        for name in attempt.claim.names:
            self._given(name, attempt, attempt.number)

    def _given(self, name: str, attempt: Attempt, number: int) -> None:
        given = Given(
            number, attempt.began, self.steps, attempt.claim.owner, attempt.claim.alone, attempt.valid
        )
        for other in self._won[name]:
            if other.number == number and (other.alone or given.alone):
                raise ViolationError(Rule.ORDER, f"{name}: {number} twice, {other} and {given}")
            if other.until < given.began and other.number > number:
                raise ViolationError(Rule.ORDER, f"{name}: {other}, then {given}")
        self._won[name].append(given)
