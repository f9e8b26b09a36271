"""Check a history: ``check(history, bound=10.0)`` returns what is wrong with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from math import inf
from operator import attrgetter
from typing import Final

from aioredlock_ng._lock.waiting import KEEPS_OUT
from tests.simulation import checks_claims
from tests.simulation.checks_effects import ownership
from tests.simulation.checks_words import Rule, Violation
from tests.simulation.history import Claim, History, Operation, Outcome, Update, Write
from tests.simulation.history_words import instant, named, plain, who
from tests.simulation.plan import DRIFT

__all__ = ["Rule", "Violation", "check"]

SETTLED: Final = 0.1
"""Seconds after which a call that asked first has its place in line, where nothing goes wrong."""


def check(history: History, *, rules: Collection[Rule] = frozenset(Rule), bound: float) -> list[Violation]:
    """Return what breaks one of `rules`, in order of time.

    `bound` is how many seconds an acquire may take when all faults are over.  While it is known that time
    is not kept (A1), two may hold a lock at once: leave out EXCLUSION, and PERMITS, SUCCESSION and
    LOST_UPDATE, which rest on it.
    """
    wanted = [rule for rule in Rule if rule in rules]
    found = [violation for rule in wanted if rule in _CHECKS for violation in _CHECKS[rule](history, bound)]
    of_claims = [checks_claims.CHECKS[rule] for rule in wanted if rule in checks_claims.CHECKS]
    if of_claims:
        for name, claims in checks_claims.by_name(history.claims).items():
            for rule_check in of_claims:
                found.extend(rule_check(name, claims))
    return sorted(found, key=attrgetter("at"))


def _permits(history: History, _bound: float) -> Iterator[Violation]:
    """Find claims beside which more hold a semaphore than any of them says, and claims on no slot that is."""
    holding: defaultdict[tuple[str, ...], list[Claim]] = defaultdict(list)
    for claim in sorted(history.claims, key=attrgetter("since")):
        if claim.slot is None or claim.since >= claim.until:
            continue
        if not 0 <= claim.slot < claim.permits:
            text = f"{who(claim)} was given slot {claim.slot} of {claim.permits} of {named(claim.names)}"
            yield Violation(Rule.PERMITS, claim.since, text, (claim,))
        held = holding[claim.names] = [one for one in holding[claim.names] if one.until > claim.since]
        held.append(claim)
        if len(held) > (most := max(one.permits for one in held)):
            text = (
                f"{len(held)} held {named(claim.names)} at {instant(claim.since)}, of which there are"
                f" {most}: {', '.join(map(who, held))}"
            )
            yield Violation(Rule.PERMITS, claim.since, text, tuple(held))


def _resource(history: History, _bound: float) -> Iterator[Violation]:
    """Find writes that were accepted after those of a client that asked later, and those refused for nothing.

    Fences are left out of it: that they are in order is what this would show the want of.
    """
    claims = {(claim.owner, claim.fence, not claim.alone): claim for claim in history.claims}
    # Of those whose writes were accepted; readers are not in each other's way, and go by writers alone.
    last_asked: dict[tuple[str, bool], Claim] = {}
    last_granted: dict[tuple[str, bool], Claim] = {}
    for write in sorted(history.writes, key=attrgetter("at")):
        claim = claims.get((write.owner, write.fence, write.reads))
        if claim is None:
            continue
        by = (write.name, write.reads)
        asked, granted = last_asked.get(by, claim), last_granted.get(by)
        if not write.accepted:
            if granted is None or granted.since < claim.asked:
                yield _resource_violation(
                    write, "refused", "the claims it had accepted had the lock before that asked"
                )
            continue
        if claim.since < asked.asked:
            yield _resource_violation(
                write, "accepted", f"{who(asked)} had written, and asked later, at {instant(asked.asked)}"
            )
        for readers in (False,) if write.reads else (False, True):
            by = (write.name, readers)
            last_asked[by] = max(last_asked.get(by, claim), claim, key=attrgetter("asked"))
            last_granted[by] = max(last_granted.get(by, claim), claim, key=attrgetter("since"))


def _resource_violation(write: Write, what: str, why: str) -> Violation:
    text = (
        f"the resource {named([write.name])} {what} fence {write.fence} from client {write.client}"
        f" at {instant(write.at)}, but {why}"
    )
    return Violation(Rule.RESOURCE, write.at, text)


def _lost_update(history: History, _bound: float) -> Iterator[Violation]:
    first: dict[tuple[str, int], Update] = {}
    for update in sorted(history.updates, key=attrgetter("at")):
        other = first.setdefault((update.name, update.wrote), update)
        if other is update:
            continue
        text = (
            f"the counter {named([update.name])} lost an update: client {update.client} wrote"
            f" {update.wrote} at {instant(update.at)}, as client {other.client} had at {instant(other.at)}"
        )
        yield Violation(Rule.LOST_UPDATE, update.at, text)


def _steady(history: History, _bound: float) -> Iterator[Violation]:
    for look in history.looks:
        if look.then != look.first:
            text = (
                f"the counter {named([look.name])} was written under a reader: client {look.client} read"
                f" {look.first}, and {look.then} at {instant(look.at)}"
            )
            yield Violation(Rule.STEADY, look.at, text)


def _local_order(history: History, _bound: float) -> Iterator[Violation]:
    """Find calls that were granted while an earlier one of the same process still waited for the same name.

    Calls for several names are left out: they queue for the later ones when they have the earlier ones.  So
    are readers behind readers, which share it; and what passes while a writer, of several names perhaps, has
    waited for so long, by its own clock, that it lets others in (R22).  Those that it lets in may overtake
    others, too, which exclude what is in.
    """
    queues: defaultdict[tuple[int, tuple[str, ...]], list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if operation.kind in ("acquire", "try") and len(operation.names) == 1:
            queues[operation.client, operation.names].append(operation)
    writers = [call for call in history.operations if call.mode == "write" and call.kind == "acquire"]
    for (client, (name,)), queue in queues.items():
        # Which of those came first that came at one moment is not known: they do not overtake each other.
        queue.sort(key=lambda call: (call.began, _end_of(call)))
        longest: dict[bool, Operation] = {}  # of all, and of those that share with none
        of_name = [call for call in writers if call.client == client and name in call.names]
        for call in queue:
            before, ended = longest.get(call.mode == "read", call), _end_of(call)
            if call.outcome is Outcome.OK and _end_of(before) > ended:
                patient = ended - KEEPS_OUT * (1 - 2 * DRIFT)
                if not any(writer.began <= patient and _end_of(writer) > ended for writer in of_name):
                    yield _local_order_violation(before, call)
            for alone in (False,) if call.mode == "read" else (False, True):
                longest[alone] = max(longest.get(alone, call), call, key=_end_of)


def _local_order_violation(earlier: Operation, later: Operation) -> Violation:
    text = (
        f"{who(later)} asked for {named(later.names)} at {instant(later.began)}"
        f" and got it at {instant(_end_of(later))},"
        f" but {who(earlier)} waited for it since {instant(earlier.began)}"
    )
    return Violation(Rule.LOCAL_ORDER, _end_of(later), text)


def _turns(history: History, _bound: float) -> Iterator[Violation]:
    """Find calls during which another process had the lock more than once since their place was known."""
    claims: defaultdict[tuple[str, ...], list[Claim]] = defaultdict(list)
    for claim in history.claims:
        claims[claim.names].append(claim)
    calls = [call for call in history.operations if call.mode == "fair" and call.kind in ("acquire", "try")]
    for call in calls:
        if call.outcome is not Outcome.OK:
            continue
        got, mine = _end_of(call), (call.client, call.names)
        before = [_end_of(other) for other in calls if (other.client, other.names) == mine]
        before += [claim.until for claim in claims[call.names] if claim.client == call.client]
        since = max([call.began, *(end for end in before if end < got)]) + SETTLED
        holds = Counter(claim.client for claim in claims[call.names] if since < claim.since < got)
        for other, number in holds.items():
            if number > 1:
                text = (
                    f"{who(call)} stood in line for {named(call.names)} from {instant(since)} to"
                    f" {instant(got)}, but client {other} had it {number} times"
                )
                yield Violation(Rule.TURNS, got, text)


def _end_of(operation: Operation) -> float:
    return inf if operation.ended is None else operation.ended


def _liveness(history: History, bound: float) -> Iterator[Violation]:
    healed = history.healed_at
    if healed is None:
        return
    for operation in history.operations:
        if operation.kind != "acquire" or (operation.ended is not None and operation.ended <= healed):
            continue
        start = max(operation.began, healed)
        ended = history.ended if operation.ended is None else operation.ended
        if operation.outcome is not Outcome.FAIL and ended <= start + bound:
            continue  # it succeeded in time, or it was not given the time
        text = (
            f"{who(operation)} asked for {named(operation.names)} at {instant(operation.began)};"
            f" all faults were over at {instant(healed)}, but {_end(operation)},"
            f" {instant(bound)} were allowed from {instant(start)} on"
        )
        yield Violation(Rule.LIVENESS, min(ended, start + bound), text)


def _end(operation: Operation) -> str:
    note = f" ({plain(operation.note)})" if operation.note else ""
    if operation.ended is None:
        return f"the acquire never ended{note}"
    word = {Outcome.OK: "succeeded only", Outcome.FAIL: "failed", Outcome.UNKNOWN: "was given up"}
    return f"the acquire {word[operation.outcome]} at {instant(operation.ended)}{note}"


def _leak(history: History, _bound: float) -> Iterator[Violation]:
    for leak in history.leaks:
        yield Violation(Rule.LEAK, leak.at, f"left at {instant(leak.at)}: {plain(leak.what)}")


def _complaint(history: History, _bound: float) -> Iterator[Violation]:
    for one in history.complaints:
        yield Violation(Rule.COMPLAINT, one.at, f"at {instant(one.at)} {plain(one.what)}")


_CHECKS: Final[dict[Rule, Callable[[History, float], Iterator[Violation]]]] = {
    Rule.OWNERSHIP: ownership,
    Rule.PERMITS: _permits,
    Rule.RESOURCE: _resource,
    Rule.LOST_UPDATE: _lost_update,
    Rule.STEADY: _steady,
    Rule.LOCAL_ORDER: _local_order,
    Rule.TURNS: _turns,
    Rule.LIVENESS: _liveness,
    Rule.LEAK: _leak,
    Rule.COMPLAINT: _complaint,
}
