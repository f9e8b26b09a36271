"""The parts of URLs beside the address: database and options."""

from __future__ import annotations

import pytest

from aioredlock_ng import ConfigurationError, LockManager
from aioredlock_ng._node.urls import NodeUrl

UNKNOWN = "unknown option '{}' in the URL"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://h?socket_timout=1", UNKNOWN.format("socket_timout") + "; did you mean 'socket_timeout'?"),
        ("rediss://h?ssl_ca_cert=x", UNKNOWN.format("ssl_ca_cert") + "; did you mean 'ssl_ca_certs'?"),
        ("unix:///s?usernam=x", UNKNOWN.format("usernam") + "; did you mean 'username'?"),
        ("redis+sentinel://h/s?sentinel_passwort=x", UNKNOWN.format("sentinel_passwort") + "; did you"),
        ("redis://h?ssl_ca_certs=x", UNKNOWN.format("ssl_ca_certs") + ": it works only with rediss://"),
        ("redis://u:WXY@h?xyz=1", "node redis://h: " + UNKNOWN.format("xyz")),
        ("redis://h?password=WXY&ZQJ=1", "node redis://h: unknown option in the URL"),
    ],
)
def test_an_unknown_option_is_named(url: str, words: str) -> None:
    """With the nearest known one; never where it may be a piece of a password."""
    with pytest.raises(ConfigurationError) as caught:
        LockManager([url])
    assert words in str(caught.value)
    assert not [secret for secret in ("WXY", "ZQJ") if secret in str(caught.value)]


@pytest.mark.parametrize(
    ("url", "hint"),
    [("h:1", "; did you mean redis://h:1?"), ("u:WXY@h:1", ""), ("http://h", ""), ("http://u:WXY@h", "")],
)
def test_a_forgotten_scheme_is_guessed(url: str, hint: str) -> None:
    """Where there is one already, or the URL may hold a password, it is not repeated."""
    with pytest.raises(ConfigurationError) as caught:
        NodeUrl(url)
    assert str(caught.value).endswith(f"valkeys+sentinel://{hint}")
    assert "WXY" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://h,redis://i", "redis://u:WXY@h,i:6379/0", "valkeys://h,i"])
def test_several_servers_in_one_url_are_refused(url: str) -> None:
    """A list that the environment gives as one text may be written so; only Redis Sentinels are."""
    with pytest.raises(
        ConfigurationError, match="names one server; give several as a list of URLs"
    ) as caught:
        LockManager([url])
    assert "WXY" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *(
            f"{scheme}://h/{path}"
            for scheme in ("redis", "valkeys")
            for path in ("locks", "3/4", "1x", "-1", "3#4")
        ),
        "redis://h//",
        "redis://h/%C2%B2",
        "redis://h/1_0",
        "redis://h/" + "9" * 5000,
        "redis+sentinel://h,i/service/x",
        "valkey+sentinel://h/service/3/4",
        "redis://h?db=x",
        "redis://h/3?db=+3",
        "unix:///s?db=1_0",
    ],
)
def test_a_database_is_a_number(url: str) -> None:
    """Anything else would be database 0 without a word, or the digits that are in it."""
    with pytest.raises(ConfigurationError, match="the database is not a number"):
        LockManager([url])
