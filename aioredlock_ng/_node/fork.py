"""Telling a forked child from its parent without asking the system each time."""

from __future__ import annotations

import os

_generation = 0


def generation() -> int:
    """Return a number that differs between a process and the children it forks."""
    return _generation


def _forked() -> None:
    global _generation  # noqa: PLW0603 (the one fact that must survive a fork)
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
