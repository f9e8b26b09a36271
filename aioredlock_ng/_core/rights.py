"""The rights of a client's ACL user, the line that grants them, and how servers say no."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

COUNT_RIGHT: Final = "+pubsub|numsub"
"""Tells how many waiters listen for a release; without it all of them ask at each (R33)."""

NOTICE_RIGHTS: Final = f"+subscribe +unsubscribe +publish {COUNT_RIGHT}"
"""Of release notices, beside a right on their channels; without the first three waiters poll."""

READER_RIGHTS: Final = "+zadd +zrem +zscore +zrevrange +zremrangebyscore"
"""Of read-write locks; without ``+zscore`` a mutex takes readers for a key of a wrong type."""

SLOT_RIGHTS: Final = "+hget +hgetall +hset +hdel"  # of semaphores

LINE_RIGHTS: Final = "+zadd +zrem +zscore +zrevrange +zrange +zrank"  # of fair locks

KIND_RIGHTS: Final = {"mutex": "", "read-write": READER_RIGHTS, "semaphore": SLOT_RIGHTS, "fair": LINE_RIGHTS}
"""Of each kind of locks, beside those that all need; an election is a mutex."""

_ALL_NEED: Final = (
    "-@all +evalsha +eval +script|exists +script|load +get +set +del +pttl +pexpire +type +time +info +ping"
    f" +hello +auth +client|setname {NOTICE_RIGHTS}"
)


def rights_for(kinds: Iterable[str] = KIND_RIGHTS, further: str = "") -> str:
    """Return the rights for these kinds of locks, found by leaving out one command after the other."""
    rights = " ".join((_ALL_NEED, *(KIND_RIGHTS[kind] for kind in kinds), further))
    return " ".join(dict.fromkeys(rights.split()))


ACL_RIGHTS: Final = rights_for()
"""The rights for locking."""

ADMIN_RIGHTS: Final = "+scan +config|get +acl|getuser"
"""Further rights for listing all locks (``+scan``) and for the diagnosis (the others)."""

DENIED: Final = re.compile(r"NOPERM|no permissions?|ACL failure|can't run this command", re.IGNORECASE)

UNKNOWN: Final = re.compile(
    r"un(?:known|supported|recogni[sz]ed) (?:or unsupported )?command"
    r"|command ['\"`]?[\w|]+['\"`]? (?:is )?(?:not support|not available)"
    r"|command ['\"`][\w|]+['\"`] is not allowed"
    r"|command is not available",
    re.IGNORECASE,
)
"""The words of servers that do not know a command, and of proxies that do not pass it on."""


def denied(reason: str) -> bool:
    """Whether the reason is a missing right."""
    return DENIED.search(reason) is not None


def unknown(reason: str) -> bool:
    """Whether the reason is that the server does not have the command, or not under its name."""
    return UNKNOWN.search(reason) is not None


def acl_line(prefix: bytes, rights: str = ACL_RIGHTS) -> str:
    """Return the command that makes a user with these rights on keys and channels under `prefix`."""
    keys = f"resetkeys ~{_pattern(prefix)}"
    return f"ACL SETUSER locks on >secret {keys} resetchannels {channel_rule(prefix)} {rights}"


def channel_rule(prefix: bytes) -> str:
    """Return the rule that allows the channels under `prefix`: the locks' own keys' names (R13)."""
    return f"&{_pattern(prefix)}"


def _pattern(prefix: bytes) -> str:
    # A pattern of ACL rules cannot hold a space; "?" stands for any one byte.
    return glob_escaped(prefix).replace(b" ", b"?").decode(errors="replace") + "*"


def glob_escaped(text: bytes) -> bytes:
    """Return the pattern of SCAN and of ACL rules that matches `text` alone."""
    return re.sub(rb"[\\*?\[\]]", rb"\\\g<0>", text)
