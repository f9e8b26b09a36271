"""Gathering the facts for a diagnosis, through the connections and with the rights that locks use.

What they mean is decided beside it, without I/O: `judge`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from ..._core.command import Reply, Silence
from ..._node.handshake import facts_in
from ..look import ask
from .facts import NO_COMMANDS, NOT_ASKED, ClockReading, Facts, NodeFacts
from .trial import question, try_listening, try_locking, try_telling

if TYPE_CHECKING:
    from ..._lock.session import Session
    from ..._node.redis_node import Node


PATIENCE: Final = 1.0
"""Seconds an answer is waited for, or a `node_timeout` where that is longer: a slow one is a finding, too."""

LOOKS_ELSEWHERE: Final = 4
"""Further connections to a node, to see whether its name always leads to the same server."""

SAMPLES: Final = 5
"""Times that a node's clock is read: the quickest answer tells the time best."""

CONFIGURATION: Final = (b"appendfsync", b"bind", b"maxclients", b"protected-mode")
"""The part of a node's configuration that is read; INFO needs no further right."""

PORTS: Final = 65536
"""Port numbers: what is greater, behind a name, is the identity of an object."""


async def gather(session: Session) -> Facts:
    """Ask all nodes at the same time."""
    nodes = await asyncio.gather(*(_gather(session, i) for i in range(len(session.nodes))))
    options = session.options
    return Facts(
        nodes=tuple(nodes),
        prefix=options.prefix,
        node_timeout=session.node_timeout,
        fencing=options.fencing,
        quarantine=options.restart_quarantine,
        strangers=session.availability.strangers,
    )


async def _gather(session: Session, number: int) -> NodeFacts:
    node, distrusted = session.nodes[number], not session.clocks.trusted(number)
    status = node.status
    if not status.state.reached:
        reason = status.reason or str(status.state)
        return NodeFacts(name=node.name, host=_host(node), down=reason)
    timeout = max(PATIENCE, session.node_timeout)
    ask_it = partial(_ask, session, node, timeout)
    # Little at a time: locks need the node, too.
    round_trips, clock = await _read_clock(session, ask_it)
    info, config, default_user = await asyncio.gather(
        ask_it(_is_text, b"INFO"),
        _configuration(ask_it),
        ask_it(_is_map, b"ACL", b"GETUSER", b"default"),
    )
    key = session.options.incarnation
    incarnation = await ask_it(_is_text_or_none, b"GET", key) if key else NOT_ASKED
    voting = status.state.votes and not status.lists_differ
    trial = await try_locking(session, node, timeout, voting=voting)
    deaf = await try_listening(session, node, timeout)
    mute, uncounted = await try_telling(session, node, timeout)
    facts = facts_in(info)
    run_id = status.run_id or facts.get("run_id")
    others = await node.further_run_ids(LOOKS_ELSEWHERE)
    gathered = NodeFacts(
        name=node.name,
        host=_host(node),
        unverified=node.unverified,
        run_id=run_id,
        other_run_ids=others - {run_id} if run_id else frozenset(),
        round_trip=statistics.median(round_trips) if round_trips else status.round_trip,
        info=info if isinstance(info, Silence) else facts,
        config=config,
        default_user=default_user if isinstance(default_user, Silence) else _flags(default_user),
        clock=clock,
        distrusted=distrusted,
        incarnation=cast("bytes | Silence | None", incarnation),
        votes_in=status.votes_in,
        belongs_elsewhere=status.lists_differ,
        replaces=status.replaces,
        without_vote=not voting,
        failures=trial.failures,
        lacking=trial.lacking,
        deaf=deaf,
        mute=mute,
        uncounted=uncounted,
    )
    if voting or gathered.explains_its_silence(len(session.nodes)):
        return gathered
    return dataclasses.replace(gathered, failures=(("vote", status.reason), *trial.failures))


def _host(node: Node) -> str | None:
    """Return the host of a node that has a network address."""
    match node.address:
        case (str(host), int(port)) if port < PORTS:
            return host
    return None


# -- questions ---------------------------------------------------------------------------------------


async def _ask(
    session: Session, node: Node, timeout: float, fits: Callable[[object], bool], verb: bytes, *args: bytes
) -> Reply:
    """Ask something that servers of other make may answer in their own way: that is silence here."""
    reply: Reply = _plain(await ask(session, node, question(verb, *args), timeout))
    if isinstance(reply, Silence) or fits(reply):
        return reply
    return Silence(f"unexpected reply of type {type(reply).__name__}")


def _plain(reply: Any) -> Any:
    """Undo the maps and sets of RESP3."""
    if isinstance(reply, dict):
        return [_plain(part) for pair in reply.items() for part in pair]
    if isinstance(reply, (list, tuple, set, frozenset)):
        return [_plain(part) for part in reply]
    return reply


def _is_text(reply: object) -> bool:
    return isinstance(reply, bytes)


def _is_text_or_none(reply: object) -> bool:
    return reply is None or isinstance(reply, bytes)


def _is_map(reply: object) -> bool:
    return isinstance(reply, list) and len(reply) % 2 == 0


def _is_time(reply: object) -> bool:
    pair = isinstance(reply, list) and len(reply) == 2  # noqa: PLR2004
    return pair and all(isinstance(part, bytes) and part.isdigit() for part in cast("list[object]", reply))


def _text(words: object) -> str:
    return words.decode(errors="replace") if isinstance(words, bytes) else ""


def _flags(reply: Reply) -> frozenset[str]:
    """Read the flags in an answer to ACL GETUSER; the hashes of passwords stay where they are."""
    words = cast("list[object]", reply)
    found = dict(zip(map(_text, words[::2]), words[1::2], strict=True))
    flags, commands = found.get("flags"), _text(found.get("commands"))
    own = {NO_COMMANDS} if commands == "-@all" else set()
    return frozenset(map(_text, flags)) | own if isinstance(flags, list) else frozenset()


async def _configuration(ask_it: Callable[..., Awaitable[Reply]]) -> Mapping[str, str] | Silence:
    found: dict[str, str] = {}
    for name in CONFIGURATION:  # only newer servers take several at once
        reply = await ask_it(_is_map, b"CONFIG", b"GET", name)
        if isinstance(reply, Silence):
            return reply
        words = [*map(_text, cast("list[object]", reply))]
        found |= zip(words[::2], words[1::2], strict=True)
    return found


async def _read_clock(
    session: Session, ask_it: Callable[..., Awaitable[Reply]]
) -> tuple[Sequence[float], ClockReading | Silence]:
    """Read a node's clock several times: seconds there and back, and the best reading."""
    round_trips: list[float] = []
    best: ClockReading | None = None
    for _ in range(SAMPLES):
        asked_at = session.clock.now()
        reply = await ask_it(_is_time, b"TIME")
        took = session.clock.now() - asked_at
        if isinstance(reply, Silence):
            return round_trips, reply
        round_trips.append(took)
        seconds, microseconds = map(int, cast("list[bytes]", reply))
        if best is None or took / 2 < best.uncertainty:
            # Read somewhere between our two looks at the clock: in the middle, give or take a half.
            offset = seconds + microseconds / 1e6 - (asked_at + took / 2)
            best = ClockReading(offset=offset, uncertainty=took / 2)
    assert best is not None, "it was asked at least once"
    return round_trips, best
