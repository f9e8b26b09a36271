"""Trying on one node what locks of each kind do, under random names: what is forbidden, what fails."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ... import _scripts
from ..._core.command import ABOVE_FENCE, GRANTED, WRONG_TYPE, Answer, Command, Purpose, Reply, Silence
from ..._core.keyspace import TICKETS
from ..._core.quorum import Vote
from ..._core.rights import denied, unknown
from ..._core.seats import NO_SEAT
from ..._kinds import KINDS
from ..._kinds.kind import Kind
from ..._kinds.mutex import MUTEX
from ..._kinds.primitive import Primitive
from ..._lock.attempt import read_clocks
from ..._node.channels import listening
from ..._node.link import heartbeat
from ..._node.pipe import PUSH, without_request_id, words
from ..._round.round import Round, all_answered, keep
from ..._settings.specs import primitive_of
from ...errors import NodeVote
from ..look import ask, look_for, read_one
from ..survey import look_for_line
from .facts import RESP2, Lacking

if TYPE_CHECKING:
    from ..._lock.session import Session
    from ..._node.redis_node import Node


TRIAL_TTL: Final = 2.0
"""Seconds that the locks of a trial live, unless their release is refused."""

TRIAL_TTL_EXTENDED: Final = 5.0
"""Seconds that they are extended to: more, or the script would not have to change anything."""

TRIAL_FENCE: Final = 1
"""Below every counter: what is raised to it stays where it is."""

DISPENSABLE: Final = {
    "ping": ("+ping", "the refusal itself shows that the node is alive"),
    "send a script again": ("+eval", "after SCRIPT FLUSH it grants nothing until clients reconnect"),
    "type": ("+type", "errors cannot say what a key holds in place of a lock"),
}
"""Steps that all locks do without, each with the right that it needs, and what they do then."""


@final
class TrialStep(NamedTuple):
    """One thing that locks do."""

    what: str
    command: Command
    read: Callable[[Reply], Answer] = keep
    votes: bool = False  # whether a node without a vote cannot do it
    kind: Kind = MUTEX  # the kind whose locks cannot do without it


def question(verb: bytes, *args: bytes, keys: tuple[bytes, ...] = ()) -> Command:
    """Build a command whose answer may be anything: it is no reason to give up a connection of locks."""
    return Command(Purpose.OTHER, owner=b"", fits=lambda _: True, keys=keys, args=args, verb=verb)


def trial(session: Session) -> Iterator[TrialStep]:
    """Make the steps to try on one node, in their order."""
    key = session.options.key(_name(session))
    look = look_for(session.options.prefix, key)
    request_id = b"in full"
    in_full = Command(
        Purpose.OTHER,
        owner=b"",
        fits=lambda reply: look.fits(without_request_id(reply, request_id)),
        keys=(),
        args=(*words(look, in_full=True)[1:], request_id),
        verb=b"EVAL",
    )
    yield TrialStep("ping", heartbeat(key))
    yield TrialStep("type", question(b"TYPE", keys=(key,)))
    yield TrialStep("send a script again", in_full)
    yield from _trial_of(MUTEX, session, names=2)
    for kind in KINDS:
        yield from _trial_of(kind, session)


def _trial_of(kind: Kind, session: Session, names: int = 1) -> Iterator[TrialStep]:
    """Make the steps of a kind: acquire, keep others out, extend and release, for one owner and the next."""
    name, prefix = _name(session), session.options.prefix
    over = tuple([f"{name}:{number}" for number in range(names)])
    # The counters, not needed again, live as long as the keys.
    options = dataclasses.replace(session.options, fence_ttl=TRIAL_TTL_EXTENDED)
    lock, mutex = (primitive_of(each, over, options) for each in (kind, MUTEX))
    won = lock.at(0) if kind.permits else lock
    ends = read_clocks(session).owner_ends
    first, second, third = (next(session.owners) + ends for _ in range(3))
    fence = TRIAL_FENCE if options.fencing else 0
    seat = kind.seat(session.new_seat, session.new_name) if kind.seat else NO_SEAT
    seat = seat._replace(life=round(TRIAL_TTL * 1000))
    beside = lock.acquire(second, TRIAL_TTL, fence, seat=seat)
    shares = not kind.permits and not kind.conflicts(kind)

    needs_vote = partial(TrialStep, votes=True, kind=kind)
    yield needs_vote("acquire", lock.acquire(first, TRIAL_TTL, fence), lock.read_acquire)
    yield needs_vote("refuse a mutex", mutex.acquire(third, TRIAL_TTL, fence), partial(_refusal, mutex))
    if shares:
        yield needs_vote("acquire beside another", beside, lock.read_acquire)
    else:
        yield needs_vote("refuse another", beside, partial(_refusal, lock))
    if fence:
        yield needs_vote("raise", won.raise_(first, fence), partial(_raised, kind))
    yield needs_vote("extend", won.extend(first, TRIAL_TTL_EXTENDED, fence), kind.extend.read)
    # The rest needs no vote.  Without one it was not acquired, and the repair sets it.
    yield TrialStep("repair", won.repair(first, TRIAL_TTL_EXTENDED, fence), kind.repair.read, kind=kind)
    yield TrialStep("inspect", look_for(prefix, lock.keys[0]), read_one, kind=kind)
    if TICKETS in kind.beside:
        yield TrialStep("inspect the queue", look_for_line(prefix, lock.keys[0]), kind=kind)
    yield TrialStep("release", won.release(first, TRIAL_TTL_EXTENDED, fence), kind.release.read, kind=kind)
    yield needs_vote("acquire after another", beside, lock.read_acquire)
    released = won.release(second, TRIAL_TTL, fence, seat=seat)
    yield needs_vote("release after another", released, kind.release.read)
    if fence:
        yield TrialStep("delete the counters", question(b"DEL", keys=dict(lock.parts)["counter"]))


def _name(session: Session) -> str:
    return f"diagnosis:{session.random.getrandbits(128):032x}"


def _refusal(lock: Primitive, reply: Reply) -> Answer:
    """Read the answer to an acquire that must not be granted: a key of another type keeps it out (R19)."""
    answer = lock.read_acquire(reply)
    if answer.vote is Vote.GRANTED:
        return Answer(Vote.REFUSED, "it was granted")
    kept_out = answer.vote is Vote.REFUSED or answer.reason.startswith(WRONG_TYPE)
    return GRANTED if kept_out else answer


def _raised(kind: Kind, reply: Reply) -> Answer:
    """Read the answer to a raise: the counter is above it."""
    answer = kind.raise_.read(reply)
    return GRANTED if answer is ABOVE_FENCE else answer


@final
class Trial(NamedTuple):
    """Result of a trial."""

    failures: tuple[tuple[str, str], ...]  # the steps that failed, and why
    lacking: tuple[Lacking, ...]


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
    failures, of_kinds = [], defaultdict(list)
    lacking: list[Lacking] = []
    for step, round_ in rounds:
        await round_.wait(all_answered)
        (vote,) = round_.votes()
        if vote.vote is Vote.GRANTED:
            continue
        if step.kind.rights:
            of_kinds[step.kind].append((step.what, vote))
        elif _dispensable(step.what, vote):
            lacking.append(Lacking(step.what, vote.reason, *DISPENSABLE[step.what]))
        else:
            failures.append((step.what, vote))
    if not failures:  # else it follows from what is the matter with all locks
        for kind, failed in of_kinds.items():
            what, why = _telling(failed)[0]
            lacking.append(Lacking(kind.noun, f"{what}: {why}", kind.rights, "other locks do not need this"))
    return Trial(tuple(dict.fromkeys(_telling(failures))), tuple(lacking))


def _telling(failures: Sequence[tuple[str, NodeVote]]) -> Sequence[tuple[str, str]]:
    """Return those that tell something, with the reason: a refusal that follows from a silence does not."""
    silent = [(what, vote) for what, vote in failures if vote.vote is Vote.SILENT]
    return [(what, vote.reason or "refused") for what, vote in silent or failures]


def _dispensable(what: str, vote: NodeVote) -> bool:
    """Whether a node refuses a command as such that locks can do without."""
    if what not in DISPENSABLE:
        return False
    command = DISPENSABLE[what][0].removeprefix("+")
    named = re.search(rf"['`]{command}['`]", vote.reason, re.IGNORECASE)
    return named is not None and (denied(vote.reason) or unknown(vote.reason))


async def try_telling(session: Session, node: Node, timeout: float) -> tuple[bool, bool]:
    """Do what a release does for listeners; return whether publishing, and counting them, is refused."""
    channel = session.options.key(_name(session))
    commands = (question(b"PUBLISH", channel, b""), question(b"PUBSUB", b"NUMSUB", channel))
    replies = [await ask(session, node, command, timeout) for command in commands]
    mute, uncounted = (
        isinstance(reply, Silence) and (denied(reply.reason) or unknown(reply.reason)) for reply in replies
    )
    return mute, uncounted


async def try_listening(session: Session, node: Node, timeout: float) -> Silence | None:
    """Listen for a moment, as waiters for a lock do; return why that does not work.

    Whether it can be undone is asked first, so that nothing stays subscribed; how that is answered shows
    which protocol is spoken: by RESP2 a subscription would put an end to all other commands.
    """
    channel = session.options.key(_name(session))
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

    A command that it does not know is sent again for a lock, but not when the release behind it is queued.
    Whether this is allowed does not matter: where it must be, there is no connection without it.
    """
    for script in _scripts.ALL:
        reply = await ask(session, node, question(b"SCRIPT", b"LOAD", script.source), timeout)
        if isinstance(reply, Silence):
            return
