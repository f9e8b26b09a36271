"""Detects forked children without asking the system each time."""

from __future__ import annotations

import os
from typing import Any, Final
from weakref import WeakSet

generation = 0
"""Differs between a process and the children it forks."""
_not_for_children: Final[WeakSet[Any]] = WeakSet()


def close_in_children(thing: Any) -> None:
    """Call `thing.close` in every child that is forked from now on, so that no use of it has to check."""
    _not_for_children.add(thing)


def _forked() -> None:
    global generation  # noqa: PLW0603 (the one fact that must survive a fork)
    generation += 1
    for thing in _not_for_children:
        thing.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
