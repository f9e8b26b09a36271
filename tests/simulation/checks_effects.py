"""The changes that commands may make to the keys of locks (R6, R8, R9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from tests.simulation.checks_words import Rule, Violation
from tests.simulation.history import Effect, History
from tests.simulation.history_words import instant, owned, plain

MAKERS: Final = frozenset({
    "acquire", "set-all", "repair", "read", "write", "rw-repair", "slots-acquire", "slots-repair",
    "fair-acquire",
})  # fmt: skip
"""Commands that may make a key."""

ENDERS: Final = frozenset({"release", "rw-release", "slots-release", "fair-release"})
"""Commands that may delete one."""

SETTLERS: Final = frozenset({"slots-extend", "slots-repair"})
"""Commands that give back every slot of their owner but one (R25)."""

EXACT: Final = 1e-6
"""Seconds by which a ttl may seem to change because a float is not exact; commands count milliseconds."""

TO_THE_MILLISECOND: Final = 0.002
"""The same where an end is a number of milliseconds, as those of readers and slots are."""


def ownership(history: History, _bound: float) -> Iterator[Violation]:
    """Find commands that changed another owner's key, or their own one as they must not."""
    clients: dict[bytes, int] | None = None
    for effect in history.effects:
        wrong = _wrong(effect)
        if wrong is None:
            continue
        if clients is None:
            clients = {claim.owner: claim.client for claim in history.claims}
        yield Violation(Rule.OWNERSHIP, effect.at, _told(effect, wrong, clients.get))


def _wrong(effect: Effect) -> str | None:
    """Say what a command has done that it must not."""
    before, after = effect.before, effect.after
    if before is None:
        return None if after is None else _wrongly_made(effect)
    if after is None:
        if before != effect.owner:
            return "deleted"
        strays = effect.slot is not None and effect.command in SETTLERS
        return None if strays or effect.command in ENDERS else "deleted its own"
    if before != after:
        return "overwrote"
    had = inf if effect.ttl_before is None else effect.ttl_before
    has = inf if effect.ttl_after is None else effect.ttl_after
    if before == effect.owner:
        if has < had - (TO_THE_MILLISECOND if effect.shares else EXACT):
            return "shortened its own"
        return "took the expiry off its own" if has == inf and had < inf else None
    if had == has or abs(had - has) <= EXACT:
        return None
    return "extended" if had < has else "shortened"


def _wrongly_made(effect: Effect) -> str | None:
    if effect.command.replace("_", "-") not in MAKERS:
        return "made a missing"
    if effect.after != effect.owner:
        return "made, for another owner than its own,"
    return "made, without expiry, a" if effect.ttl_after is None else None


def _told(effect: Effect, wrong: str, client_of: Callable[[bytes], int | None]) -> str:
    key = f"key '{plain(effect.key.decode('latin-1'))}'"
    text = (
        f"{effect.command} of client {effect.client} (owner {owned(effect.owner)})"
        f" {wrong} {key} on node {effect.node} at {instant(effect.at)}"
    )
    if effect.before not in (None, effect.owner):
        client = client_of(effect.before)
        holder = "an unknown owner" if client is None else f"client {client}"
        text += f", which belonged to {holder} (owner {owned(effect.before)})"
    if wrong.startswith(("shortened", "extended")):
        text += f": from {_ttl(effect.ttl_before)} to {_ttl(effect.ttl_after)}"
    return text


def _ttl(ttl: float | None) -> str:
    return "no expiry" if ttl is None else instant(ttl)
