"""RESP as a server might send it: every type of RESP2 and RESP3, well formed, odd, and broken."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from aioredlock_ng._core.command import Silence


class Status(bytes):
    """A status, such as +OK."""


class Error(bytes):
    """An error reply."""


class Raw(bytes):
    """Bytes that go out as they are."""


class Push(list[Any]):
    """A push of RESP3, beside the replies."""


class Set(list[Any]):
    """A RESP3 set."""


class Map(list[tuple[Any, Any]]):
    """A RESP3 map, as pairs."""


def encode(value: Any) -> bytes:
    """Encode a value."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Status):
        return b"+%b\r\n" % value
    if isinstance(value, Error):
        return b"-%b\r\n" % value
    if isinstance(value, bool):
        return b"#t\r\n" if value else b"#f\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, float):
        return b",%b\r\n" % repr(value).encode()
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, Map):
        return b"%%%d\r\n" % len(value) + b"".join(encode(part) for pair in value for part in pair)
    kind = b">" if isinstance(value, Push) else b"~" if isinstance(value, Set) else b"*"
    return kind + b"%d\r\n" % len(value) + b"".join(map(encode, value))


def decoded(value: Any) -> Any:
    """Return what a sink gets for a value that fits its command."""
    if isinstance(value, Error):
        return Silence(value.decode())
    return bytes(value) if isinstance(value, Status) else value


texts = st.binary(max_size=12)
lines = texts.map(lambda text: text.replace(b"\r", b"").replace(b"\n", b""))
kinds = st.sampled_from([b"message", b"subscribe", b"unsubscribe", b"pmessage", b"invalidate", b""])

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    texts,
    lines.map(Status),
    lines.map(Error),
    st.sampled_from([Error(b"NOSCRIPT No matching script."), Error(b"READONLY no"), Error(b"\xff\xfe")]),
    st.integers().map(lambda number: Raw(b"(%d\r\n" % number)),
    texts.map(lambda text: Raw(b"=%d\r\ntxt:%b\r\n" % (len(text) + 4, text))),
    st.just(Raw(b"_\r\n")),
    st.just(Raw(b"*-1\r\n")),
)

# What may be a key of a map; of others see `POISON`.
keys = st.one_of(texts, st.integers(-5, 5), st.none(), st.booleans(), st.floats())

values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(Set),
        st.lists(st.tuples(keys, inner), max_size=3).map(Map),
        st.tuples(kinds, st.lists(inner, max_size=3)).map(lambda push: Push([push[0], *push[1]])),
        st.lists(inner, max_size=2).map(Push),
    ),
    max_leaves=12,
)

lengths = st.one_of(st.integers(-(2**70), 2**70), st.sampled_from([-1, -2, 2**31, 2**63 - 1, 2**64]))
# Bytes that are no reply, or only the beginning of one.
broken = st.one_of(
    st.binary(max_size=60),
    values.map(encode).flatmap(lambda whole: st.integers(0, len(whole)).map(lambda cut: whole[:cut])),
    st.tuples(st.sampled_from([b"$", b"=", b":", b"("]), lengths).map(lambda p: b"%b%d\r\n" % p),
    st.tuples(st.sampled_from([b"*", b"~", b">", b"%"]), st.integers(-9, 10_000)).map(
        lambda p: b"%b%d\r\n" % p
    ),
    st.integers(1, 3000).map(lambda depth: b"*1\r\n" * depth),
    st.sampled_from(
        [b"$?\r\n", b"*?\r\n", b"#x\r\n", b",abc\r\n", b"(x\r\n", b"=1\r\na\r\n", b"!3\r\nERR\r\n"]
    ),
    st.sampled_from([b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x01", b"220 smtp\r\n", b"\r\n", b"\0"]),
)


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """Return well-formed replies with some bytes changed."""
    stream = bytearray(b"".join(map(encode, draw(st.lists(values, min_size=1, max_size=4)))))
    for place, byte in draw(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4)):
        stream[place % len(stream)] = byte
    return bytes(stream)


garbage = st.one_of(broken, mangled(), st.lists(st.one_of(broken, mangled()), max_size=3).map(b"".join))

# Well-formed by the letter, and beyond what the parser can make an object of.
POISON = {
    "a list as a key": b"%1\r\n*0\r\n:1\r\n",
    "a map as a key": b"%1\r\n%0\r\n:1\r\n",
    "a set as a key": b"%1\r\n~1\r\n:1\r\n:1\r\n",
    "a list as a key, nested": b"*3\r\n:1\r\n:2\r\n%1\r\n*0\r\n:1\r\n",
    "more than all memory": b"*4294967295\r\n",
}
