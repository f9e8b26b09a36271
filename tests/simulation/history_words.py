"""Formats of times, names and owners of a history, in violations and in listings."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation.history import Claim, Operation


def plain(text: str) -> str:
    """Return `text` in printable ASCII: nothing in it moves a cursor or takes more than its place."""
    return text.encode("unicode_escape").decode("ascii")


def named(names: Iterable[str]) -> str:
    """Return names of locks in quotes."""
    return " + ".join(f"'{plain(name)}'" for name in names)


def instant(moment: float) -> str:
    """Return a time to the microsecond, without zeros at its end."""
    return f"{moment:.6f}".rstrip("0").rstrip(".") + " s"


def who(one: Claim | Operation) -> str:
    """Return the client and task that made a claim or an operation."""
    return f"client {one.client} (task {one.task})"


def kept(claim: Claim, what: str) -> str:
    """Return how the holder of a claim has `what` it claims."""
    return f"held {what} to {claim.mode}" if claim.mode in ("read", "write") else f"held {what}"


def with_fence(fence: int | None) -> str:
    """Return how a claim is fenced."""
    return "without a fence" if fence is None else f"with fence {fence}"


def owned(owner: bytes) -> str:
    """Return as much of an owner value as tells it from others."""
    text = plain(owner.decode("latin-1"))
    return text if len(text) <= 12 else f"{text[:12]}…"
