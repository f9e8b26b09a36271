"""The name of a user's own client, and its address, which tells it apart from other nodes."""

from __future__ import annotations

from typing import Any


def name_and_address(pool: Any) -> tuple[str, tuple[object, ...]]:
    """Return the name of a client with this pool, for messages, and what tells it apart from other nodes."""
    if service := getattr(pool, "service_name", None):  # Redis Sentinel tells the address at each connect
        return f"client:sentinel:{service}", (
            "sentinel",
            id(getattr(pool, "sentinel_manager", pool)),
            service,
        )
    options = pool.connection_kwargs
    if path := options.get("path"):
        return f"client:unix://{path}", (path,)
    host, port = options.get("host", "localhost"), options.get("port", 6379)
    if options.get("server") is not None:  # fakeredis: the server is an object
        return f"client:fake:{host}:{port}", ("fake", id(options["server"]))
    return f"client:{host}:{port}", (host, port)
