"""Replies of a master in memory, encoded: RESP2, but for what only RESP3 has."""

from __future__ import annotations

from typing import Any, final


@final
class Push(tuple[Any, ...]):
    """What RESP3 tells beside the replies."""

    __slots__ = ()


def encode(reply: Any) -> bytes:
    """Encode a reply: str is a status, bytes a bulk string."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, str):
        return b"+%b\r\n" % reply.encode()
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    kind = b">" if isinstance(reply, Push) else b"*"
    return b"%b%d\r\n" % (kind, len(reply)) + b"".join(map(encode, reply))
