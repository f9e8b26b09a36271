"""One client's knowledge of its quorum, from all its nodes together, and what it may do there (R12, R12a).

**Look first, write after.**  A client greets its nodes read-only until a majority of them has answered and
none belongs to a quorum of another size.  Only then does it write: a record where there is none, with the
claim of the nodes that agree with it, so that all of them were claimed at one moment.  A client that is
refused has written nothing.

**The older quorum takes a node back.**  A node that names another size is another quorum's.  Where Q nodes
agree with the client, and their claim outranks that of the node, the node was used by a stray client after
it had lost its memory: the client takes it back, and the node waits for its quarantine.  In any other case
the client is the stray one, or an operator has decided: `in_conflict`.  It then gets no vote, and its leases
end.  What a node has said holds until it says otherwise: one of another quorum that goes out of reach does
not let the client go on with the others.

**One floor.**  Nodes that forget at once, without a quarantine, would choose floors of their own, and could
not agree on a fence for 2 s, until a raise to a floor that is `FLOOR_AHEAD_MS` ahead is not more than
`RAISE_AHEAD_MS` ahead any more.  So they are lifted to the greatest of their floors by another greeting, each
as far as its own clock allows, which is at once where clocks agree.  That keeps the proof in `fencing`: a
floor only rises, and never beyond what the node would choose itself at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from .fencing import FLOOR_AHEAD_MS, RAISE_AHEAD_MS, SHIFT
from .members import NEW, USED, WAITS, Member, Membership, late, strangers
from .quarantine import (
    BY_INIT,
    BY_USE,
    TAKING_BACK_MS,
    UNKNOWN_IDENTITY,
    Claim,
    Incarnation,
    parse,
    parse_any,
    wait_ms,
)
from .quorum import majority

CATCHING_UP_MS: Final = FLOOR_AHEAD_MS - RAISE_AHEAD_MS
"""From so long a quarantine on, nodes can agree by the time that they vote."""

HEARTBEAT: Final = 0.5
"""Seconds between checks of a connection, which greet the node, or a `node_timeout` where that is longer.  A
node that answered nothing since the last check, although something was asked, is SUSPECT."""

SETTLES: Final = 12
"""Heartbeats after which all clients have noticed that a server follows another one in its place."""

STARTS: Final = 24
"""Heartbeats for which a client starts, after its first vote; then its list is refused no more (R12c)."""

LATE: Final = 2
"""Heartbeats by which a server's last vote may be later than the client's report of it: one until it
greets the server again, and one until it tells that."""

MAX_SERVERS: Final = 16
"""Servers for each place of a list that are remembered, and that others tell of: restarts make new ones."""

SEVERAL_SERVERS: Final = (
    "its name leads to different servers on successive connections; they do not know each other's locks, "
    "so two clients can hold the same lock (A4)"
)

ONE_SERVER_EACH: Final = (
    "give each node the address of one server (in Kubernetes that of its pod, not of the service), "
    "without a load balancer in front of several servers"
)
"""The advice on it."""


@final
@dataclass(slots=True)
class _NodeView:
    """One node, as it last answered."""

    incarnation: Incarnation | None
    written: bool  # whether it is of our format, so that it can be compared and replaced
    asked_at: float
    heard_at: float
    time_ms: int
    remembers_ms: int = 0  # for how long a node without a record is known to have forgotten nothing (R12b)
    identity: bytes = b""  # of its server
    master: bool = True  # whether it is no replica
    there_since: float = 0.0  # since when, on the client's clock, the server has been there at least
    emptied_at: float | None = None
    """Since when, on the client's clock, a node that was another quorum's has no record any more."""
    reached: bool = True

    @property
    def claim(self) -> Claim | None:
        """The claim of its incarnation record, if it can be read."""
        return self.incarnation.claim if self.incarnation is not None and self.written else None


@final
class QuorumView:
    """The quorum as one client sees it: may the client write, whose the nodes are, how long a quarantine is.

    `key` is where the record lives.  The quarantine only grows: another client's longer one wins, since
    its locks may live longer.  Any object that stands for a node tells it apart from the others.
    """

    def __init__(
        self,
        key: bytes,
        size: int,
        quarantine_ms: int,
        *,
        prefix: bytes = b"",
        label: bytes = b"",
        read_only: bool = False,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self.key = key
        self.size = size
        self.prefix = prefix
        self.own_quarantine_ms = quarantine_ms
        self.quarantine_ms = quarantine_ms
        self.read_only = read_only
        """Whether it takes no locks, so far: then it writes no records, and may read from any quorum."""
        self.starting = True
        """Whether nodes that have not answered yet may do so any moment."""
        self.label = label
        """Of the client, for messages of others."""
        self._views: dict[object, _NodeView] = {}
        self._claim: Claim | None = None
        # At the first use: for how long all nodes remember, for each that has got no record since.
        self._dated_back_ms: dict[object, int] = {}
        # The servers that are, or were, behind the list, the last one that answered last.
        self._listed: dict[bytes, None] = {}
        self._heartbeat = heartbeat
        self._now = 0.0  # when a node was last asked, heard or lost
        self._began = math.inf  # when this client used servers first
        # The servers that clients, and this one, have reported, in each state.
        self._heard: dict[tuple[bytes, bytes], Member] = {}
        self._initialised_ms = 0  # the latest `init` of a node, in Unix milliseconds by its clock
        # When that was, by this client's clock: no lock of any list was alive then.
        self._initialised_at = -math.inf
        self.members = Membership()
        """Which servers of the list may not vote, since others use another one in their place (R12c)."""
        self.in_conflict = False
        """Whether a node is another quorum's, and stays so; or clients' lists disagree."""
        self.may_write = False
        """Whether enough nodes were looked at, and none is another quorum's, to write incarnation records."""

    def take_part(self) -> None:
        """Use the nodes for locks from now on."""
        self.read_only = False
        self._reassess()

    def adopt(self, quarantine_ms: int) -> bool:
        """Take over a longer quarantine; return whether it is longer than this client's own."""
        self.quarantine_ms = max(self.quarantine_ms, quarantine_ms)
        return quarantine_ms > self.own_quarantine_ms

    # -- what was heard ------------------------------------------------------------------------

    def hear(
        self,
        node: object,
        stored: bytes,
        *,
        heard_at: float,
        time_ms: int,
        asked_at: float,
        remembers_ms: int = 0,
        identity: bytes = UNKNOWN_IDENTITY,
        master: bool = True,
        members: tuple[Member, ...] = (),
    ) -> None:
        """Take note of the incarnation record that a node answered with; empty where it has none."""
        self.pass_time(heard_at)
        incarnation, before = parse(stored), self._views.get(node)
        found = incarnation or parse_any(stored)
        view = _NodeView(
            found, incarnation is not None, asked_at, heard_at, time_ms, remembers_ms, identity, master
        )
        self._note_members(view, before, members)
        if stored:
            self._dated_back_ms.pop(node, None)
        # Of what was known before, two things outlive an answer: whose the node was, for a moment after it
        # was emptied; and the oldest claim, for good.
        if before is not None and not stored and self.in_conflict and self._strays(before):
            # The other quorum is about to claim it again; we have a majority without it, beside that one.
            view.emptied_at = heard_at if before.emptied_at is None else before.emptied_at
            if heard_at - view.emptied_at < TAKING_BACK_MS / 1000:
                view.incarnation, view.written = before.incarnation, before.written
        self._views[node] = view
        if incarnation is not None and incarnation.size == self.size:
            known = [incarnation.claim] if self._claim is None else [self._claim, incarnation.claim]
            self._claim = min(known, key=lambda claim: claim.rank)
            if incarnation.claim.how == BY_INIT:
                self._forget_strays(incarnation.claim.born_ms)
        self._reassess()

    def lose(self, node: object, now: float) -> None:
        """Take note that a node cannot be reached any more."""
        if node in self._views:
            self.pass_time(now)
            self._views[node].reached = False
            self._dated_back_ms.pop(node, None)
            self._reassess()

    def _forget_strays(self, stated_ms: int) -> None:
        """Forget whose a node was that went out of reach before an operator has stated whose they all are."""
        for node, view in list(self._views.items()):
            if not view.reached and self._strays(view) and view.time_ms < stated_ms:
                del self._views[node]

    def _reassess(self) -> None:
        reached = list(self._reached())
        self.in_conflict = any(
            not self._may_be_ours(view) for view in self._views.values() if self._strays(view)
        )
        self._judge_members()
        self.in_conflict = self.in_conflict or self.members.disputed
        self._use()
        enough = len(reached) >= self._needed
        self.may_write = enough and not (
            self.read_only or self.in_conflict or any(map(self._strays, reached))
        )

    def pass_time(self, now: float) -> None:
        """Note what time it is."""
        self._now = max(self._now, now)

    def _use(self) -> None:
        """Note which servers this client uses, as of the last question that they have answered (R12c)."""
        claimed = self.claimed
        for view in self._reached():
            if view.identity in claimed:
                self._began = min(self._began, self._now)
                self._note_member(self._as_member(view, USED))

    def _note_member(self, member: Member) -> None:
        key = member.identity, member.state
        self._heard[key] = self._heard.get(key, member).merged(member)

    def _note_members(self, view: _NodeView, before: _NodeView | None, members: tuple[Member, ...]) -> None:
        """Note which servers clients have reported to a node, and which one it is itself (R12c)."""
        claim = view.claim
        if claim is not None and claim.how == BY_INIT and claim.born_ms > self._initialised_ms:
            self._initialised_ms = claim.born_ms
            # Another node's clock, by which it was stated, may be ahead.
            self._initialised_at = view.heard_at - max(0, view.time_ms - claim.born_ms) / 1000
        # It outlives the node that has reported it.
        for member in members:
            self._note_member(member)
        self._listed.pop(view.identity, None)
        self._listed[view.identity] = None
        if len(self._listed) > MAX_SERVERS * self.size:
            del self._listed[next(iter(self._listed))]
        same = before is not None and before.identity == view.identity
        met_at = before.there_since if before is not None and same else view.heard_at
        view.there_since = min(met_at, view.heard_at - self._stood_ms(view) / 1000)

    @staticmethod
    def _stood_ms(view: _NodeView) -> int:
        """Return for how long a server has been there at least, by its record, or by what it remembers."""
        record = view.incarnation
        if record is None:
            return view.remembers_ms
        # Another one's record: it was restarted, say, and nothing is known of since when.
        if record.identity != view.identity:
            return 0
        initialised = record.claim.how == BY_INIT
        return max(0, view.time_ms - max(record.ready_ms, record.claim.born_ms if initialised else 0))

    def _judge_members(self) -> None:
        """Find out which servers may vote beside those that other clients use (R12c)."""
        # Without a quarantine a server that was restarted votes beside the one that it was.
        if not self.quarantine_ms or not self._views:
            return
        lately = self._now - SETTLES * self._heartbeat
        # Of too many those in use are kept, and those that answered last.
        kept = [one for one in self._heard.values() if one.answered_at > lately or self._is_used(one)]
        kept.sort(key=lambda one: (one.state == USED, one.answered_at))
        self._heard = {(one.identity, one.state): one for one in kept[-MAX_SERVERS * self.size :]}
        used = {one.identity: one for one in self._heard.values() if self._is_used(one)}
        voting, filled = self._voting(), self._filled()
        held = late(used, voting, size=self.size, quorum=majority(self.size))
        strange = strangers(
            (one for key, one in self._heard.items() if key[0] not in self._listed),
            [(view.there_since, view.asked_at) for view in filled],
            places=self.size - len(filled),
            seconds=SETTLES * self._heartbeat,
        )
        refused_by = self._refused_by(strange)
        other = refused_by
        if refused_by is not None:
            held = held or {max(filled, key=lambda view: view.there_since).identity}
        elif held:
            other = max(
                (used[one] for one in used.keys() - voting), key=lambda one: (self.waits_for(one), one)
            )
        others = {} if other is None else dict.fromkeys(held, other)
        present = {one.identity: one for one in strange if one.answered_at > lately}
        self.members = Membership(others, tuple(present.values()), disputed=refused_by is not None)

    def _is_used(self, member: Member) -> bool:
        return member.state == USED and self.waits_for(member) > 0

    @property
    def _runs(self) -> bool:
        """Whether this client does not start any more: then its list is not refused (R12c)."""
        return not self.members.disputed and self._now - self._began >= STARTS * self._heartbeat

    def _refused_by(self, strange: list[Member]) -> Member | None:
        """Return a server of another list that came first, or at the same moment, if this client starts."""
        began = min(self._began, self._now)
        in_use = [one for one in self._heard.values() if one.state != NEW]
        before = {one.identity for one in in_use if one.told_since < began - self._heartbeat}
        # Others use each server of its list, too: the other list is that of a client that came later.
        if self._runs or before.issuperset(view.identity for view in self._filled()):
            return None
        first = [one for one in strange if one in in_use and one.told_since <= began + self._heartbeat]
        return first[-1] if first else None

    def _filled(self) -> list[_NodeView]:
        """Return the nodes of which it is known which server is there."""
        return [view for view in self._reached() if view.master and view.identity != UNKNOWN_IDENTITY]

    def _as_member(self, view: _NodeView, state: bytes) -> Member:
        since, at = view.there_since, view.asked_at
        return Member(view.identity, state, since, at, self._now, view.time_ms, self.label)

    def waits_for(self, other: Member) -> float:
        """Return for how many seconds a lock may still be alive that has the vote of another server."""
        if other.answered_at <= self._initialised_at:
            return 0.0
        # One that was followed by another in its place had gone by the time that this one's quarantine began.
        present = {view.identity for view in self._views.values()}
        followed = other.identity in self._listed and other.identity not in present
        late_by = 0.0 if followed else LATE * self._heartbeat
        return max(0.0, other.answered_at + wait_ms(self.quarantine_ms) / 1000 + late_by - self._now)

    def _voting(self) -> list[bytes]:
        """Return the servers that vote by their records."""
        return [
            view.identity
            for view in self._reached()
            if view.incarnation is not None
            and self._agree(view)
            and view.incarnation.ready_ms <= view.time_ms
            and view.identity == view.incarnation.identity != UNKNOWN_IDENTITY
        ]

    @property
    def claimed(self) -> frozenset[bytes]:
        """The servers that this client uses: a majority of the list that may vote, or none."""
        # A client that is refused uses none, as one of another size (R12a).
        if self.read_only or not self.quarantine_ms or self.in_conflict:
            return frozenset()
        may_vote = frozenset(self._voting()) - self.members.others.keys()
        return may_vote if len(may_vote) >= majority(self.size) else frozenset()

    @property
    def to_tell(self) -> frozenset[bytes]:
        """The servers that are reported to every node at once, not with the next heartbeat (R12c)."""
        if self.read_only or not self.members.disputed:
            return self.claimed
        return frozenset(view.identity for view in self._filled())

    def told(self, node: object, now: float) -> tuple[bytes, bytes]:
        """Return the servers that the client uses, or has used a moment ago: its report to other clients.

        And the present time by the clock of that node, or 0 if that is not known.
        """
        if self.read_only or not self.quarantine_ms:
            return b"", b"0"
        claimed, state = self.claimed, WAITS if self._runs else NEW
        lines = [one for one in self._heard.values() if self._is_used(one)]
        # Those that may not vote are reported as well, so that other clients notice.
        lines += [self._as_member(view, state) for view in self._filled() if view.identity not in claimed]
        told = [
            b"%d:%b %b %d %d" % (self.size, one.identity, one.state, *self._ages_ms(one, now))
            for one in sorted(lines)
        ]
        view = self._views.get(node)
        at = 0 if view is None else max(0, view.time_ms + round((now - view.heard_at) * 1000))
        return b" ".join(told), b"%d" % at

    @staticmethod
    def _ages_ms(member: Member, now: float) -> tuple[int, int]:
        there, answered = now - member.there_since, now - member.answered_at
        return max(0, round(there * 1000)), max(0, round(answered * 1000))

    @property
    def _needed(self) -> int:
        """The number of nodes that have to be read before a record is written."""
        # No node has a record so far: perhaps the first use of all, which need not wait then (R12b).
        may_date_back = self.quarantine_ms and all(view.remembers_ms for view in self._reached())
        return self.size if self._claim is None and self.starting and may_date_back else majority(self.size)

    @property
    def reached(self) -> int:
        """The number of nodes that have answered on their present connections."""
        return sum(1 for _ in self._reached())

    def _reached(self) -> Iterator[_NodeView]:
        return (view for view in self._views.values() if view.reached)

    def _agree(self, view: _NodeView) -> bool:
        return view.incarnation is not None and view.incarnation.size == self.size

    def _strays(self, view: _NodeView) -> bool:
        return view.incarnation is not None and view.incarnation.size != self.size

    # -- what follows --------------------------------------------------------------------------

    def may_take_back(self, node: object) -> bool:
        """Whether a node is another quorum's that has to give it back."""
        view = self._views.get(node)
        return view is not None and view.reached and self._has_to_be_given_back(view)

    def _has_to_be_given_back(self, view: _NodeView) -> bool:
        """Whether this client's quorum is the older one, as far as is known."""
        if self.read_only or view.claim is None or self._claim is None or not self._strays(view):
            return False
        agreeing = sum(map(self._agree, self._reached()))
        return agreeing >= majority(self.size) and self._claim.outranks(view.claim)

    def _may_be_ours(self, stray: _NodeView) -> bool:
        """Whether a node that strays has to be given back, or may turn out so when all have answered.

        Example, of five nodes: one strays, two agree, and two are unheard.  True: no conflict so far.  When
        one more agrees, and our claim is older: True, the node is taken back.  If neither can come: False,
        which is a conflict.
        """
        unheard = self.size - len(self._views)
        if unheard and stray.claim is not None and stray.claim.how == BY_USE and not self.read_only:
            agreeing = sum(map(self._agree, self._reached()))
            if agreeing < majority(self.size) <= agreeing + unheard:
                return True
        return self._has_to_be_given_back(stray)

    def is_stray(self, node: object) -> bool:
        """Whether a node was another quorum's when it last said whose it was."""
        return node in self._views and self._strays(self._views[node])

    @property
    def belongs_elsewhere(self) -> bool:
        """Whether a node is another quorum's, for good or not."""
        return any(map(self._strays, self._views.values()))

    @property
    def undecided(self) -> bool:
        """Whether incarnation records will be written as soon as enough nodes have answered."""
        few = self.reached < self._needed
        return few and not (self.read_only or self.belongs_elsewhere)

    def claim(self) -> Claim:
        """Return the claim for a node without record: when the quorum was born, and by which client."""
        if self._claim is None:
            reached = list(self._reached())
            assert reached, "only a client that may write claims"
            born_ms = max(view.time_ms for view in reached)
            self._claim = Claim(born_ms=born_ms, how=BY_USE, label=self.label)
            # One node alone may have the place of one that has voted.
            if len(reached) == self.size > 1:
                least = min(view.remembers_ms for view in reached)
                self._dated_back_ms = dict.fromkeys(self._views, least)
        return self._claim

    def dated_back_ms(self, node: object) -> int:
        """Return how far the record that a node gets now may be dated back, at most (R12b).

        Only at the first use, when all nodes have been read and none had a record: as far as all of them
        remember.  A node that has a record by then, or goes out of reach, had its turn.
        """
        return self._dated_back_ms.get(node, 0)

    def lift(self, node: object, now: float) -> tuple[int, float] | None:
        """Return the floor that a node should be lifted to, and in how many seconds its clock allows that."""
        if self.quarantine_ms >= CATCHING_UP_MS or node not in self._views:
            return None
        view = self._views[node]
        own, floor = self._fresh_floor(view), max(map(self._fresh_floor, self._reached()), default=0)
        if not own or floor <= own:
            return None
        late = ((floor >> SHIFT) + 1 - FLOOR_AHEAD_MS - view.time_ms) / 1000 - (now - view.heard_at)
        return floor, max(0.0, late)

    def _fresh_floor(self, view: _NodeView) -> int:
        """Return the floor of a node of ours that forgot a moment ago, and cannot be raised to it; else 0."""
        if not self._agree(view) or not view.written:
            return 0
        assert view.incarnation is not None, "it agrees"
        floor = view.incarnation.floor
        return floor if floor >> SHIFT > view.time_ms + RAISE_AHEAD_MS else 0


@final
class ServersSeen:
    """The servers behind one name, in the order in which they answered.

    A restart or a failover makes a new server, and the old one never comes back under its identity: a server
    that was left for another one and answers again was alive all the time, and so are both now.
    """

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}

    def returns(self, identity: bytes) -> bool:
        """Take a server's answer, by its identity; return whether another one has answered since its last."""
        if not identity or identity == UNKNOWN_IDENTITY:
            return False
        returned = identity in self._seen and identity != next(reversed(self._seen))
        self._seen.pop(identity, None)
        self._seen[identity] = None
        if len(self._seen) > MAX_SERVERS:
            del self._seen[next(iter(self._seen))]
        return returned
