"""What one client knows of its quorum from all its nodes together, and what it may do there (R12, R12a).

**Look first, write after.**  A client greets its nodes read-only until a majority of them has answered and
none belongs to a quorum of another size.  Only then does it write: a record where there is none, with the
claim of the nodes that agree with it, so that all of them were claimed at one moment.  A client that is
refused has written nothing.

**The older quorum takes a node back.**  A node that names another size is another quorum's.  Where Q nodes
agree with the client, and their claim outranks that of the node, the node was used by a stray client after
it had lost its memory: the client takes it back (``take_back.lua``).  From the moment it sees the
stray until the wait in the node's new record is over it takes no new lock on *any* node, since leases of
the other quorum may live; its own leases, which were there first, go on.  In any other case the client is
the stray one, or an operator has decided: `conflict`.  It then gets no vote, and its leases end, as the wait
of the other quorum supposes.  What a node has said holds until it says otherwise: one of another quorum that
goes out of reach does not let the client go on with the others.

**One floor.**  Nodes that forget at once, without a quarantine, would choose floors of their own, and could
not agree on a fence for 2 s, until a raise to a floor that is `FLOOR_AHEAD_MS` ahead is not more than
`RAISE_AHEAD_MS` ahead any more.  So they are lifted to the greatest of their floors by another greeting, each
as far as its own clock allows, which is at once where clocks agree.  That keeps the proof in `fencing`: a
floor only rises, and never beyond what the node would choose itself at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, final

from .fencing import FLOOR_AHEAD_MS, RAISE_AHEAD_MS, SHIFT
from .members import NOT_USED, WAITS, Member, Membership, membership, pace, pace_ms
from .quarantine import (
    BY_INIT,
    BY_USE,
    LONGEST_TTL_MS,
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

LONGEST_CLOSED_MS: Final = wait_ms(LONGEST_TTL_MS) + TAKING_BACK_MS
"""For so long a quorum is closed at most when it takes a node back."""

HEARTBEAT: Final = 0.5
"""Seconds between checks of a connection, which greet the node, or a `node_timeout` where that is longer.  A
node that answered nothing since the last check, although something was asked, is SUSPECT."""

ALIVE: Final = 6
"""Heartbeats for which a server counts as in use by a client that has told so.  A client tells of a dead one
for as long as it keeps its connection, which is one less."""

LATE: Final = 2
"""Heartbeats by which what a client has told may be older than a vote that it got: one until it tells again,
a half in which a node does not write it again, and a half for the way."""

MAX_SERVERS: Final = 16
"""Servers of one name that are remembered, of a list and of what others tell: restarts make new ones."""

SEVERAL_SERVERS: Final = (
    "its name leads to different servers on successive connections; they do not know each other's locks, "
    "so two clients can hold the same lock (A4)"
)

ONE_SERVER_EACH: Final = (
    "give each node the address of one server (in Kubernetes that of its pod, not of the service), "
    "without a load balancer in front of several servers"
)
"""What to do about it."""


@final
@dataclass(slots=True)
class _NodeView:
    """One node, as it last answered."""

    incarnation: Incarnation | None
    written: bool
    """Whether it is of our format, so that it can be compared and replaced."""
    asked_at: float
    heard_at: float
    time_ms: int
    remembers_ms: int = 0
    """For how long a node without a record is known to have forgotten nothing (R12b)."""
    identity: bytes = b""
    """Of its server."""
    met_at: float = 0.0
    """When this server was first heard in its place."""
    closed_until: float = 0.0
    """On the client's clock: until then the quorum is closed because of this node."""
    emptied_at: float | None = None
    """Since when, on the client's clock, a node that was another quorum's has no record any more."""
    reached: bool = True

    @property
    def claim(self) -> Claim | None:
        """The claim of its incarnation record, if it can be read."""
        return self.incarnation.claim if self.incarnation is not None and self.written else None

    def initialised_since(self, time_ms: int) -> bool:
        """Whether it was stated, since then by the node's clock, that no lock could be alive."""
        return self.claim is not None and self.claim.how == BY_INIT and self.claim.born_ms >= time_ms


@final
class QuorumView:
    """The quorum as one client sees it: may the client write, whose the nodes are, how long a quarantine is.

    `key` is where the record lives.  The quarantine only grows: another client's longer one wins, since
    its locks may live longer.  Nodes are told apart by any object that stands for them.
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
        self._dated_back_ms: dict[object, int] = {}
        """At the first use: for how long all nodes remember, for each that has got no record since."""
        self._listed: dict[bytes, None] = {}
        """The servers that are, or were, behind the list, the last one that answered last."""
        self._successors: set[bytes] = set()
        """Those of them that this client has used earlier, or that came in the place of one that was used."""
        self._replaced_at: dict[bytes, float] = {}
        """When another one was met in the place of a server."""
        self._heartbeat_ms = heartbeat * 1000
        self._pace_ms = self._heartbeat_ms
        """The longest heartbeat of those that clients have told of, and this one's."""
        self._now = 0.0
        """When a node was last asked, heard or lost."""
        self._woke_at = -math.inf
        """When this process went on after it had stood still."""
        self._own: dict[bytes, tuple[int, float]] = {}
        """The servers that this client uses: since when, and when it did so last, by its own clock."""
        self._heard: dict[tuple[bytes, bool], tuple[Member, float]] = {}
        """The servers that clients have told of, as used or not, and when that last was so."""
        self._initialised_ms = 0
        """The latest `init` of a node, in Unix milliseconds by its clock."""
        self._initialised_at = -math.inf
        """When that was, by this client's clock: no lock of any list was alive then."""
        self._strange_since: dict[bytes, float] = {}
        """Since when others have used the servers that the list lacks."""
        self.members = Membership()
        """Which servers of the list may not vote, since others use another one in their place (R12c)."""
        self.conflict = False
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
        asked_at: float = math.inf,
        remembers_ms: int = 0,
        identity: bytes = UNKNOWN_IDENTITY,
        members: tuple[Member, ...] = (),
    ) -> None:
        """Take note of the incarnation record that a node answered with; empty where it has none."""
        self.pass_time(heard_at)
        incarnation, before = parse(stored), self._views.get(node)
        found = incarnation or parse_any(stored)
        view = _NodeView(found, incarnation is not None, asked_at, heard_at, time_ms, remembers_ms, identity)
        self._note_members(view, before, members)
        if stored:
            self._dated_back_ms.pop(node, None)
        # Of what was known before, three things outlive an answer: whose the node was, for a moment after it
        # was emptied; until when it is closed, unless an `init` came since; and the oldest claim, for good.
        if before is not None and not stored and self.conflict and self._strays(before):
            # The other quorum is about to claim it again; we have a majority without it, beside that one.
            view.emptied_at = heard_at if before.emptied_at is None else before.emptied_at
            if heard_at - view.emptied_at < TAKING_BACK_MS / 1000:
                view.incarnation, view.written = before.incarnation, before.written
        self._views[node] = view
        if before is not None and not view.initialised_since(before.time_ms):
            view.closed_until = before.closed_until  # what a node forgets, or is taken back, is still true
        if incarnation is not None and incarnation.size == self.size:
            left_ms = min(incarnation.closed_ms - time_ms, LONGEST_CLOSED_MS)  # more: its clock went back
            view.closed_until = max(view.closed_until, heard_at + left_ms / 1000)
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
        self.conflict = any(
            not self._may_be_ours(view) for view in self._views.values() if self._strays(view)
        )
        self._judge_members()
        self.conflict = self.conflict or self.members.disputed
        self._use(self._now)
        enough = len(reached) >= self._needed
        self.may_write = enough and not (self.read_only or self.conflict or any(map(self._strays, reached)))
        for view in filter(self._has_to_be_given_back, self._views.values()):
            # Whichever node completed the majority, and also if the stray one is out of reach by now.
            assert view.incarnation is not None, "it strays"
            longest_ms = max(self.quarantine_ms, view.incarnation.quarantine_ms)
            view.closed_until = max(view.closed_until, view.heard_at + wait_ms(longest_ms) / 1000)

    def pass_time(self, now: float) -> None:
        """Note what happened until now: what could vote then may have done so until a moment ago."""
        if (now - self._now) * 1000 < LATE * self._heartbeat_ms:
            self._use(now)
        else:  # this process stood still: others may have come first, as nodes will say that are asked now
            self._woke_at = now
        self._now = max(self._now, now)

    def _use(self, now: float) -> None:
        """Note which servers this client uses (R12c)."""
        if claimed := self.claimed:
            views = {view.identity: view for view in self._reached()}
            for one in claimed:
                heard = self._heard.get((one, True))
                since = self._own[one][0] if one in self._own else views[one].time_ms
                since = since if heard is None else min(since, heard[0].since_ms)
                self._own[one] = since, now

    def _note_members(self, view: _NodeView, before: _NodeView | None, members: tuple[Member, ...]) -> None:
        """Note which servers clients have told a node of, and which one it is itself (R12c)."""
        claim = view.claim
        if claim is not None and claim.how == BY_INIT and claim.born_ms > self._initialised_ms:
            self._initialised_ms = claim.born_ms
            # Another node's clock, by which it was stated, may be ahead.
            self._initialised_at = view.heard_at - max(0, view.time_ms - claim.born_ms) / 1000
        # It outlives the node that has told it.
        for member in members:
            seen_at, key = view.heard_at - member.age_ms / 1000, (member.identity, member.used)
            known, known_at = self._heard.get(key, (member, seen_at))
            since = min(known.since_ms, member.since_ms)
            self._heard[key] = member._replace(since_ms=since), max(seen_at, known_at)
        # A server that was restarted, or replaced, waits in the place of the one before it.
        if before is not None and before.identity != view.identity and self._was_used(before.identity):
            self._successors.add(view.identity)
            self._replaced_at[before.identity] = view.heard_at
        self._listed.pop(view.identity, None)
        self._listed[view.identity] = None
        if len(self._listed) > MAX_SERVERS * self.size:
            del self._listed[next(iter(self._listed))]
        self._successors &= self._listed.keys()
        same = before is not None and before.identity == view.identity
        view.met_at = before.met_at if before is not None and same else view.heard_at

    def _was_used(self, identity: bytes) -> bool:
        return identity in self._own or (identity, True) in self._heard or identity in self._successors

    def _judge_members(self) -> None:
        """Find out which servers may vote beside those that other clients use (R12c)."""
        # Without a quarantine a server that was restarted votes beside the one that it was.
        if not self.quarantine_ms or not self._views:
            return
        now = self._now
        heard = {key: told for key, told in self._heard.items() if self._left(key[0], told[1]) > 0}
        # Of too many the uses are kept, and what was told last.
        kept = sorted(heard.items(), key=lambda one: (one[0][1], one[1][1]))[-MAX_SERVERS * self.size :]
        self._heard = dict(kept)
        paces = [self._heartbeat_ms, *(pace_ms(identity) for identity, _ in self._heard)]
        self._pace_ms = min(max(paces), self.quarantine_ms)  # a `node_timeout` is shorter than that
        used = {one: use for one, use in self._own.items() if self._left(one, use[1]) > 0}
        # After an outage of all nodes, clients that used theirs come before those that never used any.
        self._successors |= self._own.keys() - used.keys()
        self._own = used
        self._replaced_at = {one: at for one, at in self._replaced_at.items() if one in self._listed}
        told = [
            member._replace(age_ms=max(0, round((now - seen_at) * 1000)))
            for member, seen_at in self._heard.values()
            if not pace_ms(member.identity)
        ]
        told += [
            Member(one, since_ms, round((now - used_at) * 1000), self.label)
            for one, (since_ms, used_at) in self._own.items()
        ]
        found = membership(
            self._listed,
            {*self._voting(), *self._settled(now)},
            told,
            self._successors,
            size=self.size,
            quorum=majority(self.size),
            alive_ms=self._alive_ms,
        )
        # A shorter quarantine may end while the last words about a server that has gone are on their way.
        disputed = found.disputed and self.quarantine_ms >= 2 * ALIVE * self._heartbeat_ms
        # Only those that stay: a server that was restarted is known to another client a moment earlier.
        strange = {one.identity: self._strange_since.get(one.identity, now) for one in found.strangers}
        self._strange_since, before = strange, now - self._settles
        at_once = disputed or self._sees_all
        stay = tuple(one for one in found.strangers if at_once or strange[one.identity] <= before)
        self.members = replace(found, strangers=stay, disputed=disputed)

    @property
    def _alive_ms(self) -> int:
        """For how long a server counts as in use by a client that has told so."""
        # Others with a long heartbeat cannot keep all lists from being refused.
        pace = max(self._heartbeat_ms, min(self._pace_ms, self.quarantine_ms / (2 * ALIVE)))
        return round(ALIVE * pace)

    def _left(self, identity: bytes, used_at: float) -> float:
        """Return for how many seconds a lock may still be alive that has the vote of a server."""
        if used_at <= self._initialised_at:
            return 0.0
        life_ms: float = wait_ms(self.quarantine_ms)
        # A client may have used it since it told that.  Not if this client has met another one in its place:
        # then a client that uses it goes on telling so, or has been cut off at that very moment.
        if used_at > self._replaced_at.get(identity, -math.inf):
            life_ms += LATE * self._pace_ms
        return max(0.0, used_at + life_ms / 1000 - self._now)

    @property
    def _settles(self) -> float:
        """Seconds after which a server that others use cannot be the one that was in this place before."""
        return 2 * self._alive_ms / 1000

    def _voting(self, *, since: float = -math.inf) -> list[bytes]:
        """Return the servers that vote by their records, as they answered what they were asked since then."""
        return [
            view.identity
            for view in self._reached()
            if view.asked_at >= since
            and view.incarnation is not None
            and self._agree(view)
            and view.incarnation.ready_ms <= view.time_ms
            and view.identity == view.incarnation.identity != UNKNOWN_IDENTITY
        ]

    @property
    def _sees_all(self) -> bool:
        """Whether this client may look but once, and all servers of its list have answered."""
        return self.read_only and self.reached == self.size

    def _settled(self, now: float) -> list[bytes]:
        """Return the servers of the list that had been met before those others came that are in use now."""
        # A client that only reads goes by what the servers say: one that was restarted a moment ago is still
        # spoken of by its former identity.
        before, at_once = now - self._settles, self._sees_all
        return [
            view.identity
            for view in self._reached()
            if view.identity != UNKNOWN_IDENTITY
            and (self._age_ms(view) >= self._settles * 1000 if at_once else view.met_at <= before)
        ]

    @staticmethod
    def _age_ms(view: _NodeView) -> int:
        """Return for how long a server has had its record, or without one has remembered all."""
        record = view.incarnation
        if record is None:
            return view.remembers_ms
        return view.time_ms - record.ready_ms + wait_ms(record.quarantine_ms)

    @property
    def claimed(self) -> frozenset[bytes]:
        """The servers that this client uses: a majority of the list that may vote, or none."""
        # A client that is refused uses none, as one of another size (R12a).
        if self.read_only or not self.quarantine_ms or self.conflict:
            return frozenset()
        may_vote = frozenset(self._voting(since=self._woke_at)) - self.members.others.keys()
        return may_vote if len(may_vote) >= majority(self.size) else frozenset()

    def told(self, node: object, now: float) -> tuple[bytes, bytes]:
        """Return the servers that the client uses, or has used a moment ago: what it tells other clients.

        And the present time by the clock of the node that is told, or 0 if that is not known.
        """
        if self.read_only or not self.quarantine_ms:
            return b"", b"0"
        claimed = self.claimed
        lines = [
            (one, since_ms, 0 if one in claimed else max(0, round((now - used_at) * 1000)))
            for one, (since_ms, used_at) in self._own.items()
        ]
        # Those that may not vote are told as well, so that other clients notice.
        lines += [
            (view.identity, WAITS if self._was_used(view.identity) else NOT_USED, 0)
            for view in self._reached()
            if view.asked_at >= self._woke_at
            and view.identity not in claimed
            and view.identity != UNKNOWN_IDENTITY
        ]
        if self._heartbeat_ms > HEARTBEAT * 1000:
            lines.append((pace(self._heartbeat_ms), NOT_USED, 0))
        told, view = (b"%d:%b %d %d" % (self.size, *line) for line in sorted(lines)), self._views.get(node)
        at = 0 if view is None else max(0, view.time_ms + round((now - view.heard_at) * 1000))
        return b" ".join(told), b"%d" % at

    def other_than(self, identity: bytes) -> Member | None:
        """Return the server that others use in place of this one; None if it may vote."""
        return self.members.others.get(identity)

    def waits_for(self, other: Member) -> float:
        """Return for how many seconds a lock may still be alive that has the vote of another server."""
        return self._left(other.identity, self._now - other.age_ms / 1000)

    @property
    def _needed(self) -> int:
        """How many nodes have to be read before a record is written."""
        # No node has a record so far: perhaps the first use of all, which need not wait then (R12b).
        may_date_back = self.quarantine_ms and all(view.remembers_ms for view in self._reached())
        return self.size if self._claim is None and self.starting and may_date_back else majority(self.size)

    @property
    def reached(self) -> int:
        """How many nodes have answered on their present connections."""
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
        """Whether a node was another quorum's when it last told whose it was."""
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

    def closed_for(self, now: float) -> float:
        """Return for how many seconds no new lock may be taken on any node: one was another quorum's."""
        left = max((view.closed_until - now for view in self._views.values()), default=0.0)
        return max(0.0, left)

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

    __slots__ = ("_seen",)

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
