"""What one node's sentinel says to this client: the greeting, and what follows from its answer (R12).

The greeting is the heartbeat, too: it carries a nonce, so that its answer proves that replies still belong
to their requests (R15), and brings back the node's time (R14).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, cast, final

from .. import _scripts
from .._core.command import Command, Purpose, Reply, Silence
from .._core.quarantine import UNKNOWN_IDENTITY, Judgement, Terms, judge
from .._log import report
from .failures import of_age

_PARTS: Final = 5

NO_EVICTION: Final = "noeviction"
"""The one ``maxmemory-policy`` by which a server forgets nothing."""

_UNHEARD: Final = Judgement(reason="it has not been asked yet whether it may vote")


@final
@dataclass(frozen=True, slots=True)
class Greeted:
    """The answer to a greeting, read."""

    time: float
    """The node's time of day, in Unix seconds."""
    same_server: bool
    """Whether the same server with the same data answered before."""


@final
class Greeting:
    """The sentinel of one node, as this client knows it."""

    def __init__(self, node: str, terms: Terms) -> None:
        self._node = node
        self._terms = terms
        self._judgement = _UNHEARD
        self._identity = b""
        self._sentinel = b""
        self._told: set[str] = set()
        self._push = b""
        """The sentinel whose wait must begin anew; empty again once a greeting that said so was answered."""
        self._push_floor = 0
        self._pushing = b""
        """What of it the last greeting that was sent said."""
        self.look = Command(Purpose.OTHER, owner=b"", fits=_fits_look, keys=(terms.key,), verb=b"GET")
        """The question what the sentinel is, for plain votes (`Probe`)."""
        self.heard = False
        """Whether the present connection's first greeting was answered."""
        self.distrusted = False
        """Whether the node's clock is suspected to have jumped (R14)."""

    @property
    def judgement(self) -> Judgement:
        """Whether the node may vote."""
        if self.distrusted or self._push:
            return Judgement(reason="its clock has jumped: its vote does not count until that is settled")
        return self._judgement

    def stamp(self, *, with_identity: bool) -> tuple[bytes, ...]:
        """Return what a vote is asked for with; see `STAMP_SIZE`."""
        vow = self.judgement.vow
        return vow.sentinel, b"%d" % vow.floor, self._identity if with_identity else b""

    def push(self, floor: int) -> None:
        """Let the sentinel's wait begin anew with the next greeting, unless somebody else has seen to it."""
        self._push, self._push_floor = self._sentinel, floor

    @property
    def pushes(self) -> bool:
        """Whether the next greeting has that to say."""
        return bool(self._push)

    def restart(self) -> None:
        """Forget what was heard on a connection that has ended."""
        self._judgement, self.heard = _UNHEARD, False

    def command(self, nonce: bytes) -> Command:
        """Build the next greeting."""
        terms, self._pushing = self._terms, self._push
        return Command(
            Purpose.OTHER,
            owner=b"",
            fits=lambda reply: _fits(reply, nonce),
            keys=(terms.key,),
            args=(
                nonce,
                b"%d" % (0 if terms.looking or terms.conflicted else terms.size),
                b"%d" % terms.quarantine_ms,
                self._push,
                b"%d" % self._push_floor,
            ),
            script=_scripts.GREET,
        )

    def take(self, reply: Reply) -> Greeted | None:
        """Judge by the answer to a greeting; None when it was none."""
        self.heard = True
        if isinstance(reply, Silence):
            self._judgement = Judgement(reason=f"its sentinel cannot be looked at: {of_age(reply.reason)}")
            return None
        _, sentinel, time_us, identity, role = cast("tuple[bytes, bytes, int, bytes, bytes]", reply)
        same_server, self._identity, self._sentinel = identity == self._identity, identity, sentinel
        judged = judge(
            sentinel,
            identity=identity,
            now_us=time_us,
            role=role.decode(errors="replace"),
            size=self._terms.size,
        )
        self._judgement = judged
        if self._push and self._pushing == self._push:  # else this one was on its way already
            overtaken = judged.wait is None and judged.quarantine_ms and sentinel != self._push
            self._push = sentinel if overtaken else b""  # else done, or not ours to write
        self._tell(judged)
        return Greeted(time_us / 1_000_000, same_server)

    def _tell(self, judged: Judgement) -> None:
        """Log what an operator should know, each thing once."""
        if self._identity == UNKNOWN_IDENTITY:
            self._warn(
                "it may not be asked for INFO, so that restarts with old data go unnoticed: allow +info, and "
                "leave the command its name"
            )
        if judged.unknown_format:
            self._warn("its sentinel was written by a newer version; it is left as it is")
        if self._terms.adopt(judged.quarantine_ms):
            self._warn(
                f"its restart quarantine is {judged.quarantine_ms / 1000:g} s, longer than this client's, "
                "and holds: set restart_quarantine alike everywhere"
            )

    def tell_eviction(self, policy: str | None) -> None:
        """Log that a server may delete what it was told to keep: no sentinel notices that (A2, R11)."""
        if policy not in (None, NO_EVICTION):
            self._warn(
                f"its maxmemory-policy is {policy}: when its memory is full it may delete locks that are "
                f"held, and counters of fences, unnoticed; CONFIG SET maxmemory-policy {NO_EVICTION}"
            )

    def _warn(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            report(logging.WARNING, "node %s: %s", self._node, what, node=self._node)


def _fits(reply: object, nonce: bytes) -> bool:
    if not isinstance(reply, list) or len(reply) != _PARTS or reply[0] != nonce:
        return False
    return isinstance(reply[2], int) and all(isinstance(reply[i], bytes) for i in (1, 3, 4))


def _fits_look(reply: object) -> bool:
    return reply is None or isinstance(reply, bytes)
