"""The pause before the next campaign after a very short term: a candidate must not keep all nodes busy."""

from __future__ import annotations

from random import Random
from typing import Final, final

from .._clock import Clock
from .._core.policy import RetryPolicy

SHORT_TERM: Final = 1.0
"""Seconds: a term that was no longer than this is followed by a pause."""

FIRST_PAUSE: Final = 0.1
"""Seconds of the pause after the first short term, at most."""

LONGEST_PAUSE: Final = 5.0
"""Seconds of the longest pause: it doubles with each short term in a row."""

_BETWEEN_TERMS: Final = RetryPolicy(base=FIRST_PAUSE, cap=LONGEST_PAUSE)


@final
class Pauses:
    """The pauses of one candidate that campaigns again and again."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._began = 0.0
        self._short = 0  # terms in a row

    def term_begins(self) -> None:
        """Note that the candidate leads."""
        self._began = self._clock.now()

    def term_ended(self) -> float:
        """Return the seconds to wait before the next campaign."""
        if self._clock.now() - self._began > SHORT_TERM:
            self._short = 0
            return 0.0
        self._short += 1
        return _BETWEEN_TERMS.backoff(self._short - 1, self._random.random(), least=0.5)
