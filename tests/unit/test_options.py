"""Wrong input: the named error, at the call, with the value in it; and never a password."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
import redis
from redis.asyncio import Redis

from aioredlock_ng import ConfigurationError, ExtensionPolicy, LockManager, RetryPolicy
from aioredlock_ng._settings.options import OPTIONS_OF, ManagerOptions, Options
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import world

NAN, INF = float("nan"), float("inf")
URLS = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
DAY = 24 * 3600

Row = tuple[object, type[Exception]]

NO_NUMBERS: list[Row] = [(value, TypeError) for value in ("5", b"5", True, [], 1j, Decimal(5))]
NO_NUMBERS += [(value, ValueError) for value in (NAN, INF, -INF)]
NOT_POSITIVE: list[Row] = [
    (value, ValueError) for value in (0, 0.0, -1, -0.5, timedelta(0), timedelta(seconds=-1))
]
NEGATIVE: list[Row] = [(value, ValueError) for value in (-1, -0.001, timedelta(microseconds=-1))]
TOO_LONG: list[Row] = [(value, ValueError) for value in (DAY + 0.001, 1e9, timedelta(days=2))]
TOO_SHORT: list[Row] = [(value, ValueError) for value in (0.0049, timedelta(milliseconds=4))]
NO_TTLS = [*NO_NUMBERS, *NOT_POSITIVE, *TOO_SHORT, *TOO_LONG]


def manager(**options: Any) -> LockManager:
    """Make a manager that is never started."""
    return LockManager(URLS, **options)


def fails(call: Callable[[], object], error: type[Exception], *words: str) -> str:
    """Make the call, which must fail with exactly `error` and all `words` in its message."""
    raised = None
    try:
        call()
    except error as caught:
        raised = caught
    message = str(raised)
    assert type(raised) is error, (raised, words)
    assert not [word for word in words if word not in message], message
    return message


# -- the manager's settings --------------------------------------------------------------------------


NONE: Row = (None, TypeError)
WRONG_SETTINGS: dict[str, list[Row]] = {
    "ttl": [*NO_TTLS, NONE],
    "node_timeout": [*NO_NUMBERS, *NOT_POSITIVE, NONE],
    "connect_timeout": [*NO_NUMBERS, *NOT_POSITIVE, NONE],
    "prefix": [(value, TypeError) for value in (b"p:", None, 5)],
    "retry": [(value, TypeError) for value in (None, 3, {"base": 1}, ExtensionPolicy())],
    "extension": [(value, TypeError) for value in (None, False, 0.3, RetryPolicy())],
    "on_lost": [(value, ValueError) for value in ("", "ignore", "Cancel", None, 1)],
    "holder": [
        *((value, TypeError) for value in (5, b"me")),
        *((value, ValueError) for value in ("a\nb", "a\x00b", "x" * 201, "\ud800")),
    ],
    "restart_quarantine": [*NO_NUMBERS, *NEGATIVE, *TOO_LONG],
    "fencing": [(value, TypeError) for value in (None, 1, "yes")],
    "fence_ttl": [
        *NO_NUMBERS, *NEGATIVE, NONE,
        *((value, ValueError) for value in (0, 299.9, timedelta(minutes=4), 30 * DAY + 1)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("option", WRONG_SETTINGS)
def test_a_wrong_setting_is_named_at_once(option: str) -> None:
    """The manager is not made; the message has the setting's name and the value."""
    for value, error in WRONG_SETTINGS[option]:
        fails(partial(manager, **{option: value}), error, option, repr(value))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ttl": 2.0, "node_timeout": 2.0}, ("node_timeout=2.0", "ttl=2.0")),
        ({"ttl": 2.0, "node_timeout": 2.5}, ("node_timeout=2.5", "ttl=2.0")),
        ({"node_timeout": 10}, ("node_timeout=10", "ttl=10.0")),
        ({"prefix": "\ud800"}, ("prefix", "\\ud800")),
        *(({option: 10**400}, (option,)) for option in ("ttl", "node_timeout", "connect_timeout")),
        *(({option: -(10**400)}, (option,)) for option in ("ttl", "node_timeout", "connect_timeout")),
    ],
)
def test_settings_that_do_not_go_together_are_named(options: dict[str, Any], words: tuple[str, ...]) -> None:
    """A node timeout that is no shorter than the ttl, a prefix that is no UTF-8, a number beyond floats."""
    fails(lambda: manager(**options), ValueError, *words)


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


# -- the lock ----------------------------------------------------------------------------------------


WRONG_OPTIONS: dict[str, list[Row]] = {
    "ttl": NO_TTLS,
    "blocking_timeout": [*NO_NUMBERS, *NEGATIVE],
    "extension": [(value, TypeError) for value in (5, 0.3, True, {"every": 0.5}, RetryPolicy())],
    "on_lost": [(value, ValueError) for value in ("", "ignore", "RAISE", 1)],
}


@pytest.mark.parametrize("option", WRONG_OPTIONS)
def test_a_wrong_option_is_named_at_the_call(option: str) -> None:
    """``manager.lock(…)`` fails itself, and not when the lock is entered."""
    for value, error in WRONG_OPTIONS[option]:
        fails(partial(manager().lock, "a", **{option: value}), error, option, repr(value))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ttl": 0.1}, ("node_timeout=0.1", "ttl=0.1")),
        ({"ttl": 0.05}, ("node_timeout=0.1", "ttl=0.05")),
        ({"ttl": timedelta(milliseconds=100)}, ("node_timeout=0.1", "ttl=datetime.timedelta(microsec")),
        ({"ttl": 10**400}, ("ttl",)),
        ({"blocking": False, "blocking_timeout": 2.5}, ("blocking", "2.5")),
        ({"blocking": False, "blocking_timeout": 0.1}, ("blocking", "0.1")),
    ],
)
def test_options_that_contradict_are_named(options: dict[str, Any], words: tuple[str, ...]) -> None:
    """A ttl that is no longer than the manager's node timeout; ``blocking=False`` with a time to wait."""
    fails(lambda: manager(node_timeout=0.1).lock("a", **options), ValueError, *words)
    manager().lock("a", blocking=False, blocking_timeout=0)  # says the same thing twice


def test_an_option_is_known_to_type_checkers_and_to_the_check() -> None:
    """The options in the signatures are those of the `TypedDict`s, and each is in one of them."""
    known = [set(options.__optional_keys__) for options in OPTIONS_OF.values()]
    for method, options in zip(OPTIONS_OF, known, strict=True):
        assert options <= set(inspect.signature(getattr(LockManager, method)).parameters)
    assert set().union(*known) == set(inspect.signature(Options.request).parameters) - {"self"}
    assert ManagerOptions.__optional_keys__ == set(inspect.signature(LockManager).parameters) - {"nodes"}


WRONG_NAMES: list[tuple[object, type[Exception], str]] = [
    *((name, ValueError, name) for name in ("fence:{a}", "{meta}", "{meta}more")),
    *((name, TypeError, repr(name)) for name in (None, 5, b"a", ["a"])),
    ("", ValueError, "''"),
    ("x" * 1025, ValueError, "x" * 60),
    ("ü" * 513, ValueError, "ü" * 60),
    ("a\ud800", ValueError, repr("a\ud800")),
]


@pytest.mark.parametrize(("name", "error", "shown"), WRONG_NAMES)
def test_a_wrong_name_is_shown(name: Any, error: type[Exception], shown: str) -> None:
    """Empty, over a kilobyte, not UTF-8, reserved, or no text: alone, and among names that are right."""
    for names in ((name,), ("a", name), (name, "a")):
        fails(lambda names=names: manager().lock(*names), error, "name", shown)  # type: ignore[misc]


def test_names_that_are_too_long_or_too_many() -> None:
    """The message has the number of bytes, and not the whole kilobyte; or how many there are."""
    assert len(fails(lambda: manager().lock("x" * 5000), ValueError, "5000", "1024")) < 300
    fails(lambda: manager().lock(), ValueError, "none")
    fails(lambda: manager().lock(*map(str, range(65))), ValueError, "64", "65")
    manager().lock(*map(str, range(64)), *map(str, range(64)))


async def test_a_wrong_name_to_look_at_is_named() -> None:
    """`inspect` and `force_release` check the name as `lock` does; `extend` the ttl.  Nothing is sent."""
    async with world() as w:
        for name, error, _ in WRONG_NAMES:
            for use in (w.manager.inspect, w.manager.force_release):
                with pytest.raises(error, match="name"):
                    await use(name)  # type: ignore[arg-type]
        assert [node.executed for node in w.nodes] == [[]] * 3
        async with w.manager.lock("a") as lease:
            before = lease.valid_until
            for ttl, error in [*NO_TTLS, (0.1, ValueError)]:
                with pytest.raises(error, match="ttl") as caught:
                    await lease.extend(ttl)  # type: ignore[arg-type]
                assert repr(ttl) in str(caught.value)
            assert (lease.valid_until, lease.held) == (before, True)


# -- the policies ------------------------------------------------------------------------------------


WRONG_POLICIES: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    *((RetryPolicy, {name: value}, error, f"RetryPolicy.{name}")
      for name in ("base", "cap") for value, error in [*NO_NUMBERS, (0, ValueError), (-1, ValueError)]),
    (RetryPolicy, {"base": 0.2, "cap": 0.1}, ValueError, "RetryPolicy.cap"),
    (RetryPolicy, {"base": 1}, ValueError, "RetryPolicy.cap"),
    *((ExtensionPolicy, {name: value}, error, name)
      for name in ("every", "grace") for value, error in NO_NUMBERS),
    *((ExtensionPolicy, {"every": value}, ValueError, "every")
      for value in (0, 1e-9, 0.0099, -0.1, 1, 1.5, 0.95)),
    *((ExtensionPolicy, {"grace": value}, ValueError, "grace") for value in (-0.1, 0.46, 1)),
    (ExtensionPolicy, {"every": 0.6, "grace": 0.4}, ValueError, "every"),
    *((ExtensionPolicy, {"max_extensions": value}, TypeError, "max_extensions")
      for value in (1.5, "3", True, NAN)),
    (ExtensionPolicy, {"max_extensions": -1}, ValueError, "max_extensions"),
]  # fmt: skip


def test_a_wrong_policy_is_named() -> None:
    """Not a number, not positive, a cap below the base; no share of the ttl, no room for a round."""
    for make, options, error, word in WRONG_POLICIES:
        fails(partial(make, **options), error, f"{make.__name__}.", word, *map(repr, options.values()))


# -- the node list -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        *(((nodes), ("none",)) for nodes in ([], (), iter([]))),
        *((["redis://x", spec], (type(spec).__name__,))
          for spec in (None, 5, b"redis://h", ("h", 6379), {"host": "h"}, object(), redis.Redis(host="h"))),
        ("redis://user:s3chunt3r@h", ("list",)),  # not taken for a list of letters
        *(([url], (shown, "redis://", "valkeys://")) for url, shown in (
            ("http://h", "http://h"), ("REDIS:/h", "REDIS:/h"), ("10.0.0.1:6379", "10.0.0.1:6379"),
            ("", "''"), ("://h", "://h"),
        )),
        *(([url], (shown,)) for url, shown in (
            ("redis://h:port", "redis://h"), ("redis://h:99999", "redis://h"), ("redis://[::1", "redis://"),
            ("redis://", "redis://"), ("redis:///0", "redis://"), ("unix://", "unix://"),
            ("redis://h?socket_timeout=soon", "redis://h"), ("redis://h?no_such_option=1", "redis://h"),
            ("redis+sentinel://h", "redis+sentinel://h"),
        )),
    ],
)  # fmt: skip
def test_what_cannot_be_a_list_of_nodes_is_named(nodes: Any, words: tuple[str, ...]) -> None:
    """Nothing, no list, what is no node (by its kind: it may hold a password), a URL that cannot be one."""
    assert not has_secret(fails(lambda: LockManager(nodes), ConfigurationError, *words))
    assert issubclass(ConfigurationError, ValueError)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("redis://h", other) for other in (
            "redis://h", "redis://h:6379", "redis://H", "valkey://h", "rediss://h", "redis://user:s3chunt3r@h",
        )),
        ("redis://h/0", "redis://h/1"), ("redis://h:7000", "redis://h:7000/3"),
        ("redis://h?db=1", "redis://h?db=2"),
        ("redis://one:s3chunt3r@h", "redis://two:t0phunt3r@h"), ("redis://[::1]:6379", "redis://[::1]"),
        ("unix:///tmp/s.sock", "unix:///tmp/s.sock?db=1"),
        ("unix:///tmp/s.sock", "unix://user:s3chunt3r@/tmp/s.sock"),
    ],
)  # fmt: skip
def test_one_server_given_twice_is_named(one: str, other: str) -> None:
    """Another database, scheme or user does not make another server; the message names it, without secrets
    (A4).
    """
    where = "s.sock" if "unix" in one else "::1" if "::1" in one else "h"
    message = fails(lambda: LockManager([one, "redis://x", other]), ConfigurationError, "twice", where)
    assert not has_secret(message)


def test_one_client_or_master_given_twice_is_named() -> None:
    """Clients by address, masters in memory by identity; a URL and a client of the same server as well."""
    memory = MemoryNode("alpha")
    fails(lambda: LockManager([memory, memory]), ConfigurationError, "twice", "alpha")
    client = Redis(host="h", password="s3chunt3r")
    for twin in (client, Redis(host="h", port=6379, db=3), "redis://h", "redis://user:s3chunt3r@h/5"):
        message = fails(lambda twin=twin: LockManager([client, twin]), ConfigurationError, "twice", "h")  # type: ignore[misc]
        assert not has_secret(message)
    LockManager([client, Redis(host="h", port=6380), Redis(host="g")])


SECRETS = ("s3chunt3r", "t0phunt3r")


def has_secret(text: str) -> bool:
    """Say whether a password of these tests, or half of one, is in a text."""
    return any(secret in text or secret[:3] in text or secret[-4:] in text for secret in SECRETS)


# -- from_env ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((value, ("REDLOCK_URLS", "redis://")) for value in (None, "", "  ", ",", " , ,")),
        ("redis://a,http://user:s3chunt3r@b", ("http://b",)),
        ("redis://a,redis://user:s3chunt3r@a", ("redis://a",)),
        ("redis://a,redis://b:s3chunt3r@c:x", ("redis://c",)),
        *((f"{before}user:{password}@b", ("%2C",))
          for before in ("redis://a,redis://", "redis://", "")
          for password in ("12,s3chunt3r,x", "s3chunt3r,", ",s3chunt3r")),
    ],
)  # fmt: skip
def test_wrong_urls_in_the_environment(
    value: str | None, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is named, or the node without its password, or what to write for a comma."""
    monkeypatch.delenv("REDLOCK_URLS", raising=False)
    if value is not None:
        monkeypatch.setenv("REDLOCK_URLS", value)
    assert not has_secret(fails(LockManager.from_env, ConfigurationError, *words))


def test_the_environment_lists_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Separated by commas, with or without blanks; options are those of the constructor."""
    monkeypatch.setenv("REDLOCK_URLS", " redis://a , redis://b:7000/1,, valkey://user:s3chunt3r@c,")
    made = LockManager.from_env(ttl=5)
    assert [node.name for node in made.statistics().nodes] == ["redis://a", "redis://b:7000/1", "valkey://c"]
    assert "ttl=5s" in repr(made.lock("x"))
    fails(lambda: LockManager.from_env(ttl=-5), ValueError, "ttl", "-5")


def test_a_number_that_cannot_be_written_down_is_refused_like_others() -> None:
    """The message names the parameter, and how large the number is."""
    fails(lambda: RetryPolicy(base=10**5000), ValueError, "base must be finite, got an integer of 16610 bits")
