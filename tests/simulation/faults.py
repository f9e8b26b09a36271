"""Faults of nodes and of the ways to them, as data.

A fault is a value: it can be drawn, printed, kept and left out.  Several at once at one node go on side by
side:

- What one of them does lasts until the last of its kind ends.  Delays add up; of several clock rates,
  losses or refusals the newest counts that has not ended.  When all have ended, it is again as before.
- Those of different kinds do not touch each other, but for those that bring another process: `Restart`
  and `Relapse`.  It is up, even if the node had crashed before; and not stalled, for every `Stall` has ended
  that began before it came, however long that was to last.  A `Relapse` that ends while a `Restart` lasts
  replaces the data alone: the node comes back with it when the last restart is over.
- `BreakBefore` and `BreakAfter` do not end: they wait for a command.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from tests.simulation.wires import Break, Wire, WiredNode

End: TypeAlias = Callable[[], None]
"""Ends something that has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(ABC):
    """Something that goes wrong with one node.

    Args:
        at: when it begins, in seconds.
        node: the number of the node.
        lasts: seconds until it ends; of no meaning for what happens in a moment.
    """

    at: float
    node: int
    lasts: float = 0.0

    @abstractmethod
    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """Let it begin, and return what ends it."""


_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Layer:
    """The state that one fault gives to something, on top of its state before."""

    value: Any


_layers: Final[WeakKeyDictionary[object, dict[str, list[_Layer]]]] = WeakKeyDictionary()
"""By place, and by the name of what goes wrong there: first how it was, then the faults, oldest first."""


def _newest(values: list[_T]) -> _T:
    return values[-1]


def lay(
    place: object,
    name: str,
    *,
    before: _T,
    value: _T,
    put: Callable[[_T], object],
    merge: Callable[[list[_T]], _T] = _newest,
) -> End:
    """Let something be `value` from now on, and return what takes that away again, whatever else lasts then.

    Args:
        place: where it goes wrong.
        name: what goes wrong there.
        before: how it is; of no meaning while another fault lasts.
        value: what the fault makes of it.
        put: lets it be so.
        merge: makes one value of those of all faults; the newest counts by default.
    """
    layers = _layers.setdefault(place, {}).setdefault(name, [])
    if not layers:
        layers.append(_Layer(before))
    mine = _Layer(value)
    layers.append(mine)
    put(merge([layer.value for layer in layers]))

    def end() -> None:
        shown = merge([layer.value for layer in layers])
        layers.remove(mine)
        left = merge([layer.value for layer in layers])
        if len(layers) == 1:
            layers.clear()
        if left != shown:
            put(left)

    return end


def _nothing() -> None:
    """End what is over already."""


# -- at a node ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall(Fault):
    """The node answers nothing, like a process that got SIGSTOP, and executes later what came meanwhile."""

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        process = node.identity

        def put(on: bool) -> None:
            if node.identity == process:  # another one is not stalled
                (node.freeze if on else node.thaw)()

        return lay(node, f"frozen {process}", before=node.frozen, value=True, put=put)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart(Fault):
    """The node dies, and comes back after `lasts` seconds as another process.

    Args:
        keep_data: it has its data again, as with an append-only file; without it, it comes back empty.
    """

    keep_data: bool = False

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        node.crash(keep_data=self.keep_data)
        return lay(
            node, "down", before=False, value=True, put=lambda on: on or node.running or node.restart()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Relapse(Fault):
    """After `lasts` seconds the node comes back as another process with the data of the beginning."""

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        snapshot = node.snapshot()

        def end() -> None:
            node.restart(from_=snapshot)
            if _layers.get(node, {}).get("down"):
                node.crash(keep_data=True)

        return end


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushData(Fault):
    """The node loses all its data, as by FLUSHALL."""

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].flush()
        return _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushScripts(Fault):
    """The node forgets all scripts, as by SCRIPT FLUSH."""

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].flush_scripts()
        return _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Fault):
    """The node answers every command with an error."""

    error: str

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        return lay(node, "refusal", before=node.refusal, value=self.error, put=node.refuse)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect(Fault):
    """The node resets all its connections, as by CLIENT KILL."""

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].disconnect()
        return _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep(Fault):
    """The node's wall clock is set: forward, or back when negative."""

    seconds: float

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].step_clock(self.seconds)
        return _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRate(Fault):
    """The node's wall clock goes at another rate, in seconds per second."""

    rate: float

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        return lay(node, "rate", before=node._server.clock.rate, value=self.rate, put=node.set_clock_rate)


# -- on the way there --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFault(Fault):
    """Something that goes wrong on the way to a node.

    Args:
        client: the number of the way (`WiredNode.wires`); None: all ways that there are when it begins.
    """

    client: int | None = None

    def wires(self, nodes: Sequence[WiredNode]) -> list[Wire]:
        """Return the ways in question."""
        wires = nodes[self.node].wires
        return list(wires) if self.client is None else [wires[self.client]]

    def begin(self, nodes: Sequence[WiredNode]) -> End:
        """As in `Fault`."""
        ends = [end for wire in self.wires(nodes) for end in self.begin_on(wire)]
        return lambda: [end() for end in ends] and None

    @abstractmethod
    def begin_on(self, wire: Wire) -> Sequence[End]:
        """Let it begin on one way, and return what ends it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(WireFault):
    """Nothing gets through; what is sent arrives when it is over, unless the connection is given up.

    Args:
        requests: whether what clients send is held up.
        replies: whether what the node sends is held up.
    """

    requests: bool = True
    replies: bool = True

    def begin_on(self, wire: Wire) -> Sequence[End]:
        """As in `WireFault`."""

        def put_requests(on: bool) -> None:
            (wire.cut if on else wire.mend)(replies=False)

        def put_replies(on: bool) -> None:
            (wire.cut if on else wire.mend)(requests=False)

        there, back = wire.requests_cut, wire.replies_cut
        return (
            lay(wire, "requests", before=there, value=self.requests, put=put_requests, merge=any),
            lay(wire, "replies", before=back, value=self.replies, put=put_replies, merge=any),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(WireFault):
    """Every message takes longer, by `seconds` in each direction; several of them add up."""

    seconds: float

    def begin_on(self, wire: Wire) -> Sequence[End]:
        """As in `WireFault`."""

        def put(seconds: float) -> None:
            wire.extra = seconds

        return (lay(wire, "extra", before=wire.extra, value=self.seconds, put=put, merge=math.fsum),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(WireFault):
    """A share of the messages, from 0 to 1, is lost, and comes later: TCP sends them again."""

    share: float

    def begin_on(self, wire: Wire) -> Sequence[End]:
        """As in `WireFault`."""
        salt = f"{self.at} {self.node}"
        return (
            lay(wire, "loss", before=wire.loss, value=self.share, put=lambda share: wire.lose(share, salt)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Break(WireFault):
    """The next command's connection is reset.  Its end takes back what no command has met by then."""

    def begin_on(self, wire: Wire) -> Sequence[End]:
        """As in `WireFault`."""
        mine = Break(after=isinstance(self, BreakAfter))
        wire.breaks.append(mine)
        return (lambda: wire.breaks.remove(mine) if mine in wire.breaks else None,)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakBefore(_Break):
    """The next command's connection is reset before the node has executed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakAfter(_Break):
    """The next command's connection is reset when the node has executed it, but not answered."""
