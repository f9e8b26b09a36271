"""The shown form of a node's URL never holds a part of its password, however badly that is escaped."""

from __future__ import annotations

import itertools

import pytest

from aioredlock_ng import ConfigurationError, LockManager
from aioredlock_ng._node.urls import masked

PARTS = ("WXY", "ZQJ", "KVG")
"""Pieces of a password: letters that are in no URL of these tests and in no message."""

SEPARATORS = ("", "?", "/", "@", "#", ":", "&", "=", "%", "[", "]", "?x=", "//", ";")

HOSTS = ("h", "h:6379", "h:6379/0", "[::1]:6379/0", "h?db=0", "h/0?a=b@c", "h,h2:1/svc")


def shows_a_part(text: str) -> bool:
    """Say whether two letters of the password stand in a text, whatever their case."""
    text = text.upper()
    return any(part[i : i + 2] in text for part in PARTS for i in range(2))


def shown(url: str) -> list[str]:
    """Return all that a user may read of a URL."""
    texts = [masked(url)]
    try:
        texts.append(repr(LockManager([url])))
    except ConfigurationError as error:
        texts.append(str(error))
    return texts


@pytest.mark.heavy
@pytest.mark.parametrize("scheme", ["redis", "redis+sentinel", "rediss", "valkey", "http"])
@pytest.mark.parametrize("user", ["user", ""])
def test_a_password_with_special_characters(scheme, user):
    """Any two of the characters that have a meaning in URLs, between any host and any user."""
    leaks = []
    for one, two, host in itertools.product(SEPARATORS, SEPARATORS, HOSTS):
        url = f"{scheme}://{user}:{PARTS[0]}{one}{PARTS[1]}{two}{PARTS[2]}@{host}"
        leaks += [(url, text) for text in shown(url) if shows_a_part(text)]
    assert not leaks, (len(leaks), leaks[:5])


def test_a_password_of_digits_is_not_taken_for_a_port():
    """The head of a password of digits looks like a port, and the user like a host."""
    for rest in ("?99@h:6379/0", "/99@h", "#99@h", "/9?9@h", "?9/9@h", "@9?9@h", "/?99@h"):
        url = f"redis://user:4711{rest}"
        for text in shown(url):
            assert "4711" not in text, (url, text)
            assert "9" not in text.replace("6379", ""), (url, text)


@pytest.mark.heavy
def test_a_password_elsewhere():
    """The query is not shown at all; the path of a Unix socket is, and no password before it."""
    heads = (
        "redis://h",
        "redis+sentinel://h,h2/s",
        "redis://h:6379/0",
        "redis://user:WXY@h",
        "unix:///tmp/s.sock",
    )
    for one, two in itertools.product(SEPARATORS, repeat=2):
        password = f"{PARTS[0]}{one}{PARTS[1]}{two}{PARTS[2]}"
        urls = [f"{head}?password={password}" for head in heads] + [f"unix://user:{password}@/tmp/s.sock"]
        assert not [(url, text) for url in urls for text in shown(url) if shows_a_part(text)]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", "redis://h"),
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://user:secret@h:6379/0?socket_timeout=1", "redis://h:6379/0"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("rediss://h?password=a@b", "rediss://h"),
        ("unix:///tmp/s.sock?db=1", "unix:///tmp/s.sock"),
        ("unix://user:secret@/tmp/s.sock", "unix:///tmp/s.sock"),
        ("redis+sentinel://h/s", "redis+sentinel://h/s"),
        ("redis+sentinel://u:WXY@h:1,h2,[::1]:3/s/0?x=y", "redis+sentinel://h:1,h2,[::1]:3/s/0"),
        ("redis+sentinel://u:WXY,ZQJ@h,h2/s", "redis+sentinel://h,h2/s"),
        ("redis+sentinel://h,h2:WXY,h3/s", "redis+sentinel://h,h2/s"),
    ],
)
def test_the_address_is_still_shown(url: str, expected: str) -> None:
    """Operators find the node, or all sentinels, by it: nothing is left out that is certainly no secret."""
    assert masked(url) == expected
