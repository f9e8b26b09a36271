"""A page as it has understood its stream: the events, and the table that they come to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Page:
    """A page that is open."""

    head: dict[str, Any] = field(default_factory=dict)
    locks: dict[str, Any] = field(default_factory=dict)
    lock: dict[str, Any] = field(default_factory=dict)
    happened: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None
    events: list[str] = field(default_factory=list)
    """Their names, in order."""
    last_id: str = ""

    def hear(self, text: str) -> None:
        """Take what came: whole events only."""
        for block in text.split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            self.last_id = fields.get("id", self.last_id)
            if "event" in fields:
                self.events.append(fields["event"])
                self._take(fields["event"], json.loads(fields["data"]))

    def _take(self, name: str, data: dict[str, Any]) -> None:
        if name == "state":
            self.head, self.locks, self.problem = data["head"], data["locks"], None
        elif name == "change":
            self.head, self.problem = data["head"], None
            self.locks.update(data["locks"])
            for gone in data["gone"]:
                del self.locks[gone]
        elif name == "lock":
            self.lock = data["lock"]
            self.happened += data["happened"]
        elif name == "problem":
            self.problem = data["detail"]
