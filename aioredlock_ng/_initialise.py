"""Stating that no lock can be alive: what ends the first wait of fresh nodes (R12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, final

from . import _scripts
from ._admin import read
from ._ask import Round, all_answered
from ._core.command import Answer, Command, Purpose, milliseconds
from ._core.fencing import at, floor_at
from ._survey import survey
from .errors import ConfigurationError, LockTakenError, printable

if TYPE_CHECKING:
    from ._runtime import Runtime

SPREAD_MS = 1000
"""How far beyond the nodes' own floors the one floor of all of them is: they are told one after the other."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInitialisation:
    """One node's part in an initialisation."""

    node: str
    done: bool
    reason: str = ""
    """Why it is not done."""


async def initialise(runtime: Runtime, *, force: bool) -> tuple[NodeInitialisation, ...]:
    """Let every node that answers vote at once, all with one floor, unless a lock is found."""
    options = runtime.options
    if options.sentinel is None:
        raise ConfigurationError("fencing=False and no restart_quarantine: there is nothing to initialise")
    if not force:
        await _refuse_live_locks(runtime)
    clocks = await _ask_all(
        runtime, Command(Purpose.OTHER, owner=b"", fits=_fits_time, keys=(), verb=b"TIME")
    )
    floor = max(map(_floor, clocks)) + at(SPREAD_MS)
    quarantine_ms = milliseconds(options.restart_quarantine) if options.restart_quarantine else 0
    command = Command(
        Purpose.OTHER,
        owner=b"",
        fits=lambda reply: isinstance(reply, bytes),
        keys=(options.sentinel,),
        args=(b"%d" % len(runtime.nodes), b"%d" % quarantine_ms, b"%d" % floor),
        script=_scripts.INIT,
    )
    answers = await _ask_all(runtime, command)
    for node in runtime.nodes:
        node.greet()
    return tuple(
        NodeInitialisation(node=node.name, done=answer.found is not None, reason=answer.reason)
        for node, answer in zip(runtime.nodes, answers, strict=True)
    )


async def _refuse_live_locks(runtime: Runtime) -> None:
    found = await survey(runtime, runtime.options.prefix, (), 1)
    for lock in found.locks:
        msg = f"lock {printable((lock.name,))} is alive: nothing was changed; stop all clients first"
        raise LockTakenError(msg, names=(lock.name,))


async def _ask_all(runtime: Runtime, command: Command) -> list[Answer]:
    round_ = Round(runtime.nodes, read)
    round_.ask(command, runtime.node_timeout)
    await round_.wait(all_answered)
    return [answer for answer in round_.answers if answer is not None]


def _fits_time(reply: object) -> bool:
    return isinstance(reply, list) and all(isinstance(part, bytes) and part.isdigit() for part in reply)


def _floor(clock: Answer) -> int:
    if not isinstance(clock.found, list):
        return 0
    seconds, microseconds = map(int, cast("list[bytes]", clock.found))
    return floor_at(seconds * 1_000_000 + microseconds)
