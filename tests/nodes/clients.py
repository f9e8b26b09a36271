"""Users' clients for tests."""

from __future__ import annotations

from collections.abc import Callable

from redis.asyncio import Redis

MakeClient = Callable[..., "Redis[bytes]"]
"""Makes a client for a URL; see the fixture `client`."""
