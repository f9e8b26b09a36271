"""Gathering the facts for a diagnosis, through the connections and with the rights that locks use.

What they mean is decided in `_core.diagnosis`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

from . import _scripts
from ._admin import ask, look_for, read
from ._ask import Round, all_answered
from ._core.command import Answer, Command, Purpose, Reply, Silence
from ._core.diagnosis.facts import NO_COMMANDS, NOT_ASKED, ClockReading, Facts, NodeFacts
from ._core.quorum import Vote
from ._node import NodeState
from ._node.link import heartbeat
from ._specs import mutex_of

if TYPE_CHECKING:
    from ._kinds.mutex import Mutex
    from ._node import Node
    from ._runtime import Runtime

PATIENCE: Final = 1.0
"""Seconds an answer is waited for, or a `node_timeout` where that is longer: a slow one is a finding, too."""

SAMPLES: Final = 5
"""Times that a node's clock is read: the quickest answer tells the time best."""

CONFIGURATION: Final = (b"appendfsync", b"bind", b"maxclients", b"protected-mode")
"""What is read of a node's configuration; what INFO tells as well needs no further right."""

TRIAL_TTL: Final = 2.0
"""Seconds that the locks of a trial live, unless their release is refused."""

TRIAL_TTL_EXTENDED: Final = 5.0
"""Seconds that they are extended to: more, or the script would not have to change anything."""

TRIAL_FENCE: Final = 1
"""Below every counter: what is raised to it stays where it is."""

PORTS: Final = 65536
"""Port numbers: what is greater, behind a name, is the identity of an object."""


async def gather(runtime: Runtime) -> Facts:
    """Ask all nodes at the same time."""
    nodes = await asyncio.gather(*(_gather(runtime, i) for i in range(len(runtime.nodes))))
    options = runtime.options
    return Facts(
        nodes=tuple(nodes),
        prefix=options.prefix,
        node_timeout=runtime.node_timeout,
        fencing=options.fencing,
        quarantine=options.restart_quarantine,
    )


async def _gather(runtime: Runtime, number: int) -> NodeFacts:
    node, distrusted = runtime.nodes[number], not runtime.clocks.trusted(number)
    standing = node.standing
    if standing.state not in (NodeState.UP, NodeState.QUARANTINED):
        reason = standing.reason or str(standing.state)
        return NodeFacts(name=node.name, host=_host(node), down=reason)
    timeout = max(PATIENCE, runtime.node_timeout)
    # Little at a time: of a node that is a client every call takes a connection, and locks need some, too.
    round_trips, clock = await _read_clock(runtime, node, timeout)
    info, config, default_user = await asyncio.gather(
        _ask(node, timeout, _is_text, b"INFO"),
        _configuration(node, timeout),
        _ask(node, timeout, _is_map, b"ACL", b"GETUSER", b"default"),
    )
    sentinel = await _sentinel(runtime, node, timeout)
    voting = standing.state is NodeState.UP
    failures = await _try_locking(runtime, node, timeout, voting=voting)
    # Why it has none may be something that the other checks do not see.
    if not (voting or distrusted or standing.votes_in is not None or standing.conflict):
        failures = (("vote", standing.reason), *failures)
    facts = info if isinstance(info, Silence) else _info(info)
    return NodeFacts(
        name=node.name,
        host=_host(node),
        run_id=standing.run_id or (None if isinstance(facts, Silence) else facts.get("run_id")),
        round_trip=statistics.median(round_trips) if round_trips else standing.round_trip,
        info=facts,
        config=config,
        default_user=default_user if isinstance(default_user, Silence) else _flags(default_user),
        clock=clock,
        distrusted=distrusted,
        sentinel=sentinel,
        votes_in=standing.votes_in,
        without_vote=not voting,
        failures=failures,
    )


def _host(node: Node) -> str | None:
    """Return the host of a node that has a network address."""
    address: tuple[object, ...] = getattr(node, "address", ())
    match address:
        case (str(host), int(port)) if port < PORTS:
            return host
    return None


# -- questions ---------------------------------------------------------------------------------------


async def _ask(
    node: Node, timeout: float, fits: Callable[[object], bool], verb: bytes, *args: bytes
) -> Reply:
    """Ask something that servers of other make may answer in their own way.

    Such an answer is silence here; it is no reason to give up a connection that locks use.
    """
    command = Command(Purpose.OTHER, owner=b"", fits=lambda _: True, keys=(), args=args, verb=verb)
    reply = await ask(node, command, timeout)
    if isinstance(reply, Silence) or fits(reply):
        return reply
    return Silence(f"an answer of type {type(reply).__name__} makes no sense")


def _is_text(reply: object) -> bool:
    return isinstance(reply, bytes)


def _is_map(reply: object) -> bool:
    return isinstance(reply, list) and len(reply) % 2 == 0


def _is_time(reply: object) -> bool:
    pair = isinstance(reply, list) and len(reply) == 2  # noqa: PLR2004
    return pair and all(isinstance(part, bytes) and part.isdigit() for part in cast("list[object]", reply))


def _text(words: object) -> str:
    return words.decode(errors="replace") if isinstance(words, bytes) else ""


def _info(reply: Reply) -> Mapping[str, str]:
    """Read an answer to INFO: ``name:value`` lines under ``# headings``."""
    lines = [line.partition(":") for line in _text(reply).splitlines()]
    return {name: value for name, separator, value in lines if separator}


def _flags(reply: Reply) -> frozenset[str]:
    """Read the flags in an answer to ACL GETUSER; the hashes of passwords stay where they are."""
    words = cast("list[object]", reply)
    found = dict(zip(map(_text, words[::2]), words[1::2], strict=True))
    flags, commands = found.get("flags"), _text(found.get("commands"))
    own = {NO_COMMANDS} if commands == "-@all" else set()
    return frozenset(map(_text, flags)) | own if isinstance(flags, list) else frozenset()


async def _configuration(node: Node, timeout: float) -> Mapping[str, str] | Silence:
    found: dict[str, str] = {}
    for name in CONFIGURATION:  # only newer servers take several at once
        reply = await _ask(node, timeout, _is_map, b"CONFIG", b"GET", name)
        if isinstance(reply, Silence):
            return reply
        words = [*map(_text, cast("list[object]", reply))]
        found |= zip(words[::2], words[1::2], strict=True)
    return found


async def _sentinel(runtime: Runtime, node: Node, timeout: float) -> bytes | Silence | None:
    key = runtime.options.sentinel
    if key is None:
        return NOT_ASKED
    reply = await _ask(node, timeout, lambda reply: reply is None or _is_text(reply), b"GET", key)
    return cast("bytes | Silence | None", reply)


async def _read_clock(
    runtime: Runtime, node: Node, timeout: float
) -> tuple[Sequence[float], ClockReading | Silence]:
    """Read a node's clock several times: seconds there and back, and the best reading."""
    round_trips: list[float] = []
    best: ClockReading | None = None
    for _ in range(SAMPLES):
        asked_at = runtime.clock.now()
        reply = await _ask(node, timeout, _is_time, b"TIME")
        took = runtime.clock.now() - asked_at
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


# -- a trial -----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One thing that locks do."""

    what: str
    command: Command
    read: Callable[[Reply], Answer] = read
    votes: bool = False
    """Whether a node without a vote cannot do it."""


async def _try_locking(
    runtime: Runtime, node: Node, timeout: float, *, voting: bool
) -> tuple[tuple[str, str], ...]:
    """Do on one node what locks do, under random names; return what did not work, and why.

    Everything is queued in one turn of the loop, so that nothing between acquire and release can fail
    to release; what a release leaves ends with its ttl.  A node that is not `voting` is not asked to.
    """
    await _load_scripts(node, timeout)
    rounds = []
    for step in _trial(runtime):
        if step.votes and not voting:
            continue
        round_ = Round((node,), step.read)
        round_.ask(step.command, timeout)
        rounds.append((step.what, round_))
    failures = []
    for what, round_ in rounds:
        await round_.wait(all_answered)
        (vote,) = round_.votes()
        if vote.vote is not Vote.GRANTED:
            failures.append((what, vote))
    silent = [(what, vote) for what, vote in failures if vote.vote is Vote.SILENT]
    # A refusal that follows from a silence tells nothing.
    return tuple((what, vote.reason or "refused") for what, vote in silent or failures)


async def _load_scripts(node: Node, timeout: float) -> None:
    """Let the server know the scripts again, if it has forgotten them.

    A command that it does not know is sent anew for a lock, but not when the release behind it is queued.
    Whether this is allowed does not matter: where it must be, there is no connection without it.
    """
    for script in _scripts.ALL:
        loaded = await _ask(node, timeout, _is_text, b"SCRIPT", b"LOAD", script.source)
        if isinstance(loaded, Silence):
            return


def _trial(runtime: Runtime) -> Sequence[_Step]:
    """Make what is to be tried on one node, in this order."""
    names = tuple(f"diagnosis:{runtime.random.getrandbits(128):032x}:{part}" for part in range(3))
    one, two = _mutex(runtime, names[:1]), _mutex(runtime, names[1:])
    mine, other = runtime.new_owner(), runtime.new_owner()
    fence = TRIAL_FENCE if runtime.options.fencing else 0
    look = look_for(two.keys[1])
    in_full = Command(
        Purpose.OTHER, owner=b"", fits=look.fits, keys=(), args=look.words_in_full[1:], verb=b"EVAL"
    )
    steps = [
        _Step(what="acquire", command=one.acquire(mine, TRIAL_TTL), read=one.read_acquire, votes=True),
        _Step(
            what="acquire two at once",
            command=two.acquire(other, TRIAL_TTL),
            read=two.read_acquire,
            votes=True,
        ),
        _Step(
            what="extend",
            command=two.extend(other, TRIAL_TTL_EXTENDED, fence),
            read=two.read_extend,
            votes=True,
        ),
        _Step(
            what="give back what a node lost",
            command=two.top_up(other, TRIAL_TTL_EXTENDED, fence),
            read=two.read_acquire,
        ),
        _Step(what="ping", command=heartbeat(names[0].encode())),
        _Step(what="look", command=look),
        _Step(what="send a script anew", command=in_full),
        _Step(
            what="release",
            command=one.release(mine, TRIAL_TTL, fence),
            read=one.read_release,
            votes=True,  # without one there is nothing to release
        ),
        _Step(
            what="release two at once",
            command=two.release(other, TRIAL_TTL_EXTENDED, fence),
            read=two.read_release,
        ),
    ]
    if fence:
        steps.insert(2, _Step(what="raise", command=two.raise_(other, fence), votes=True))
        steps += [_forget(one, mine, runtime), _forget(two, other, runtime)]
    return steps


def _mutex(runtime: Runtime, names: tuple[str, ...]) -> Mutex:
    """Make the primitive that locks use; its counters, which nobody needs again, live as long as its keys."""
    return mutex_of(names, dataclasses.replace(runtime.options, fence_ttl=TRIAL_TTL_EXTENDED))


def _forget(mutex: Mutex, owner: bytes, runtime: Runtime) -> _Step:
    """Delete the counters, behind the release of their owner."""
    counters = tuple(map(runtime.options.counter, mutex.keys))
    command = Command(
        Purpose.OTHER, owner=owner, fits=lambda reply: isinstance(reply, int), keys=counters, verb=b"DEL"
    )
    return _Step(what="delete the counters", command=command)
