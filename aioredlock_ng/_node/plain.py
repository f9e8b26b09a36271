"""Converts replies to what RESP2 has, for every protocol, and reads facts in them."""

from __future__ import annotations

from typing import Any


def plain(reply: Any) -> Any:
    """Undo the maps and sets of RESP3."""
    if isinstance(reply, dict):
        return [plain(part) for pair in reply.items() for part in pair]
    if isinstance(reply, (list, tuple, set, frozenset)):
        return [plain(part) for part in reply]
    return reply


def facts_in(answer: object) -> dict[str, str]:
    """Read an answer to ``INFO``; any other reply has no facts."""
    lines = answer.decode(errors="replace").splitlines() if isinstance(answer, bytes) else ()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}
