"""Which keys of a Redis Cluster stand in one slot: those with the same hash tag (R16, R17)."""

from __future__ import annotations


def hash_tag(key: bytes) -> bytes | None:
    """Return the hash tag of a key, which is that of whatever begins with the key; None when it has none.

    It stands between the first brace and the next closing one, unless that is nothing.
    """
    _, opened, rest = key.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return tag if opened and closed and tag else None


def tagged(prefix: bytes) -> str:
    """Return a prefix like this one with a hash tag."""
    text = prefix.decode(errors="replace").replace("{", "").replace("}", "")
    end = len(text.rstrip(":.-_/ "))
    return f"{{{text[:end] or 'locks'}}}{text[end:] or ':'}"


def no_tag(prefix: bytes) -> str:
    """Say why a Redis Cluster cannot be used under a prefix without a hash tag."""
    return (
        "a Redis Cluster keeps all keys of a lock on one server only under a prefix with a hash tag: use "
        f"prefix={tagged(prefix)!r} in all clients instead of {prefix.decode(errors='replace')!r}"
    )
