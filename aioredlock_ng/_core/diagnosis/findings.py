"""What a diagnosis says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from ..command import Silence
from .facts import NodeFacts
from .reasons import explained
from .rights import denied, unknown

Level: TypeAlias = Literal["ok", "warning", "error"]
"""``error``: locks cannot be had, or can be lost unseen.  ``warning``: under conditions that are named."""

BY_HAND: Final = "check it by hand, or ask whoever runs the server"
"""The advice when a server does not tell."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check came to."""

    node: str | None
    """None when it concerns all of them together."""
    check: str
    """Which check, in one word that stays the same."""
    level: Level
    message: str
    advice: str = ""
    """What to do about it; empty when it is ok."""


def ok(node: NodeFacts | None, check: str, message: str) -> Finding:
    """Say that a check found nothing wrong."""
    return Finding(node=node.name if node else None, check=check, level="ok", message=message)


def bad(node: NodeFacts | None, check: str, level: Level, message: str, advice: str) -> Finding:
    """Say what a check found, and what to do about it."""
    name = node.name if node else None
    return Finding(node=name, check=check, level=level, message=message, advice=advice)


def unchecked(node: NodeFacts, check: str, silence: Silence, right: str) -> Finding:
    """Say that a node did not answer to a check, and by which right it would."""
    if denied(silence.reason):
        advice = allow(right)
    elif unknown(silence.reason):
        advice = BY_HAND
    else:
        _, advice = explained(silence.reason, check, b"")
    return bad(node, check, "warning", f"could not be checked: {silence.reason}", advice)


def missing(node: NodeFacts, check: str, fact: str) -> Finding:
    """Say that a server leaves out what a check is about."""
    message = f"could not be checked: the server's INFO does not tell {fact}"
    return bad(node, check, "warning", message, BY_HAND)


def allow(right: str) -> str:
    """Return the advice to grant a right."""
    return f"allow it with {right} and under its own name, or diagnose as a user who may"
