"""A name of the tests' own that leads to chosen addresses."""

from __future__ import annotations

import socket
from typing import Any

import pytest

NAME = "redis-1"
Address = tuple[str, int]


def leads_to(monkeypatch: pytest.MonkeyPatch, *addresses: Address) -> None:
    """Have the resolver know one more name."""
    real = socket.getaddrinfo

    def resolve(host: Any, *args: Any, **options: Any) -> Any:
        if host != NAME:
            return real(host, *args, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
