"""Users' clients for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis

MakeClient = Callable[..., "Redis[bytes]"]
"""Makes a client for a URL; see the fixture `client`."""

each_kind = pytest.mark.parametrize("kind", ["client", "url"])


def node_of(kind: str, url: str, client: MakeClient, **options: Any) -> Any:
    """Return a URL, or a client for it."""
    return client(url, **options) if kind == "client" else url
