"""The random part of owner values, by which nodes tell holders apart (A5)."""

from __future__ import annotations

from random import Random
from typing import Final, final

OWNER_BITS: Final = 160
"""Random bits of an owner value (A5), as many as the Redlock page takes from /dev/urandom."""

OWNERS_AT_ONCE: Final = 16
"""Owner values whose random bits are drawn at once: a system call for each would dominate an attempt."""


@final
class Owners:
    """Makes the random part of the owner values of one manager (A5)."""

    __slots__ = ("_digits", "_random")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._digits: list[bytes] = []

    def new(self) -> bytes:
        """Return a new random part."""
        # The supply is used up: draw the next one.
        if not self._digits:
            digits = OWNER_BITS // 4
            number = self._random.getrandbits(OWNER_BITS * OWNERS_AT_ONCE)
            some = b"%0*x" % (digits * OWNERS_AT_ONCE, number)
            self._digits = [some[i : i + digits] for i in range(0, len(some), digits)]
        return self._digits.pop()
