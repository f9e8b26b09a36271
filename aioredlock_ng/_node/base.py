"""What nodes of every sort keep: their standing, their ledger, their place in the manager."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Final

from .._core.command import Command, Sink
from .._log import report
from . import NodeEnv, NodeState, Standing
from .ledger import Ledger

MAX_TOLD: Final = 8
"""Different reasons that are logged for one node while it is down."""


class BaseNode(ABC):
    """The books of one node; see `Node` for what they are for."""

    def __init__(self, name: str, address: tuple[object, ...]) -> None:
        self.name = name
        self.address = address
        """What tells two nodes apart: database numbers and credentials do not make a second server."""
        self.settled = asyncio.Event()
        self._ledger = Ledger()
        self._state = NodeState.CONNECTING
        self._reason = "not connected yet"
        self._run_id: str | None = None
        self._round_trip: float | None = None
        self._closed = False
        self._told: set[str] = set()
        self._env: NodeEnv | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self._state}>"

    def bind(self, env: NodeEnv) -> None:
        """Take the manager's clock, random source and limits."""
        self._env = env

    @property
    def env(self) -> NodeEnv:
        """What `bind` was given."""
        assert self._env is not None, "bind() comes first"
        return self._env

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Commands sent and not answered yet."""

    @abstractmethod
    def submit(self, command: Command, sink: Sink, index: int) -> None:
        """As in `Node`."""

    @abstractmethod
    async def run(self) -> None:
        """As in `Node`."""

    @abstractmethod
    async def aclose(self) -> None:
        """As in `Node`."""

    @property
    def standing(self) -> Standing:
        """How it stands now."""
        return Standing(
            state=self._state,
            reason=self._reason,
            round_trip=self._round_trip,
            in_flight=self.in_flight,
            owed=len(self._ledger),
            dropped=self._ledger.dropped,
            run_id=self._run_id,
        )

    def _become(self, state: NodeState, reason: str) -> None:
        """Note, log and tell a change of state, and every new reason why the node is down."""
        changed, self._state, self._reason = state is not self._state, state, reason
        if state is NodeState.UP:
            self._told.clear()
        elif state is NodeState.DOWN:
            self._run_id = None  # another server may answer there next time
            new = reason not in self._told and len(self._told) < MAX_TOLD
            changed = changed or (new and not self._closed)
            self._told.add(reason)
        if changed:
            level = logging.INFO if state is NodeState.UP or self._closed else logging.WARNING
            report(level, "node %s is %s%s", self.name, state, f": {reason}" if reason else "")
            self.env.on_change(self)
