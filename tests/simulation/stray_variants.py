"""Wrong variants of R12a, which the search must catch: the shipping code with one rule of it taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng._core.quarantine import BY_INIT, Claim
from aioredlock_ng._core.quorum_view import QuorumView

from .stray_world import Rule


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """One node belongs to another quorum, and the client goes on with the others."""
    reassess = QuorumView._reassess

    def without_conflict(view: QuorumView) -> None:
        reassess(view)
        view.in_conflict = False

    with patch.object(QuorumView, "_reassess", without_conflict):
        yield


@contextlib.contextmanager
def forgetting() -> Iterator[None]:
    """A node that goes out of reach has no quorum any more."""

    def lose(view: QuorumView, node: object, _now: float) -> None:
        if view._views.pop(node, None) is not None:
            view._reassess()

    with patch.object(QuorumView, "lose", lose):
        yield


def outranks(rule: Callable[[Claim, Claim], bool]) -> contextlib.AbstractContextManager[Any]:
    """Have another rule for which quorum gives way."""
    return patch.object(Claim, "outranks", rule)


VARIANTS: Final[dict[str, tuple[Callable[[], contextlib.AbstractContextManager[Any]], frozenset[Rule]]]] = {
    "going on with the other nodes": (going_on, frozenset({Rule.EXCLUSION})),
    "forgetting what a node out of reach has said": (forgetting, frozenset({Rule.EXCLUSION})),
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
"""The function that makes each, and the rules that it may break."""
