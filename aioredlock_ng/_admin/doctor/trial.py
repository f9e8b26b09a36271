"""Trying on one node what locks of each kind do, under random names: what is forbidden, what fails."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ... import _scripts
from ..._core.command import GRANTED, Answer, Command, Purpose, Reply, Silence, milliseconds
from ..._core.quorum import Vote
from ..._core.rights import denied, unknown
from ..._kinds import fair
from ..._kinds.kind import Kind
from ..._kinds.mutex import MUTEX
from ..._kinds.primitive import Primitive
from ..._kinds.read_write import READ, WRITE
from ..._kinds.semaphore import SEMAPHORE
from ..._node.channels import listening
from ..._node.link import heartbeat
from ..._node.pipe import PUSH, without_request_id, words
from ..._round.round import Round, all_answered, keep
from ..._settings.specs import primitive_of
from ...errors import NodeVote
from ..look import ask, look_for, read_one
from ..survey import look_for_line
from .facts import DISPENSABLE, FAIR, IN_FULL, PING, READ_WRITE, RESP2, SEMAPHORES, TYPE

if TYPE_CHECKING:
    from ..._node import Node
    from ..._session.session import Session


TRIAL_TTL: Final = 2.0
"""Seconds that the locks of a trial live, unless their release is refused."""

TRIAL_TTL_EXTENDED: Final = 5.0
"""Seconds that they are extended to: more, or the script would not have to change anything."""

TRIAL_FENCE: Final = 1
"""Below every counter: what is raised to it stays where it is."""


@final
class Step(NamedTuple):
    """One thing that locks do."""

    what: str
    command: Command
    read: Callable[[Reply], Answer] = keep
    votes: bool = False
    """Whether a node without a vote cannot do it."""
    part: str = ""
    """What of `DISPENSABLE` it is a part of."""


def question(verb: bytes, *args: bytes, keys: tuple[bytes, ...] = ()) -> Command:
    """Build a command whose answer may be anything: it is no reason to give up a connection of locks."""
    return Command(Purpose.OTHER, owner=b"", fits=lambda _: True, keys=keys, args=args, verb=verb)


def trial(session: Session) -> Sequence[Step]:
    """Make what is to be tried on one node, in this order."""
    names = tuple(f"diagnosis:{session.random.getrandbits(128):032x}:{part}" for part in range(3))
    one, two = _over(MUTEX, session, names[:1]), _over(MUTEX, session, names[1:])
    ends = session.read_clocks().owner_ends
    mine, other = session.owners.new() + ends, session.owners.new() + ends
    fence = TRIAL_FENCE if session.options.fencing else 0
    look = look_for(session.options.prefix, two.keys[1])
    request_id = b"in full"
    in_full = Command(
        Purpose.OTHER,
        owner=b"",
        fits=lambda reply: look.fits(without_request_id(reply, request_id)),
        keys=(),
        args=(*words(look, in_full=True)[1:], request_id),
        verb=b"EVAL",
    )
    steps = [
        Step("acquire", one.acquire(mine, TRIAL_TTL, fence), one.read_acquire, votes=True),
        Step("acquire two at once", two.acquire(other, TRIAL_TTL, fence), two.read_acquire, votes=True),
        Step("extend", two.extend(other, TRIAL_TTL_EXTENDED, fence), two.kind.extend.read, votes=True),
        Step("repair", two.repair(other, TRIAL_TTL_EXTENDED, fence), two.kind.repair.read),
        Step(PING, heartbeat(names[0].encode())),
        Step(TYPE, question(b"TYPE", keys=two.keys[:1])),
        Step("look", look, read_one),
        Step(IN_FULL, in_full),
        # Without a vote this one was not acquired, and there is nothing to release.
        Step("release", one.release(mine, TRIAL_TTL, fence), one.kind.release.read, votes=True),
        Step("release two at once", two.release(other, TRIAL_TTL_EXTENDED, fence), two.kind.release.read),
    ]
    if fence:
        steps.insert(2, Step("raise", two.raise_(other, fence), votes=True))
        steps += [_forget(one, mine), _forget(two, other)]
    return [
        *steps,
        *_trial_of_read_write(session, names[0], mine, fence),
        *_trial_of_permits(session, names[1], mine, fence),
        *_trial_of_line(session, names[2], mine, fence),
    ]


def _trial_of_read_write(session: Session, name: str, owner: bytes, fence: int) -> Iterator[Step]:
    """Make what read-write locks do, under a name that is free by then: readers together, a writer alone."""
    part, reads, writes = READ_WRITE, _over(READ, session, (name,)), _over(WRITE, session, (name,))
    beside, writer = owner + b"2", owner + b"3"

    voted = functools.partial(_voted, part, owner)
    yield voted("read lock", reads.acquire(owner, TRIAL_TTL, fence), reads.read_acquire)
    yield voted("read lock beside another", reads.acquire(beside, TRIAL_TTL, fence), reads.read_acquire)
    yield voted(
        "refuse a writer beside readers", writes.acquire(writer, TRIAL_TTL, fence), _refusal_by(writes)
    )
    if fence:
        yield voted("raise the fence of a read lock", reads.raise_(owner, fence), reads.kind.raise_.read)
    yield voted("extend a read lock", reads.extend(beside, TRIAL_TTL, fence), reads.kind.extend.read)
    # What needs no vote adds the reader, too: without one it was not acquired.
    added = reads.repair(owner, TRIAL_TTL_EXTENDED, fence)
    yield Step("repair a read lock", added, reads.kind.repair.read, part=part)
    yield Step("inspect a read lock", look_for(session.options.prefix, reads.keys[0]), read_one, part=part)
    yield voted("release one of two", reads.release(beside, TRIAL_TTL, fence), reads.kind.release.read)
    released = reads.release(owner, TRIAL_TTL_EXTENDED, fence)
    yield Step("release a read lock", released, reads.kind.release.read, part=part)
    # The name is free again; a writer that was let in too early goes now, too.
    yield voted("write lock", writes.acquire(writer, TRIAL_TTL, fence), writes.read_acquire)
    yield voted("release a write lock", writes.release(writer, TRIAL_TTL, fence), writes.kind.release.read)
    if fence:
        yield _forget(reads, owner)


def _trial_of_permits(session: Session, name: str, owner: bytes, fence: int) -> Iterator[Step]:
    """Make what needs rights that only semaphores need, under another name: readers may still be there."""
    part, lock = SEMAPHORES, _over(SEMAPHORE, session, (name,))
    yield Step("permit", lock.acquire(owner, TRIAL_TTL, fence), lock.read_acquire, votes=True, part=part)
    added = lock.at(0).repair(owner, TRIAL_TTL_EXTENDED, fence)
    yield Step("repair a permit", added, lock.kind.repair.read, part=part)
    yield Step("inspect a permit", look_for(session.options.prefix, lock.keys[0]), read_one, part=part)
    released = lock.release(owner, TRIAL_TTL_EXTENDED, fence)
    yield Step("release a permit", released, lock.kind.release.read, part=part)
    if fence:
        yield _forget(lock, owner)


def _trial_of_line(session: Session, name: str, owner: bytes, fence: int) -> Iterator[Step]:
    """Make what fair locks do, under a third name: a second call stands in line behind the first."""
    lock, beside = _over(fair.FAIR, session, (name,)), owner + b"2"
    seat = session.new_seat()._replace(life=milliseconds(TRIAL_TTL))
    voted = functools.partial(_voted, FAIR, owner)
    second = lock.acquire(beside, TRIAL_TTL, fence, seat=seat)
    yield voted("fair lock", lock.acquire(owner, TRIAL_TTL, fence), lock.read_acquire)
    yield voted("enter the queue", second, _refusal_by(lock))
    yield voted("inspect the queue", look_for_line(session.options.prefix, lock.keys[0]), keep)
    yield voted(
        "hand a fair lock to the next waiter", lock.release(owner, TRIAL_TTL, fence), lock.kind.release.read
    )
    yield voted("fair lock of the next waiter", second, lock.read_acquire)
    yield voted(
        "release a fair lock", lock.release(beside, TRIAL_TTL, fence, seat=seat), lock.kind.release.read
    )
    if fence:
        yield _forget(lock, owner)


def _voted(part: str, owner: bytes, what: str, command: Command, read: Callable[[Reply], Answer]) -> Step:
    """Make a step that needs a vote, of a part of which all steps come in their order.

    A user's client makes the calls of one owner one after the other.
    """
    return Step(what, dataclasses.replace(command, owner=owner), read, votes=True, part=part)


def _refusal_by(lock: Primitive) -> Callable[[Reply], Answer]:
    """Return what reads the answer to one that must not be let in."""
    return lambda reply: _refusal(lock.read_acquire(reply))


def _refusal(answer: Answer) -> Answer:
    if answer.vote is Vote.SILENT:
        return answer
    return GRANTED if answer.vote is Vote.REFUSED else Answer(Vote.REFUSED, "it was granted")


def _over(kind: Kind, session: Session, names: tuple[str, ...]) -> Primitive:
    """Make the primitive that locks use; its counters, not needed again, live as long as its keys."""
    return primitive_of(kind, names, dataclasses.replace(session.options, fence_ttl=TRIAL_TTL_EXTENDED))


def _forget(lock: Primitive, owner: bytes) -> Step:
    """Delete the counters, behind the release of their owner."""
    counters = dict(lock.parts)["counter"]
    command = Command(
        Purpose.OTHER, owner=owner, fits=lambda reply: isinstance(reply, int), keys=counters, verb=b"DEL"
    )
    return Step("delete the counters", command)


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
        elif _dispensable(step.what, vote):
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


def _dispensable(what: str, vote: NodeVote) -> bool:
    """Whether a node refuses a command as such that locks can do without."""
    if what not in DISPENSABLE:
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

    A command that it does not know is sent again for a lock, but not when the release behind it is queued.
    Whether this is allowed does not matter: where it must be, there is no connection without it.
    """
    for script in _scripts.ALL:
        reply = await ask(session, node, question(b"SCRIPT", b"LOAD", script.source), timeout)
        if isinstance(reply, Silence):
            return
