"""Stating that no lock can be alive: what ends the first wait of fresh nodes (R12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import anyio

from .. import _scripts
from .._core.command import Answer, Command, Purpose, milliseconds
from .._core.fencing import SHIFT
from .._core.keyspace import members_key
from .._core.quarantine import parse
from .._core.quorum import majority
from .._session.background import same_server
from ..errors import ConfigurationError, LockTakenError, QuorumUnavailableError, printable
from .look import ask_all
from .survey import Survey, survey, votes_of

if TYPE_CHECKING:
    from .._lock.session import Session

LOOKED_AT: Final = 1000
"""Keys under the prefix that are looked at; where there are more, it is not certain what they are."""

CLOCKS_APART: Final = 5.0
"""Seconds that are waited for the slowest clock at most; nodes further apart get floors of their own."""


_FORCE: Final = "if the list of nodes has changed, and all clients are stopped, force it"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInitialisation:
    """One node's part in an initialisation."""

    node: str
    done: bool
    reason: str = ""
    """Why it is not done."""


async def initialise(session: Session, *, force: bool) -> tuple[NodeInitialisation, ...]:
    """Let every node that answers vote at once, all with one floor, unless a lock is found."""
    if session.options.incarnation is None:
        raise ConfigurationError("fencing=False and no restart_quarantine: there is nothing to initialise")
    if twins := same_server(session.nodes):
        raise ConfigurationError(twins)
    if not force:
        _refuse_another_quorums(session)
        await _refuse_live_locks(session)
    answers = await ask_all(session, _command(session, floor=0))
    floors = [floor for answer in answers if (floor := _floor(answer))]
    if len(set(floors)) > 1:
        # A node takes no floor that is ahead of what its own clock allows: the slowest one must get there.
        late_ms = ((max(floors) - min(floors)) >> SHIFT) + 1
        await anyio.sleep(min(late_ms / 1000, CLOCKS_APART))
        await ask_all(session, _command(session, floor=max(floors)))
    await session.greet()
    return tuple(
        NodeInitialisation(node=node.name, done=_floor(answer) is not None, reason=_why_not(answer))
        for node, answer in zip(session.nodes, answers, strict=True)
    )


def _command(session: Session, *, floor: int) -> Command:
    options = session.options
    assert options.incarnation is not None, "the caller has looked"
    quarantine_ms = milliseconds(options.restart_quarantine) if options.restart_quarantine else 0
    return Command(
        Purpose.OTHER,
        owner=b"",
        fits=lambda reply: isinstance(reply, bytes),
        keys=(options.incarnation, members_key(options.prefix)),
        args=(b"%d" % len(session.nodes), b"%d" % quarantine_ms, b"%d" % floor, session.holder.encode()),
        script=_scripts.INIT,
    )


def _floor(answer: Answer) -> int | None:
    """Return the floor of a node that was initialised."""
    incarnation = parse(answer.found) if isinstance(answer.found, bytes) else None
    return None if incarnation is None else incarnation.floor


def _why_not(answer: Answer) -> str:
    if answer.found is None or _floor(answer) is not None:
        return answer.reason
    return "its incarnation record was written by another version: initialise it with that version"


# -- what forbids it ---------------------------------------------------------------------------------


def _refuse_another_quorums(session: Session) -> None:
    """Refuse when a node is known by another size: its clients would all be stopped (R12a)."""
    for node in session.nodes:
        if conflict := node.status.conflict:
            raise ConfigurationError(f"node {node.name}: {conflict}; nothing was changed: {_FORCE}")


async def _refuse_live_locks(session: Session) -> None:
    """Refuse when a lock is alive, on however few nodes, or when that cannot be seen.

    Keys without expiry count for nothing: no quarantine would outlast them.
    """
    found = await survey(session, session.options.prefix, (), LOOKED_AT)
    for lock in found.locks:
        left = [node.ttl for node in lock.nodes if node.ttl is not None]
        if left:
            msg = f"lock {printable((lock.name,))} is alive: nothing was changed; stop all clients first"
            raise LockTakenError(msg, names=(lock.name,), retry_after=max(left))
    # A lock may be alive on a majority of which no reached node has a key.
    size, reached = len(session.nodes), sum(node.status.state.reached for node in session.nodes)
    if reached < (quorum := majority(size)):
        msg = (
            f"it is not known whether a lock is alive: {reached} of {size} nodes can be reached, "
            f"{quorum} are needed; nothing was changed"
        )
        raise QuorumUnavailableError(msg, votes=votes_of(session, found))
    if unseen := _unseen(session, found):
        msg = f"it is not known whether a lock is alive: {'; '.join(unseen)}; nothing was changed"
        raise QuorumUnavailableError(msg)


def _unseen(session: Session, found: Survey) -> Sequence[str]:
    """Say what could not be looked at, but for nodes that cannot be reached: they are not changed, either."""
    silent = {entry.node: entry.reason for entry in found.silent}
    reached = [node for node in session.nodes if node.status.state.reached]
    unseen = [f"{node.name}: {silent[node.name]}" for node in reached if node.name in silent]
    remember = sum(node.status.state.votes for node in reached)
    # Every majority has one of these; where none remembers, nothing was ever locked, or all is lost.
    needed = len(session.nodes) - majority(len(session.nodes)) + 1
    if 0 < remember < needed:
        unseen.append(
            f"only {remember} of the nodes can be reached and still have their data, {needed} are needed"
        )
    if found.truncated:
        unseen.append(f"more keys begin with the prefix than the {LOOKED_AT} that are checked")
    return unseen
