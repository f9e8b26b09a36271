"""Wrong variants of R12a, which the search must catch: the shipping code with one rule of it taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng._core import quarantine
from aioredlock_ng._core.claims import BY_INIT, Claim
from aioredlock_ng._core.quarantine import TAKING_BACK_MS, parse, wait_ms
from aioredlock_ng._core.quorum_view import QuorumView
from aioredlock_ng.testing import _memory_scripts

from .stray_world import Rule


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """One node belongs to another quorum, and the client goes on with the others."""
    reassess = QuorumView._reassess

    def without_conflict(view: QuorumView) -> None:
        reassess(view)
        view.conflict = False

    with (
        patch.object(QuorumView, "_reassess", without_conflict),
        patch.object(QuorumView, "closed_for", lambda _self, _now: 0.0),
    ):
        yield


@contextlib.contextmanager
def forgetting() -> Iterator[None]:
    """A node that goes out of reach has no quorum any more."""

    def lose(view: QuorumView, node: object) -> None:
        if view._views.pop(node, None) is not None:
            view._reassess()

    with patch.object(QuorumView, "lose", lose):
        yield


@contextlib.contextmanager
def taking_back(closed: Callable[..., int]) -> Iterator[None]:
    """A node is taken back with another wait."""

    def taken_back(stored: bytes | None, **options: Any) -> bytes:
        after = quarantine.taken_back(stored, **options)
        if after == stored:
            return after
        taken = parse(after)
        assert taken is not None, "it is ours"
        return bytes(replace(taken, closed_ms=closed(**options)))

    with patch.object(_memory_scripts, "taken_back", taken_back):
        yield


def no_wait(**_: Any) -> int:
    """Not a moment."""
    return 0


def own_quarantine(*, now_us: int, quarantine_ms: int, **_: Any) -> int:
    """As long as the client's own locks live, and not the other quorum's."""
    return now_us // 1000 + wait_ms(quarantine_ms) + TAKING_BACK_MS


def outranks(rule: Callable[[Claim, Claim], bool]) -> contextlib.AbstractContextManager[Any]:
    """Have another rule for which quorum gives way."""
    return patch.object(Claim, "outranks", rule)


VARIANTS: Final[dict[str, tuple[Callable[[], contextlib.AbstractContextManager[Any]], frozenset[Rule]]]] = {
    "going on with the other nodes": (going_on, frozenset({Rule.EXCLUSION})),
    "forgetting what a node out of reach has said": (forgetting, frozenset({Rule.EXCLUSION})),
    "no wait": (lambda: taking_back(no_wait), frozenset({Rule.EXCLUSION})),
    "a wait of the own quarantine only": (lambda: taking_back(own_quarantine), frozenset({Rule.EXCLUSION})),
    "taking back without an older birth": (
        lambda: outranks(lambda _self, other: other.how != BY_INIT),
        frozenset({Rule.TAKEN_ONCE, Rule.RETURNED}),
    ),
    "taking back from an init": (
        lambda: outranks(lambda self, other: self.born_ms < other.born_ms),
        frozenset({Rule.STATEMENT}),
    ),
    "the younger quorum wins": (
        lambda: outranks(lambda self, other: other.how != BY_INIT and self.born_ms > other.born_ms),
        frozenset({Rule.RETURNED, Rule.REFUSED}),
    ),
}
"""How each is made, and which rules it may break."""
