"""The keys under a prefix, and how they are made of names (R16).

    prefix + name                     a lock, and the channel of its releases
    prefix + "fence:{" + key + "}"    the counter of the lock under that key
    prefix + "slots:{" + key + "}"    the counters of a semaphore, one for each slot (R25)
    prefix + "queue:{" + key + "}"    hints of those that wait for it (R22)
    prefix + "tickets:{" + key + "}"  the order of those that wait for a fair lock (R28)
    prefix + "seats:{" + key + "}"    until when each of these is taken to wait
    prefix + "leader:{" + key + "}"   the leader of an election, and the channel of such news (R31)
    prefix + "{meta}"                 the node's incarnation record
    prefix + "{members}"              the servers that clients use as the quorum (R12c)

A mark in front, and the key in braces behind it: on a Redis Cluster a lock and all that goes with it are in
one slot, and no lock's name may begin as one of the package's own keys does.

A prefix may begin with another one.  What goes with a lock has its prefix twice, so that it is recognised
under any.  The locks, and the two records, have keys that a lock under the shorter prefix may have, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

COUNTER: Final = "fence"
SLOTS: Final = "slots"
QUEUE: Final = "queue"
TICKETS: Final = "tickets"
SEATS: Final = "seats"
LEADER: Final = "leader"

MARKS: Final = (COUNTER, SLOTS, QUEUE, TICKETS, SEATS, LEADER)
"""Every mark: what is under it is no lock, so that no name may look like it."""

_INCARNATION: Final = "{meta}"

_MEMBERS: Final = "{members}"

MAX_BEGINNINGS: Final = 64
"""Beginnings of marks that are kept: a program has a handful of prefixes."""

RESERVED_NAMES: Final = (*(f"{mark}:{{" for mark in MARKS), _INCARNATION, _MEMBERS)
"""The beginnings of this package's own keys behind the prefix: no name of a lock may begin so."""

_BESIDE: Final = re.compile(rb"(.*)(?:%b):\{\1.*\}" % "|".join(MARKS).encode(), re.DOTALL)

_RECORD: Final = re.compile(rb"\d{1,17}:|\Z")
"""The beginning of a record's value, and of no owner value."""


def lock_key(prefix: bytes, name: str) -> bytes:
    """Return the key of the lock `name`, which is also the channel of its releases.

    Raises:
        ValueError: something is kept there for a lock under a longer prefix.
    """
    key = prefix + name.encode()
    if b":{" in key and is_beside(key):
        raise ValueError(f"lock names that end like a counter's key are reserved, got {name!r}")
    return key


def mark_key(prefix: bytes, mark: str, key: bytes) -> bytes:
    """Return what is kept under `mark` for the lock under `key`."""
    return marks_begin(prefix, mark) + key + b"}"


@lru_cache(MAX_BEGINNINGS)
def marks_begin(prefix: bytes, mark: str) -> bytes:
    """Return how all keys of a mark begin."""
    return b"%b%b:{" % (prefix, mark.encode())


@lru_cache(MAX_BEGINNINGS)
def incarnation_key(prefix: bytes) -> bytes:
    """Return the key of the nodes' incarnation records."""
    return prefix + _INCARNATION.encode()


@lru_cache(MAX_BEGINNINGS)
def members_key(prefix: bytes) -> bytes:
    """Return the key of the servers that clients use."""
    return prefix + _MEMBERS.encode()


def is_beside(key: bytes) -> bool:
    """Whether something is kept there for a lock, under whatever prefix."""
    return _BESIDE.fullmatch(key) is not None


def is_record(key: bytes, value: object) -> bool:
    """Whether it is a node's incarnation record, or its members, under whatever prefix."""
    named = key.endswith((_INCARNATION.encode(), _MEMBERS.encode()))
    return named and isinstance(value, bytes) and _RECORD.match(value) is not None


def locks_among(prefix: bytes, keys: Iterable[bytes]) -> set[bytes]:
    """Return which of `keys` can be locks': under the prefix, and none of the package's own.

    Those that end like a record may be one under a longer prefix: `is_record` tells.
    """
    records = incarnation_key(prefix), members_key(prefix)
    return {key for key in keys if key.startswith(prefix) and key not in records and not is_beside(key)}


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
