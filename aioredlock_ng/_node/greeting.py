"""The greeting: reads or writes one node's incarnation record, and decides whether it may vote (R12).

The greeting is the heartbeat, too: it carries a nonce, so that its answer proves that replies still belong
to their requests (R15), and brings back the node's time (R14).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final, cast, final

from .. import _scripts
from .._core.command import Command, Purpose, Reply, Silence
from .._core.keyspace import members_key
from .._core.members import read_members
from .._core.quarantine import (
    UNKNOWN_IDENTITY,
    Eligibility,
    eligibility,
    parse,
)
from .._core.quorum_view import ONE_SERVER_EACH, SEVERAL_SERVERS, QuorumView, ServersSeen
from .._log import Once, report
from . import Greeted
from .failures import in_our_words, refusal

_PARTS: Final = 9

NO_EVICTION: Final = "noeviction"
"""The one ``maxmemory-policy`` by which a server forgets nothing."""

MAX_LOGGED_FINDINGS: Final = 32
"""The different lines logged about one node, at most: each is kept, so that it is not logged twice."""

_UNHEARD: Final = Eligibility(reason="it has not been checked so far: whether it may vote is unknown")


@final
class Greeting:
    """The incarnation record of one node, as this client knows it."""

    def __init__(self, node: str, view: QuorumView) -> None:
        self._node = node
        self._view = view
        self._eligibility = _UNHEARD
        self._identity = b""
        self._incarnation = b""
        self._sent_read_only = False
        self._answered_read_only = False
        # The quorum from which the last greeting that was sent takes the node back; else empty.
        self._taken_from = ""
        self._logged = Once(MAX_LOGGED_FINDINGS)
        # The other quorum that the node named when it last answered, in words; empty if it named none.
        self._other_quorum = ""
        # The record whose quarantine must begin again; empty once a greeting that said so was answered.
        self._restart_of = b""
        self._restart_floor = 0
        self._restart_sent = b""
        self.get_incarnation = Command(
            Purpose.OTHER, owner=b"", fits=_fits_incarnation, keys=(view.key,), verb=b"GET"
        )
        """The command that reads the incarnation record, for plain votes (`Probe`)."""
        self.heard = False
        """Whether the present connection's first greeting was answered."""
        # Whether the last greeting was answered with an incarnation record, or with the lack of one.
        self._answered = False
        # The servers that the node was to know, and those that it had to know at once (R12c).
        self._told = frozenset[bytes]()
        self._servers = ServersSeen()
        self.moves = False
        """Whether the node is a slot of a Redis Cluster, which may go to another server and come back."""
        self.refusal = ""
        """Why the server, which answers, refuses to write; empty when it does not."""
        self.distrusted = False
        """Whether the node's clock is suspected to have jumped (R14)."""

    # -- the vote ------------------------------------------------------------------------------

    @property
    def eligibility(self) -> Eligibility:
        """Whether the node may vote."""
        # Suspected of a jump; or it jumped, and the greeting that begins its quarantine is not answered.
        if self.distrusted or self._restart_of:
            return Eligibility(reason="its clock has jumped: its votes do not count until this is resolved")
        # Others have used another server in its place, and a lock may have that one's vote (R12c).
        found, disputed = self._eligibility, self._view.members.disputed
        other = self._view.members.others.get(self._identity)
        if other is not None and (disputed or not found.reason):
            # While they use it, no time is enough.
            wait = None if disputed else self._view.waits_for(other)
            doubt = self._view.members.reason(self._identity)
            reason = f"no vote: {doubt}" if wait is None else f"no vote for another {wait:.1f} s: {doubt}"
            return Eligibility(
                reason=reason, doubt=doubt, wait=wait, replaces=True, quarantine_ms=found.quarantine_ms
            )
        # Another quorum may grant what we hold: no vote, not for extensions either (R12a, R12c).
        return replace(found, expected=b"", floor=0) if self._view.in_conflict else found

    @property
    def conflict(self) -> str:
        """The other quorum that the node belongs to, in words, even while it is down; else empty."""
        if not self._view.in_conflict:
            return ""
        stray = self._view.is_stray(self)
        return self._other_quorum if stray else self._view.members.reason(self._identity)

    @property
    def lists_differ(self) -> bool:
        """Whether a node of the quorum belongs to another one, or lists disagree."""
        return self._view.belongs_elsewhere or self._view.members.disputed

    # -- the next greeting ------------------------------------------------------------------

    def quarantine_again(self, floor: int) -> None:
        """Begin the quarantine again with the next greeting, unless another client has done so already."""
        self._restart_of, self._restart_floor = self._incarnation, floor

    def due_in(self, now: float) -> float | None:
        """Return in how many seconds the next greeting is due, beside the heartbeat; None: none is."""
        # Unreachable, or an error: the heartbeat asks again.
        if not self._answered:
            return None
        # A stray client has used the node, and our quorum is the older one (R12a).
        if self._view.may_take_back(self):
            return 0.0
        # This client uses a server that was not reported to the node, or is refused (R12c).
        if not self._view.to_tell <= self._told:
            return 0.0
        # Too few nodes have been read, one is another quorum's, or the manager only reads.
        if not self._view.may_write:
            return None
        # Its clock has jumped; or it was only read so far, and its record is missing or outdated.
        if self._restart_of or (self._answered_read_only and self._is_to_be_written):
            return 0.0
        # Its floor is below the quorum's, and can be lifted as its clock goes on.
        lift = self._view.lift(self, now)
        return None if lift is None else lift[1]

    def is_due_soon(self, now: float, soon: float) -> bool:
        """Whether a greeting is due within `soon` seconds, or as soon as other nodes have answered."""
        due_in = self.due_in(now)
        if due_in is not None:
            return due_in <= soon
        return self._answered and self._view.starting and self._view.undecided and self._is_to_be_written

    @property
    def _is_to_be_written(self) -> bool:
        known = parse(self._incarnation)
        # None there.  A record that cannot be read is another version's, and stays.
        if known is None:
            return not self._incarnation
        # Written for another server, or with a shorter quarantine than ours.
        other = UNKNOWN_IDENTITY != self._identity != known.identity
        return other or known.quarantine_ms < self._view.quarantine_ms

    def restart(self, now: float) -> None:
        """Forget the answers of a connection that has ended."""
        self._eligibility, self.heard, self._answered = _UNHEARD, False, False
        self._view.lose(self, now)

    def command(self, nonce: bytes, now: float) -> Command:
        """Build the next greeting: the first ones read, later ones write (R12a)."""
        view = self._view
        self._restart_sent, self._sent_read_only, self._taken_from = b"", False, ""
        view.pass_time(now)
        told = view.told(self, now)
        self._told = view.to_tell
        size, quarantine = b"%d" % view.size, b"%d" % view.quarantine_ms
        if self._answered and view.may_take_back(self):
            # Take the node back from a younger quorum.
            self._taken_from = self._eligibility.reason
            restart = (self._incarnation, b"0")
        elif view.may_write:
            # The usual one: it writes the record only if that is missing or outdated.
            self._restart_sent = self._restart_of
            restart = (self._restart_of, b"%d" % self._restart_floor)
        else:
            # Too few nodes have been read to write anything, or the manager only reads.
            self._sent_read_only = True
            return self._built(nonce, b"0", quarantine, b"", b"0", b"", b"0", b"0", *told)
        lift, _ = view.lift(self, now) or (0, 0.0)
        claim = bytes(view.claim())  # decides what follows, at a first use
        record = (claim, b"%d" % lift, b"%d" % view.dated_back_ms(self))
        return self._built(nonce, size, quarantine, *restart, *record, *told)

    def _built(self, nonce: bytes, *args: bytes) -> Command:
        return Command(
            Purpose.OTHER,
            owner=b"",
            fits=lambda reply: _fits(reply, nonce),
            keys=(self._view.key, members_key(self._view.prefix)),
            args=(nonce, *args, self._view.label),
            script=_scripts.GREET,
        )

    # -- the answer ----------------------------------------------------------------------------

    def take(self, reply: Reply, asked_at: float, heard_at: float) -> Greeted | None:
        """Take the answer to a greeting; None for silence or an error."""
        self.heard = True
        # No vote until a greeting is answered: what the node remembers is unknown.
        if isinstance(reply, Silence):
            reason = in_our_words(reply.reason)
            self._eligibility = Eligibility(reason=f"its incarnation record could not be read: {reason}")
            self._answered = False
            self._view.lose(self, heard_at)
            return None
        answer = cast("tuple[bytes, bytes, int, bytes, bytes, bytes, bytes, int, bytes]", reply)
        _, incarnation, time_us, identity, role, refused, doubt, remembers_ms, members = answer
        self.refusal = refusal(refused.decode(errors="replace"))
        same_server = identity == self._identity
        changed = not self._answered or incarnation != self._incarnation
        self._identity, self._incarnation, self._answered = identity, incarnation, True
        self._answered_read_only = self._sent_read_only
        found = self._eligibility = eligibility(
            incarnation,
            identity=identity,
            now_us=time_us,
            role=role.decode(errors="replace"),
            size=self._view.size,
            doubt=doubt.decode(errors="replace"),
        )
        before = (self._view.members.gist, self._view.to_tell)
        self._view.hear(
            self,
            incarnation,
            asked_at=asked_at,
            heard_at=heard_at,
            time_ms=time_us // 1000,
            remembers_ms=remembers_ms,
            identity=identity,
            master=role in (b"", b"master"),
            members=read_members(members, now_ms=time_us // 1000, asked_at=asked_at, size=self._view.size),
        )
        changed = changed or before != (self._view.members.gist, self._view.to_tell)
        # A stray node that was emptied meanwhile still belongs to the other quorum.
        if found.in_conflict or not self._view.is_stray(self):
            self._other_quorum = found.reason if found.in_conflict else ""
        # This greeting was to begin the quarantine again; one that left before that settles nothing.
        if self._restart_of and self._restart_sent == self._restart_of:
            # Another client has changed the record meanwhile, and it does not wait: try with that record.
            # Else it is done, or not ours to write.
            overtaken = found.wait is None and found.quarantine_ms and incarnation != self._restart_of
            self._restart_of = incarnation if overtaken else b""
        # A server that was replaced does not come back: one name leads to several (A4).
        if self._servers.returns(identity) and not self.moves:
            self._log_once(f"{SEVERAL_SERVERS}; {ONE_SERVER_EACH}")
        self._log_findings(found)
        return Greeted(
            asked_at=asked_at,
            heard_at=heard_at,
            time=time_us / 1_000_000,
            same_server=same_server,
            changed=changed,
            taken_from="" if found.in_conflict else self._taken_from,
        )

    def _log_findings(self, found: Eligibility) -> None:
        """Log what an operator should know about the node, each finding once."""
        if self._identity == UNKNOWN_IDENTITY:
            self._log_once(
                "it denies INFO, so restarts with old data cannot be detected: allow +info, and do not "
                "rename the command"
            )
        if found.unknown_format:
            self._log_once("its incarnation record was written by another version; it is left as it is")
        if self._view.adopt(found.quarantine_ms):
            self._log_once(
                f"its restart quarantine is {found.quarantine_ms / 1000:g} s, longer than this client's, "
                "and applies: set the same restart_quarantine in all clients",
                logging.INFO,
            )

    def tell_eviction(self, policy: str | None) -> None:
        """Log that a server may evict locks and counters: no incarnation record shows that (A2, R11)."""
        if policy not in (None, NO_EVICTION):
            self._log_once(
                f"its maxmemory-policy is {policy}: when its memory is full it may delete held locks and "
                "fence counters, and no client can detect that; run CONFIG SET maxmemory-policy "
                f"{NO_EVICTION}"
            )

    def _log_once(self, what: str, level: int = logging.WARNING) -> None:
        if self._logged.first(what):
            report(level, "node %s: %s", self._node, what, node=self._node)


def _fits(reply: object, nonce: bytes) -> bool:
    if not isinstance(reply, list) or len(reply) != _PARTS or reply[0] != nonce:
        return False
    numbers, texts = (2, 7), (1, 3, 4, 5, 6, 8)
    return all(isinstance(reply[i], int) for i in numbers) and all(isinstance(reply[i], bytes) for i in texts)


def _fits_incarnation(reply: object) -> bool:
    # OK is the answer to the next SET: then the one to this GET is missing.
    return reply is None or (isinstance(reply, bytes) and reply != b"OK")
