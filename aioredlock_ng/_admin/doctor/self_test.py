"""Trying on one node what locks do, to find out which of it is not allowed or does not work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, final

from ... import _scripts
from ..._core.command import Silence
from ..._core.quorum import Vote
from ..._core.rights import denied, unknown
from ..._node.channels import listening
from ..._node.client_node import ClientNode
from ..._node.pipe import PUSH
from ..._round.round import Round, all_answered
from ...errors import NodeVote
from ..look import ask
from .dispensable import DISPENSABLE, IN_FULL
from .facts import BY_CLIENT, RESP2
from .trial import Step, question, trial

if TYPE_CHECKING:
    from ..._node import Node
    from ..._session.session import Session


@final
class Trial(NamedTuple):
    """What came of it."""

    failures: tuple[tuple[str, str], ...]
    """What did not work, and why."""
    lacking: tuple[tuple[str, str], ...]
    """What of that locks can do without."""


async def try_locking(session: Session, node: Node, timeout: float, *, voting: bool) -> Trial:
    """Do on one node what locks do, under random names.

    Everything is queued in one turn of the loop, so that nothing between acquire and release can fail
    to release; what a release leaves ends with its ttl.  A node that is not `voting` is not asked to.
    """
    await _load_scripts(session, node, timeout)
    rounds = []
    for step in trial(session):
        if step.votes and not voting:
            continue
        round_ = Round(session.outbox.for_node(node), step.read)
        round_.ask(step.command, timeout)
        rounds.append((step, round_))
    failures, parts = [], []
    lacking: dict[str, str] = {}
    for step, round_ in rounds:
        await round_.wait(all_answered)
        (vote,) = round_.votes()
        if vote.vote is Vote.GRANTED:
            continue
        if step.part:
            parts.append((step, vote))
        elif _dispensable(node, step.what, vote):
            lacking[step.what] = vote.reason
        else:
            failures.append((step, vote))
    if not failures:  # else it follows from what is the matter with all locks
        lacking |= {step.part: f"{step.what}: {why}" for step, why in reversed(_told(parts))}
    return Trial(tuple((step.what, why) for step, why in _told(failures)), tuple(lacking.items()))


def _told(failures: Sequence[tuple[Step, NodeVote]]) -> Sequence[tuple[Step, str]]:
    """Return those that tell something, with the reason: a refusal that follows from a silence does not."""
    silent = [(step, vote) for step, vote in failures if vote.vote is Vote.SILENT]
    return [(step, vote.reason or "refused") for step, vote in silent or failures]


def _dispensable(node: Node, what: str, vote: NodeVote) -> bool:
    """Whether a node refuses a command as such that locks can do without.

    A user's client cannot do without EVAL: no connection of its has loaded the scripts.
    """
    if what not in DISPENSABLE or (isinstance(node, ClientNode) and what == IN_FULL):
        return False
    command = DISPENSABLE[what].right.removeprefix("+")
    named = re.search(rf"['`]{command}['`]", vote.reason, re.IGNORECASE)
    return named is not None and (denied(vote.reason) or unknown(vote.reason))


async def try_telling(session: Session, node: Node, timeout: float) -> tuple[bool, bool]:
    """Do what a release does for listeners; return whether publishing, and counting them, is refused."""
    channel = _channel(session)
    commands = (question(b"PUBLISH", channel, b""), question(b"PUBSUB", b"NUMSUB", channel))
    replies = [await ask(session, node, command, timeout) for command in commands]
    mute, uncounted = (
        isinstance(reply, Silence) and (denied(reply.reason) or unknown(reply.reason)) for reply in replies
    )
    return mute, uncounted


def _channel(session: Session) -> bytes:
    return session.options.prefix + b"diagnosis:%032x" % session.random.getrandbits(128)


async def try_listening(session: Session, node: Node, timeout: float) -> Silence | None:
    """Listen for a moment, as waiters for a lock do; return why that does not work.

    Whether it can be undone is asked first, so that nothing stays subscribed; how that is answered shows
    which protocol is spoken: by RESP2 a subscription would put an end to all other commands.
    """
    if isinstance(node, ClientNode):
        return BY_CLIENT
    channel = _channel(session)
    undone = await ask(session, node, question(b"UNSUBSCRIBE", keys=(channel,)), timeout)
    if isinstance(undone, Silence):
        return undone
    if type(undone) is not PUSH:
        return RESP2
    # Queued in one turn of the loop, as a trial is.
    heard, _ = await asyncio.gather(
        *(ask(session, node, listening(verb, channel), timeout) for verb in (b"SUBSCRIBE", b"UNSUBSCRIBE"))
    )
    return heard if isinstance(heard, Silence) else None


async def _load_scripts(session: Session, node: Node, timeout: float) -> None:
    """Let the server know the scripts again, if it has forgotten them.

    A command that it does not know is sent anew for a lock, but not when the release behind it is queued.
    Whether this is allowed does not matter: where it must be, there is no connection without it.
    """
    for script in _scripts.ALL:
        reply = await ask(session, node, question(b"SCRIPT", b"LOAD", script.source), timeout)
        if isinstance(reply, Silence):
            return
