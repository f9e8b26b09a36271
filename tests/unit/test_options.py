"""Wrong input: the named error, at the call, with the value in it; and never a password."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis
from redis.asyncio import Redis

from aioredlock_ng import ConfigurationError, ExtensionPolicy, LockManager, RetryPolicy
from aioredlock_ng.testing import MemoryNode, SimLoop

NAN, INF = float("nan"), float("inf")
URLS = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
DAY = 24 * 3600

Row = tuple[object, type[Exception]]

NO_NUMBERS: list[Row] = [
    ("5", TypeError),
    (b"5", TypeError),
    (True, TypeError),
    ([], TypeError),
    (1j, TypeError),
]
NO_NUMBERS += [(Decimal(5), TypeError), (NAN, ValueError), (INF, ValueError), (-INF, ValueError)]
NOT_POSITIVE: list[Row] = [(0, ValueError), (0.0, ValueError), (-1, ValueError), (-0.5, ValueError)]
NOT_POSITIVE += [(timedelta(0), ValueError), (timedelta(seconds=-1), ValueError)]
NEGATIVE: list[Row] = [(-1, ValueError), (-0.001, ValueError), (timedelta(microseconds=-1), ValueError)]
TOO_LONG: list[Row] = [(DAY + 0.001, ValueError), (1e9, ValueError), (timedelta(days=2), ValueError)]
TOO_SHORT = [(0.0049, ValueError), (timedelta(milliseconds=4), ValueError)]
NO_TTLS = [*NO_NUMBERS, *NOT_POSITIVE, *TOO_SHORT, *TOO_LONG]


def manager(**options: Any) -> LockManager:
    """Make a manager that is never started."""
    return LockManager(URLS, **options)


def fails(call: Callable[[], object], error: type[Exception], *words: str) -> str:
    """Make the call, which must fail with exactly `error` and all `words` in its message."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error, repr(caught.value)
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))
    return str(caught.value)


# -- the manager's settings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [("ttl", value, error) for value, error in [*NO_TTLS, (None, TypeError)]]
    + [("node_timeout", value, error) for value, error in [*NO_NUMBERS, *NOT_POSITIVE, (None, TypeError)]]
    + [("connect_timeout", value, error) for value, error in [*NO_NUMBERS, *NOT_POSITIVE, (None, TypeError)]]
    + [("prefix", value, TypeError) for value in (b"p:", None, 5)]
    + [("retry", value, TypeError) for value in (None, 3, {"base": 1}, ExtensionPolicy())]
    + [("extension", value, TypeError) for value in (None, False, 0.3, RetryPolicy())]
    + [("on_lost", value, ValueError) for value in ("", "ignore", "Cancel", None, 1)]
    + [("holder", value, TypeError) for value in (5, b"me")]
    + [("holder", value, ValueError) for value in ("a\nb", "a\x00b", "x" * 201, "\ud800")]
    + [("restart_quarantine", value, error) for value, error in [*NO_NUMBERS, *NEGATIVE, *TOO_LONG]]
    + [("fencing", value, TypeError) for value in (None, 1, "yes")]
    + [("fence_ttl", value, error) for value, error in [*NO_NUMBERS, *NEGATIVE, (None, TypeError)]]
    + [("fence_ttl", value, ValueError) for value in (0, 299.9, timedelta(minutes=4), 30 * DAY + 1)],
)
def test_a_wrong_setting_is_named_at_once(option: str, value: object, error: type[Exception]) -> None:
    """The manager is not made; the message has the setting's name and the value."""
    fails(lambda: manager(**{option: value}), error, option, repr(value))


def test_a_node_timeout_must_be_shorter_than_the_ttl() -> None:
    """Both are in the message."""
    fails(lambda: manager(ttl=2.0, node_timeout=2.0), ValueError, "node_timeout=2.0", "ttl=2.0")
    fails(lambda: manager(ttl=2.0, node_timeout=2.5), ValueError, "node_timeout=2.5", "ttl=2.0")
    fails(lambda: manager(node_timeout=10), ValueError, "node_timeout=10", "ttl=10.0")


def test_no_ttl_may_outlive_the_quarantine() -> None:
    """A lock could otherwise be alive when a restarted node votes again (R12): both are in the message."""
    words = ("ttl=11", "restart_quarantine=10")
    fails(lambda: manager(ttl=11, restart_quarantine=10), ValueError, *words)
    fails(lambda: manager(restart_quarantine=10).lock("a", ttl=11), ValueError, *words)
    fails(lambda: manager(restart_quarantine=10).locked("a", ttl=11)(asyncio.sleep), ValueError, *words)
    manager(restart_quarantine=0).lock("a", ttl=11)
    manager(restart_quarantine=11).lock("a", ttl=11)


@pytest.mark.parametrize(
    ("size", "ttl", "quarantine"),
    [(1, 10, 0), (2, 100, 0), (3, 10, 60), (3, 100, 100), (4, 60, 60), (5, 1, 60)],
)
def test_the_default_quarantine(
    size: int, ttl: float, quarantine: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute or the ttl, whichever is longer, where a minority can be spared, else none (R12)."""
    monkeypatch.delenv("REDLOCK_RESTART_QUARANTINE")
    made = LockManager([f"redis://10.0.0.{number}" for number in range(size)], ttl=ttl)
    assert made._options.restart_quarantine == quarantine


def test_a_quarantine_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable stands in for the setting that is not given, and is named when it is wrong (R12)."""
    name = "REDLOCK_RESTART_QUARANTINE"
    monkeypatch.setenv(name, "12.5")
    assert manager()._options.restart_quarantine == 12.5
    assert manager(restart_quarantine=20)._options.restart_quarantine == 20
    fails(lambda: manager(ttl=13), ValueError, "ttl=13", "REDLOCK_RESTART_QUARANTINE=12.5")
    for wrong in ("soon", "-1", "nan", "1e9"):
        monkeypatch.setenv(name, wrong)
        fails(manager, ValueError, name)
    monkeypatch.setenv(name, "")
    assert manager()._options.restart_quarantine == 60


def test_a_prefix_must_be_encodable() -> None:
    """A prefix that is no UTF-8 is a ValueError that names the setting and shows the value."""
    with pytest.raises(ValueError, match="prefix") as caught:
        manager(prefix="\ud800")
    assert "\\ud800" in str(caught.value)


@pytest.mark.parametrize("value", [10**400, -(10**400)], ids=["10**400", "-10**400"])
def test_an_enormous_number_is_a_wrong_number(value: int) -> None:
    """An int beyond what a float can hold is a ValueError, like any other number that is too large."""
    for option in ("ttl", "node_timeout", "connect_timeout"):
        fails(lambda option=option: manager(**{option: value}), ValueError, option)  # type: ignore[misc]
    fails(lambda: manager().lock("a", ttl=value), ValueError, "ttl")


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": 1},
        {"ttl": timedelta(seconds=30), "node_timeout": timedelta(milliseconds=50)},
        {"ttl": DAY},
        {"ttl": timedelta(days=1)},
        {"ttl": 0.005, "node_timeout": 0.0049},
        {"connect_timeout": timedelta(seconds=2)},
        {"prefix": "müll:"},
        {"holder": ""},
        {"holder": "x" * 200},
        {"on_lost": "raise"},
        {"extension": ExtensionPolicy.off()},
        {"fencing": False, "restart_quarantine": 0},
        {"restart_quarantine": None},
        {"restart_quarantine": timedelta(0)},
        {"restart_quarantine": timedelta(minutes=1)},
        {"restart_quarantine": 10, "ttl": 10},
        {"restart_quarantine": DAY, "ttl": DAY},
        {"fencing": True, "restart_quarantine": 0},
        {"fencing": False, "restart_quarantine": 60.0},
        {"fence_ttl": 300},
        {"fence_ttl": timedelta(days=30)},
    ],
)
def test_right_settings_are_taken(options: dict[str, Any]) -> None:
    """The edges of what is allowed are allowed; times may be a timedelta."""
    manager(**options)


# -- the lock ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "error"), NO_TTLS)
def test_a_wrong_ttl_is_named_at_the_call(value: object, error: type[Exception]) -> None:
    """``manager.lock(…, ttl=…)`` fails itself, and not when the lock is entered."""
    fails(lambda: manager().lock("a", ttl=value), error, "ttl", repr(value))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"ttl": "5"}, {"label": []}, {"extension": 3}])
def test_a_wrong_type_is_named_once(options: dict[str, Any]) -> None:
    """No second error stands above it, from a look for options that were checked before."""
    with pytest.raises(TypeError) as caught:
        manager().lock("a", **options)
    assert caught.value.__context__ is None


def test_what_is_equal_is_not_the_same_option() -> None:
    """A number that was taken does not let a truth value pass that is equal to it."""
    one = manager()
    one.lock("a", ttl=1, at_least=1)
    fails(lambda: one.lock("a", ttl=True, at_least=1), TypeError, "ttl", "True")
    fails(lambda: one.lock("a", ttl=1, at_least=True), TypeError, "at_least", "True")


@pytest.mark.parametrize("ttl", [0.1, 0.05, timedelta(milliseconds=100)])
def test_a_ttl_must_be_longer_than_the_node_timeout(ttl: float) -> None:
    """The lock's ttl is compared with the manager's node timeout; both are in the message."""
    fails(
        lambda: manager(node_timeout=0.1).lock("a", ttl=ttl), ValueError, "node_timeout=0.1", f"ttl={ttl!r}"
    )


@pytest.mark.parametrize(("value", "error"), [*NO_NUMBERS, *NEGATIVE])
def test_a_wrong_blocking_timeout_is_named(value: object, error: type[Exception]) -> None:
    """Not a number, or negative."""
    call = lambda: manager().lock("a", blocking_timeout=value)  # type: ignore[arg-type]  # noqa: E731
    fails(call, error, "blocking_timeout", repr(value))


def test_not_blocking_and_waiting_contradict_each_other() -> None:
    """``blocking=False`` with a time to wait is an error; with 0 it says the same thing twice."""
    fails(lambda: manager().lock("a", blocking=False, blocking_timeout=2.5), ValueError, "blocking", "2.5")
    fails(lambda: manager().lock("a", blocking=False, blocking_timeout=0.1), ValueError, "blocking", "0.1")
    manager().lock("a", blocking=False, blocking_timeout=0)


@pytest.mark.parametrize("value", [5, 0.3, True, {"every": 0.5}, RetryPolicy()])
def test_a_wrong_extension_is_named(value: object) -> None:
    """A lock's extension is an `ExtensionPolicy` or None."""
    fails(lambda: manager().lock("a", extension=value), TypeError, "extension", repr(value))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["", "ignore", "RAISE", 1])
def test_a_wrong_on_lost_is_named(value: object) -> None:
    """A lock's on_lost is one of two words, or None."""
    fails(lambda: manager().lock("a", on_lost=value), ValueError, "on_lost", repr(value))  # type: ignore[arg-type]


WRONG_NAMES: list[tuple[object, type[Exception], str]] = [
    ("", ValueError, "''"),
    ("x" * 1025, ValueError, "x" * 60),
    ("ü" * 513, ValueError, "ü" * 60),
    ("a\ud800", ValueError, repr("a\ud800")),
    ("fence:{a}", ValueError, "fence:{a}"),
    ("{meta}", ValueError, "{meta}"),
    ("{meta}more", ValueError, "{meta}more"),
    (None, TypeError, "None"),
    (5, TypeError, "5"),
    (b"a", TypeError, "b'a'"),
    (["a"], TypeError, "['a']"),
]


@pytest.mark.parametrize(("name", "error", "shown"), WRONG_NAMES)
def test_a_wrong_name_is_shown(name: Any, error: type[Exception], shown: str) -> None:
    """Empty, over a kilobyte, not UTF-8, reserved, or no text: alone, and among names that are right."""
    fails(lambda: manager().lock(name), error, "name", shown)
    fails(lambda: manager().lock("a", name), error, "name", shown)
    fails(lambda: manager().lock(name, "a"), error, "name", shown)


def test_a_long_name_is_shown_with_its_size() -> None:
    """The message has the number of bytes, and not the whole kilobyte."""
    message = fails(lambda: manager().lock("x" * 5000), ValueError, "5000", "1024")
    assert len(message) < 300


def test_a_lock_needs_a_name_and_has_a_limit() -> None:
    """No name at all, or too many of them."""
    fails(lambda: manager().lock(), ValueError, "none")
    fails(lambda: manager().lock(*map(str, range(65))), ValueError, "64", "65")
    manager().lock(*map(str, range(64)), *map(str, range(64)))


@pytest.mark.parametrize(
    "name", ["a", "x" * 1024, "ü" * 512, " ", "\x00", "a\nb", "fence:", "meta", "a{meta}"]
)
def test_right_names_are_taken(name: str) -> None:
    """Any text from one byte to a kilobyte is a name."""
    assert manager().lock(name).names == (name,)


def test_names_are_sorted_and_unique() -> None:
    """The order and repetition of names make no difference."""
    assert manager().lock("b", "a", "b").names == ("a", "b")


def test_a_wrong_name_to_look_at_is_named() -> None:
    """`inspect` and `force_release` check the name as `lock` does; `extend` the ttl."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        nodes = [MemoryNode() for _ in range(3)]
        async with LockManager(nodes, clock=loop.clock, random=random.Random(1)) as manager:
            for name, error, _ in WRONG_NAMES:
                with pytest.raises(error, match="name"):
                    await manager.inspect(name)  # type: ignore[arg-type]
                with pytest.raises(error, match="name"):
                    await manager.force_release(name)  # type: ignore[arg-type]
            async with manager.lock("a") as lease:
                before = lease.valid_until
                for ttl, error in [*NO_TTLS, (0.1, ValueError)]:
                    with pytest.raises(error, match="ttl") as caught:
                        await lease.extend(ttl)  # type: ignore[arg-type]
                    assert repr(ttl) in str(caught.value)
                assert (lease.valid_until, lease.held) == (before, True)

    SimLoop.run(main())


# -- the policies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"base": value}, error, "RetryPolicy.base")
        for value, error in [*NO_NUMBERS, (0, ValueError), (-1, ValueError)]
    ]
    + [
        ({"cap": value}, error, "RetryPolicy.cap")
        for value, error in [*NO_NUMBERS, (0, ValueError), (-1, ValueError)]
    ]
    + [
        ({"base": 0.2, "cap": 0.1}, ValueError, "RetryPolicy.cap"),
        ({"base": 1}, ValueError, "RetryPolicy.cap"),
    ],
)
def test_a_wrong_retry_policy_is_named(options: dict[str, Any], error: type[Exception], word: str) -> None:
    """Not a number, not positive, or a cap below the base."""
    fails(lambda: RetryPolicy(**options), error, word, *map(repr, options.values()))


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [({"every": value}, error, "every") for value, error in NO_NUMBERS]
    + [({"every": value}, ValueError, "every") for value in (0, 1e-9, 0.0099, -0.1, 1, 1.5)]
    + [({"grace": value}, error, "grace") for value, error in NO_NUMBERS]
    + [({"grace": value}, ValueError, "grace") for value in (-0.1, 0.46, 1)]
    + [({"every": 0.6, "grace": 0.4}, ValueError, "every"), ({"every": 0.95}, ValueError, "every")]
    + [({"max_extensions": value}, TypeError, "max_extensions") for value in (1.5, "3", True, NAN)]
    + [({"max_extensions": -1}, ValueError, "max_extensions")],
)
def test_a_wrong_extension_policy_is_named(
    options: dict[str, Any], error: type[Exception], word: str
) -> None:
    """Not a number, no share of the ttl, no room for a round, or no count."""
    fails(lambda: ExtensionPolicy(**options), error, f"ExtensionPolicy.{word}", *map(repr, options.values()))


# -- the node list -----------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [[], (), iter([])])
def test_no_nodes_are_no_quorum(nodes: Any) -> None:
    """An empty list is a configuration error, which is a ValueError."""
    fails(lambda: LockManager(nodes), ConfigurationError, "none")
    assert issubclass(ConfigurationError, ValueError)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("redis://h", "redis://h"),
        ("redis://h/0", "redis://h/1"),
        ("redis://h", "redis://h:6379"),
        ("redis://h:7000", "redis://h:7000/3"),
        ("redis://h", "redis://H"),
        ("redis://h", "valkey://h"),
        ("redis://h", "rediss://h"),
        ("redis://h", "redis://user:s3chunt3r@h"),
        ("redis://one:s3chunt3r@h", "redis://two:t0phunt3r@h"),
        ("redis://h?db=1", "redis://h?db=2"),
        ("unix:///tmp/s.sock", "unix:///tmp/s.sock?db=1"),
        ("unix:///tmp/s.sock", "unix://user:s3chunt3r@/tmp/s.sock"),
        ("redis://[::1]:6379", "redis://[::1]"),
    ],
)
def test_one_server_given_twice_is_named(one: str, other: str) -> None:
    """Another database, scheme or user does not make another server; the message names it, without secrets
    (A4).
    """
    where = "s.sock" if "unix" in one else "::1" if "::1" in one else "h"
    message = fails(lambda: LockManager([one, "redis://x", other]), ConfigurationError, "twice", where)
    assert not has_secret(message)


@pytest.mark.parametrize(
    "nodes",
    [
        ["redis://h:1", "redis://h:2", "redis://g:1"],
        ["unix:///tmp/a", "unix:///tmp/b"],
        ["rediss://a", "valkeys://b", "valkey://c", "redis://d:7000/3"],
        ["redis://user:s3chunt3r@h:1", "redis://user:s3chunt3r@h:2"],
        ["redis://h"],
    ],
)
def test_different_servers_are_taken(nodes: list[str]) -> None:
    """Another host, port or path is another server; any iterable will do."""
    LockManager(nodes)
    LockManager(tuple(nodes))
    LockManager(url for url in nodes)


def test_one_client_or_master_given_twice_is_named() -> None:
    """Clients by address, masters in memory by identity; a URL and a client of the same server as well."""
    memory = MemoryNode("alpha")
    fails(lambda: LockManager([memory, memory]), ConfigurationError, "twice", "alpha")
    client = Redis(host="h", password="s3chunt3r")
    twins: list[object] = [
        client,
        Redis(host="h", port=6379, db=3),
        "redis://h",
        "redis://user:s3chunt3r@h/5",
    ]
    for twin in twins:
        message = fails(lambda twin=twin: LockManager([client, twin]), ConfigurationError, "twice", "h")  # type: ignore[misc]
        assert not has_secret(message)
    LockManager([client, Redis(host="h", port=6380), Redis(host="g")])


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        (None, "NoneType"),
        (5, "int"),
        (b"redis://h", "bytes"),
        (("h", 6379), "tuple"),
        ({"host": "h"}, "dict"),
        (object(), "object"),
        (redis.Redis(host="h"), "Redis"),
    ],
)
def test_what_cannot_be_a_node_is_named(spec: Any, shown: str) -> None:
    """The message has the kind of thing, and not the thing, which may hold a password."""
    fails(lambda: LockManager(["redis://x", spec]), ConfigurationError, shown)


def test_one_string_is_no_list() -> None:
    """A URL in place of the list is not taken for a list of letters."""
    message = fails(lambda: LockManager("redis://user:s3chunt3r@h"), ConfigurationError, "list")
    assert not has_secret(message)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h", "http://h"),
        ("REDIS:/h", "REDIS:/h"),
        ("10.0.0.1:6379", "10.0.0.1:6379"),
        ("", "''"),
        ("://h", "://h"),
    ],
)
def test_an_unknown_scheme_is_named(url: str, shown: str) -> None:
    """The message has the URL and what would be right."""
    fails(lambda: LockManager([url]), ConfigurationError, shown, "redis://", "valkeys://")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:port", "redis://h"),
        ("redis://h:99999", "redis://h"),
        ("redis://[::1", "redis://"),
        ("redis://", "redis://"),
        ("redis:///0", "redis://"),
        ("unix://", "unix://"),
        ("redis://h?socket_timeout=soon", "redis://h"),
        ("redis://h?no_such_option=1", "redis://h"),
        ("redis+sentinel://h", "redis+sentinel://h"),
    ],
)
def test_a_malformed_url_is_a_configuration_error(url: str, shown: str) -> None:
    """Not a bare ValueError or TypeError from the depths of a parser; and the node is named."""
    fails(lambda: LockManager([url]), ConfigurationError, shown)


SECRETS = ("s3chunt3r", "t0phunt3r")


def has_secret(text: str) -> bool:
    """Say whether a password of these tests, or half of one, is in a text."""
    return any(secret in text or secret[:3] in text or secret[-4:] in text for secret in SECRETS)


LEAKY_URLS = [
    # right ones
    "redis://user:s3chunt3r@h:6379/0",
    "redis://:s3chunt3r@h",
    "redis://h?password=s3chunt3r",
    "redis://h?username=user&password=s3chunt3r",
    "unix://user:s3chunt3r@/tmp/s.sock",
    "redis://user:top@s3chunt3r@h",
    "redis://h?password=top@s3chunt3r",
    "redis://user:s3chunt3r@h?password=t0phunt3r",
    "redis://user:s3chunt3r@h?password=x@t0phunt3r",
    # an unknown scheme, or none
    "http://user:s3chunt3r@h",
    "http://h?password=s3chunt3r",
    "http://h?password=top@s3chunt3r",
    "user:s3chunt3r@h",
    ":s3chunt3r@h:6379",
    "redis:/user:s3chunt3r@h",
    "redis//user:s3chunt3r@h",
    "redis:user:s3chunt3r@h",
    "h:6379?password=s3chunt3r",
    "user:s3chunt3r@redis://h",
    # malformed
    "redis://user:s3chunt3r@h:port",
    "redis://user:s3chunt3r@[::1",
    "redis://user:s3#cret@h",
    "redis://user:s3/cret@h",
    "redis://user:s3?cret@h",
    "redis://user:s3chunt3r@",
    "redis://user:s3chunt3r@/0",
    "redis://user:s3chunt3r@h?no_such_option=1",
    "redis://h:port?password=s3chunt3r",
    "redis://h?password=s3chunt3r&socket_timeout=soon",
    "redis://h?password=top@s3chunt3r&socket_timeout=soon",
    "redis://user:s3chunt3r",  # the host was forgotten
    "redis://:s3chunt3r",
    "http://user:s3chunt3r",
    "unix://user:s3chunt3r@",
    " redis://user:s3chunt3r@h",
    "redis://user:s3chunt3r@h\n",
    "redis://user:s3chunt3r@h:6379:6379",
]


@pytest.mark.parametrize("url", LEAKY_URLS)
def test_a_password_is_never_shown(url: str) -> None:
    """Wherever in a URL it stands: not in the error, not in its traceback, not in the manager's `repr`."""
    shown = []
    try:
        shown.append(repr(LockManager([url])))
    except ConfigurationError as error:
        shown.append(str(error))
        shown += traceback.format_exception(error)
        shown.append(repr(error.__cause__))
    duplicate = None
    try:
        LockManager([url, url])
    except ConfigurationError as error:
        duplicate = str(error)
    assert duplicate is not None
    for text in [*shown, duplicate]:
        assert not has_secret(text), text


def test_a_clients_password_is_never_shown() -> None:
    """The `repr` of a manager over clients has addresses only."""
    clients = [Redis(host=f"h{i}", username="user", password="s3chunt3r") for i in range(3)]
    clients.append(Redis.from_url("redis://user:t0phunt3r@h9?password=s3chunt3r"))
    clients.append(Redis.from_url("unix://user:s3chunt3r@/tmp/s.sock"))
    text = repr(LockManager(clients))
    assert not has_secret(text)
    assert "h0" in text
    assert "s.sock" in text


# -- from_env ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", "  ", ",", " , ,"])
def test_an_environment_without_urls_is_an_error(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing or empty: the message names the variable and shows what it should look like."""
    monkeypatch.delenv("REDLOCK_URLS", raising=False)
    if value is not None:
        monkeypatch.setenv("REDLOCK_URLS", value)
    fails(LockManager.from_env, ConfigurationError, "REDLOCK_URLS", "redis://")


def test_the_environment_lists_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Separated by commas, with or without blanks; options are those of the constructor."""
    monkeypatch.setenv("REDLOCK_URLS", " redis://a , redis://b:7000/1,, valkey://user:s3chunt3r@c,")
    made = LockManager.from_env(ttl=5)
    assert [node.name for node in made.statistics().nodes] == ["redis://a", "redis://b:7000/1", "valkey://c"]
    assert "ttl=5s" in repr(made.lock("x"))
    fails(lambda: LockManager.from_env(ttl=-5), ValueError, "ttl", "-5")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("redis://a,http://user:s3chunt3r@b", "http://b"),
        ("redis://a,redis://user:s3chunt3r@a", "redis://a"),
        ("redis://a,redis://b:s3chunt3r@c:x", "redis://c"),
    ],
)
def test_a_wrong_url_in_the_environment_is_named(
    value: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same errors as for a list, without the password."""
    monkeypatch.setenv("REDLOCK_URLS", value)
    message = fails(LockManager.from_env, ConfigurationError, shown)
    assert not has_secret(message)


@pytest.mark.parametrize("before", ["redis://a,redis://", "redis://", ""])
@pytest.mark.parametrize("password", ["12,SECRET,x", "SECRET,", ",SECRET"])
def test_a_password_with_a_comma_in_a_list_of_urls_is_not_shown(
    before: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cut in pieces by it is told without any of them, and with what to write instead."""
    monkeypatch.setenv("REDLOCK_URLS", f"{before}user:{password}@b")
    with pytest.raises(ConfigurationError, match="%2C") as caught:
        LockManager.from_env()
    assert "SECRET" not in str(caught.value)


def test_a_number_that_cannot_be_written_down_is_refused_like_others() -> None:
    """The message names the parameter, and how large the number is."""
    with pytest.raises(ValueError, match=r"base must be finite, got an integer of 16610 bits"):
        RetryPolicy(base=10**5000)
