"""The clock watch: has a node's clock stepped, or our own (R14, A1)?

A node expires keys by its wall clock.  If that jumps ahead, a lock ends there before its ttl has passed, and
the node's vote is worth nothing.  No round trip shows that, but the node's `TIME` does.  A question asked at
`asked_at` and heard at `heard_at` by our own clock proves that the node read its clock in between, so that
*node - own* lies in ``[node_time - heard_at, node_time - asked_at]``.  No round trip has to be estimated: a
slow answer proves less, but nothing wrong.  All samples of a node must agree with one another up to the drift
that A1 allows, so their *intersection* is kept, widened by the drift since; the fastest round trips make it
narrow.  Honest clocks cannot make it empty: then one of the two has stepped, by at least the gap.

A gap ahead of up to `limit` is what the drift margin pays for, but only once per ttl: the old interval stays
until its age covers the gap, so that many small steps, or a clock that runs fast, add up to a step.  After a
gap back, and after a step, the interval starts again from the new sample.

*Whose clock?*  Our own step shows at every node; a node's step shows there alone.  So a step is only a
*suspicion* until every other node that has samples was asked after it began and heard, or `PATIENCE` has
passed.  A question asked before does not acquit: its answer may have waited in a buffer since before our
machine was paused.  When half of the nodes or more step together we distrust ourselves: everything is
forgotten and no node is blamed.  With one node or two, half is the suspect itself: there a step is always
our own.

What it cannot see: steps within `limit` plus the round trips of the two samples plus the drift between them
(36 s each way after an hour of silence); anything before the second sample; a step there and back between two
samples.  It detects, it does not prevent: a lock that has ended early is a case for the fence (R10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from .validity import CLOCK_DRIFT_FACTOR

PRECISION: Final = 0.001
"""Seconds: a node's time may be cut to the millisecond, so it is up to that much later."""

PATIENCE: Final = 2.0
"""Seconds of own time after which a suspicion no longer waits for the other nodes."""

ALIKE_WITHIN: Final = 0.25
"""Seconds by which the steps that two nodes prove may miss each other and still be one step of our own."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A node's clock has stepped: ahead by at least `seconds`, or back if negative."""

    node: int
    seconds: float
    before: float
    """Seconds that it was ahead of our own clock until then, at most."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The conclusions that the last sample made certain; empty nearly always."""

    steps: tuple[Step, ...] = ()
    """Steps ahead, which ended keys early: these nodes must sit out a quarantine (R12)."""
    back: tuple[Step, ...] = ()
    """Steps back, which make keys last longer: worth a word, no more."""
    own: float = 0.0
    """Seconds by which our own clock has stepped; negative if it stood still.  All samples are gone."""


NOTHING: Final = Conclusion()


@final
@dataclass(slots=True)
class _Offset:
    """Where *node - own* was at a moment of own time between `since` and `until`."""

    low: float
    high: float
    since: float
    until: float
    asked_at: float
    """When the latest question was asked; later than `since` while a small gap ahead is not yet paid."""


@final
@dataclass(frozen=True, slots=True)
class _Suspicion:
    """A step between `low` and `high`, of one sign, not yet attributed."""

    low: float
    high: float
    before: float
    began: float

    @property
    def seconds(self) -> float:
        """The least size that is proven."""
        return self.low if self.low > 0 else self.high


@final
class ClockWatch:
    """Judges the clocks of `size` nodes by their samples; a step ahead above `limit` seconds voids a vote."""

    def __init__(self, size: int, limit: float) -> None:
        self._size = size
        self._limit = limit
        self._offsets: dict[int, _Offset] = {}
        self._ahead: dict[int, _Suspicion] = {}
        self._back: dict[int, _Suspicion] = {}
        self.median_ahead: float | None = None
        """The median over the sampled nodes (the lower one) of how far they are ahead at least.

        Added to the own time it is a clock for ballots (R10): fewer than half of the nodes that were
        sampled cannot move it past the others.
        """
        self.limits = [math.inf] * size
        """By how much a node's time of day may be ahead of ours for its vote to be believed at once.

        Beyond it, `believes` is to be asked.
        """
        self._since = -math.inf

    def sample(self, node: int, asked_at: float, heard_at: float, node_time: float) -> Conclusion:
        """Take in the Unix time that a node answered; stamps are read before writing and after parsing."""
        if asked_at < self._since:
            return NOTHING  # asked before our own step, heard after it: it fits neither side
        self._fit(
            node,
            _Offset(node_time - heard_at, node_time + PRECISION - asked_at, asked_at, heard_at, asked_at),
        )
        concluded = self._attribute(heard_at) if self._ahead or self._back else NOTHING
        self._look_over()
        return concluded

    def believes(self, node: int, heard_at: float, node_time: float) -> bool:
        """Tell whether an answer's vote may count: its node is trusted, and not more than `limit` ahead."""
        if node in self._ahead:
            return False
        known = self._offsets.get(node)
        if known is None:
            return True
        slack = CLOCK_DRIFT_FACTOR * (heard_at - known.since)
        return node_time - heard_at <= known.high + slack + self._limit

    def trusted(self, node: int) -> bool:
        """Whether the node's clock is trusted: False while a step ahead is suspected (R12)."""
        return node not in self._ahead

    def offset(self, node: int) -> tuple[float, float] | None:
        """Return where *node - own* lay at the last sample that fitted; None without samples."""
        known = self._offsets.get(node)
        return None if known is None else (known.low, known.high)

    def forget(self, node: int) -> None:
        """Another server answers there now."""
        self._offsets.pop(node, None)
        self._ahead.pop(node, None)
        self._back.pop(node, None)
        self._look_over()

    def _fit(self, node: int, new: _Offset) -> None:
        """Intersect with what is known of the node; where that is empty, suspect a step."""
        old = self._offsets.get(node)
        if old is not None:
            # Two answers may overtake each other, so their nodes' readings are at most this far apart.
            slack = CLOCK_DRIFT_FACTOR * max(new.until - old.since, old.until - new.since)
            low, high = old.low - slack, old.high + slack
            if new.low - high > self._limit:
                _suspect(self._ahead, node, _Suspicion(new.low - high, new.high - low, high, new.until))
            elif new.low > high:
                old.asked_at = new.asked_at
                return
            elif new.high - low < -self._limit:
                _suspect(self._back, node, _Suspicion(new.low - high, new.high - low, high, new.until))
            elif new.high >= low:
                new.low, new.high = max(new.low, low), min(new.high, high)
        assert new.low <= new.high, "stamps of a sample out of order"
        self._offsets[node] = new

    def _attribute(self, now: float) -> Conclusion:
        """Say whose clock each suspected step was, as far as that is certain."""
        for pending in (self._ahead, self._back):
            for suspicion in pending.values():
                if 2 * _alike(suspicion.seconds, pending) >= self._size:
                    self._offsets.clear()
                    self._ahead.clear()
                    self._back.clear()
                    self._since = now
                    return Conclusion(own=-suspicion.seconds)
        return Conclusion(steps=self._resolve(self._ahead, now), back=self._resolve(self._back, now))

    def _resolve(self, pending: dict[int, _Suspicion], now: float) -> tuple[Step, ...]:
        """Take out the suspicions that no other node can share any more."""
        steps = tuple(
            Step(node=node, seconds=suspicion.seconds, before=suspicion.before)
            for node, suspicion in pending.items()
            if now - suspicion.began >= PATIENCE or self._others_asked_since(suspicion.began, node)
        )
        for step in steps:
            del pending[step.node]
        return steps

    def _others_asked_since(self, began: float, suspect: int) -> bool:
        return all(known.asked_at >= began for node, known in self._offsets.items() if node != suspect)

    def _look_over(self) -> None:
        """Work out what every vote is asked about."""
        lows = sorted(known.low for known in self._offsets.values())
        self.median_ahead = lows[(len(lows) - 1) // 2] if lows else None
        for node in range(self._size):
            known = self._offsets.get(node)
            high = math.inf if known is None else known.high + self._limit
            self.limits[node] = -math.inf if node in self._ahead else high


def _suspect(pending: dict[int, _Suspicion], node: int, new: _Suspicion) -> None:
    """Note a step; a further one of a suspect adds to the first, as our own steps do at the other nodes."""
    if (first := pending.get(node)) is not None:
        new = _Suspicion(first.low + new.low, first.high + new.high, first.before, first.began)
    pending[node] = new


def _alike(seconds: float, pending: dict[int, _Suspicion]) -> int:
    """Count the suspects whose step may have been of this size."""
    return sum(s.low - ALIKE_WITHIN <= seconds <= s.high + ALIKE_WITHIN for s in pending.values())
