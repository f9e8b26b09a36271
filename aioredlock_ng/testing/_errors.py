"""What goes wrong with servers of one's own; here because both ports and servers raise it."""

from __future__ import annotations

from typing import final


@final
class NoServerError(RuntimeError):
    """There is no Redis or Valkey server to start; the message says how to get one."""


@final
class ServerStartError(RuntimeError):
    """A server did not start; the message holds the end of its log."""
