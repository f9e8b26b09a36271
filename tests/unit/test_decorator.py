"""``@manager.locked(template)``: an async function under a lock, on virtual time."""

from __future__ import annotations

import asyncio
import functools
import inspect
import string
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from aioredlock_ng import (
    ExtensionPolicy,
    LockLostError,
    LockManager,
    LockTakenError,
    LossReason,
    QuorumUnavailableError,
    WouldDeadlockError,
)
from aioredlock_ng.testing import lose
from tests.unit.traces import locks
from tests.unit.worlds import World, world


def held(w: World) -> list[str]:
    """Return the names that are locked on the first master."""
    return [key.decode().removeprefix("redlock:") for key in locks(w.nodes[0])]


def decorate(template: Any, function: Any, **options: Any) -> Any:
    """Decorate a function that is never called."""
    return LockManager(["redis://localhost"]).locked(template, **options)(function)


class Plain:
    """An object without a text of its own."""

    number = 7

    def method(self) -> None:
        """Be bound."""


class Named(Plain):
    """One that has a text of its own making, which may be anything."""

    def __str__(self) -> str:
        return "named"


class Number(IntEnum):
    """An enumeration with numbers."""

    ONE = 1


class Odd(Enum):
    """One whose values have no text."""

    SOME = frozenset("ab")


class Salted(str):
    """A str that is not."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return str(hash(str(self)))


class OtherUUID(UUID):
    """The UUID of a database driver, which has its own methods for the same text."""

    def __str__(self) -> str:
        return super().__str__()


class Zone(tzinfo):
    """A time zone that has no text."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        """Return its distance from UTC."""
        return timedelta(0)

    dst = utcoffset


@dataclass
class Around:
    """One whose text has that of another object in it."""

    inner: object


# -- the name ----------------------------------------------------------------------------------------


async def test_the_template_is_filled_from_the_calls_arguments() -> None:
    """By position, by keyword, by default, keyword-only: the name is the same.  `self`, positional-only
    parameters, ``*args`` and ``**kwargs`` are parameters like others; the result is the function's own.
    """
    async with world() as w:

        @w.manager.locked("report:{customer}:{year}:{kind}")
        async def report(customer: int, year: int = 2024, *, kind: str = "short") -> list[str]:
            return held(w)

        assert await report(7) == ["report:7:2024:short"]
        assert await report(7, 2025) == ["report:7:2025:short"]
        assert await report(customer=8, kind="long") == ["report:8:2024:long"]
        assert await report(9, year=2026, kind="long") == ["report:9:2026:long"]

        class Shop:
            name = "main"

            @w.manager.locked("{self.name}:{number}:{rest[0]}:{more[colour]}")
            async def sell(self, number: int, /, *rest: str, **more: str) -> tuple[Any, ...]:
                return held(w), rest, more

        found = await Shop().sell(5, "a", "b", colour="red")
        assert found == (["main:5:a:red"], ("a", "b"), {"colour": "red"})
        assert held(w) == []


async def test_wrong_arguments_fail_as_without_the_decorator() -> None:
    """A missing or unknown argument is the TypeError that the function itself would raise, and one that makes
    an empty name fails the call: before anything is sent.  The function's own error comes through.
    """
    error = KeyError("mine")
    async with world() as w:

        @w.manager.locked("{name}")
        async def work(name: str) -> None:
            raise error

        for args, more, kind, words in (
            ((), {}, TypeError, "name"),
            ((1,), {"colour": "red"}, TypeError, "colour"),
            (("",), {}, ValueError, "must not be empty"),
        ):
            with pytest.raises(kind, match=words):
                await work(*args, **more)
        assert w.nodes[0].executed == []
        with pytest.raises(KeyError) as caught:
            await work("a")
        assert caught.value is error
        assert held(w) == []


# -- the function ------------------------------------------------------------------------------------


def test_signature_and_name_are_kept() -> None:
    """Frameworks that look at the function see the original's signature, name, docstring and kind."""

    async def work(number: int, /, *, flag: bool = False) -> str:
        """Work."""
        return f"{number}{flag}"

    wrapped = decorate("{number}", work)
    assert inspect.signature(wrapped) == inspect.signature(work)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__module__) == ("work", "Work.", work.__module__)
    assert inspect.iscoroutinefunction(wrapped)
    assert inspect.unwrap(wrapped) is work


# -- the lock's options ------------------------------------------------------------------------------


async def test_the_options_are_the_locks() -> None:
    """ttl, blocking_timeout, extension, on_lost and label reach the lock.  Else the label is the template,
    and of a lock without one its kind.
    """
    labels: list[str] = []
    async with world(hooks=[SimpleNamespace(on_acquired=lambda event: labels.append(event.label))]) as w:

        @w.manager.locked("{name}", ttl=60)
        async def long(name: str) -> float:
            return w.nodes[0].ttl(b"redlock:x") or 0

        @w.manager.locked("x", blocking_timeout=0)
        async def impatient() -> None:
            raise AssertionError("not reached")

        @w.manager.locked("x", ttl=1, extension=ExtensionPolicy.off(), on_lost="raise", label="late")
        async def overdue() -> None:
            await asyncio.sleep(2)  # is not cancelled
            labels.append("done")

        assert await long("x") == pytest.approx(60, abs=0.1)
        async with w.manager.lock("x"):
            with pytest.raises(LockTakenError):
                await impatient()
        with pytest.raises(LockLostError):
            await overdue()
    assert labels == ["{name}", "mutex", "late", "done"]


async def test_calls_in_mode_read_run_together_and_one_in_mode_write_alone() -> None:
    """It is the read-write lock of that name; calls of another name run beside it."""
    inside: list[str] = []
    seen: list[list[str]] = []
    async with world() as w:

        def locked_in(mode: Any) -> Any:
            @w.manager.locked("{name}", ttl=20, mode=mode)
            async def work(name: str) -> None:
                inside.append(mode)
                await asyncio.sleep(1)
                seen.append(sorted(inside))
                inside.remove(mode)

            return work

        read, write = locked_in("read"), locked_in("write")
        async with w.manager.rwlock("a").read():
            await asyncio.create_task(read("a"))
        await asyncio.gather(read("a"), read("a"), write("a"), read("b"))
        assert seen == [["read"], ["read"] * 3, ["read"] * 2, ["read"], ["write"]]
        assert held(w) == []


async def test_several_names_are_held_together() -> None:
    """All or none: a call whose second name is taken has neither; names that turn out equal are one."""
    labels: list[str] = []
    async with world(hooks=[SimpleNamespace(on_acquired=lambda event: labels.append(event.label))]) as w:

        @w.manager.locked("from:{a}", "{b}", blocking=False)
        async def move(a: str, b: str) -> list[str]:
            return held(w)

        assert await move("x", "y") == ["from:x", "y"]
        assert await move("x", "from:x") == ["from:x"]
        assert labels == ["from:{a}, {b}"] * 2
        async with w.manager.lock("y"):
            with pytest.raises(LockTakenError):
                await move("x", "y")
            assert held(w) == ["y"]

        @w.manager.locked("{a}", "{b}", ttl=20)
        async def slow(a: str, b: str) -> None:
            await asyncio.sleep(1)

        await asyncio.gather(*[slow("a", "b"), slow("b", "a"), slow("b", "c"), slow("c", "a")] * 5)

        @w.manager.locked("{a}", "{b}", mode="read", blocking=False)
        async def read(a: str, b: str) -> str:
            return (await read("b", "c")) if a == "a" else "both"

        assert await read("a", "b") == "both"


# -- skipping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "hold"),
    [
        ({}, lambda m: m.lock("job")),
        ({"fair": True}, lambda m: m.lock("job", fair=True)),
        ({"mode": "read"}, lambda m: m.rwlock("job").write()),
        ({"permits": 1}, lambda m: m.semaphore("job", permits=1)),
    ],
    ids=["mutex", "fair", "read", "permits"],
)
@pytest.mark.parametrize("limit", [{"blocking": False}, {"blocking_timeout": 1}], ids=str)
async def test_a_call_whose_lock_is_taken_is_skipped(options: Any, hold: Any, limit: Any) -> None:
    """It returns `otherwise`, and the function does not run; later calls run."""
    async with world() as w:

        @w.manager.locked("job", **options, **limit, otherwise="skipped")
        async def job() -> str:
            ran.append(1)
            return "ran"

        ran: list[int] = []
        async with hold(w.manager):
            assert await asyncio.create_task(job()) == "skipped"
        assert not ran
        assert (await job(), ran) == ("ran", [1])


async def test_no_other_error_skips_a_call() -> None:
    """The refusal of a lock inside, a loss, an error of the function, and no quorum are raised."""
    async with world(3) as w:
        skipping: Any = {"blocking_timeout": 1, "otherwise": None}

        @w.manager.locked("inner", blocking=False)
        async def inner() -> None: ...

        @w.manager.locked("outer", **skipping)
        async def outer(work: Any) -> str | None:
            return await work()

        async def lost() -> None:
            lose(w.manager, "outer")
            await asyncio.sleep(5)

        async with w.manager.lock("inner"):
            with pytest.raises(LockTakenError, match="inner"):
                await asyncio.create_task(outer(inner))
            with pytest.raises(LockTakenError, match="inner"):  # nor does the inner one skip the outer
                await asyncio.create_task(w.manager.locked("third", **skipping)(inner)())
        with pytest.raises(LockLostError):
            await outer(lost)
        with pytest.raises(WouldDeadlockError):
            await outer(functools.partial(outer, inner))
        for node in w.nodes[:2]:
            node.crash()
        with pytest.raises(QuorumUnavailableError):
            await outer(inner)


def test_a_call_that_never_gives_up_cannot_be_skipped() -> None:
    """`otherwise` without a limit is a mistake: the job would wait, and then run once more."""
    with pytest.raises(ValueError, match=r"otherwise=None has no effect .* give blocking=False"):
        decorate("x:{number}", sample, otherwise=None)


# -- mistakes show at decoration ---------------------------------------------------------------------


async def sample(number: int, *, flag: bool = False) -> None:
    """Stand for any function."""


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{nmber}", "nmber"), ("x:{number}:{other}", "other"), ("{other.id}", "other"),
        ("{other[0]}", "other"),
        ("{other!r:>5}", "other"), ("{}", "{}"), ("{0}", "{0}"), ("{number", "{number|'}'"),
        ("number}", "number}|'}'"), ("{number:{width}}", "width"), ("", "name"), ("x" * 1025, "name"),
        ("{{meta}}", "name"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_filled_fails_at_decoration(template: str, shown: str) -> None:
    """A field that is no parameter, has no name, or has no end; a constant name that cannot work."""
    with pytest.raises(ValueError, match=r".") as caught:
        decorate(template, sample)
    assert any(word in str(caught.value) for word in shown.split("|"))


@pytest.mark.parametrize(("options", "kind"), [({"fair": True}, "fair lock"), ({"permits": 2}, "semaphore")])
def test_kinds_of_a_single_name(options: Any, kind: str) -> None:
    """Two templates fail at decoration, as no template does."""
    manager = LockManager(["redis://localhost"])
    with pytest.raises(ValueError, match=rf"a {kind} has one name, got \('a:number', 'b:number'\)"):
        manager.locked("a:{number}", "b:{number}", **options)(sample)
    with pytest.raises(ValueError, match="one name"):
        manager.locked(**options)(sample)


def sync_function(number: int) -> None:
    """Stand for a function that cannot be awaited."""


async def generator(number: int) -> AsyncIterator[int]:
    """Stand for an async generator, which is not a coroutine function."""
    yield number


@pytest.mark.parametrize("function", [sync_function, generator, lambda number: number, print, Plain])
def test_what_is_not_async_fails_at_decoration(function: Any) -> None:
    """A TypeError that names the function."""
    with pytest.raises(TypeError, match="async") as caught:
        decorate("{number}", function)
    assert repr(function) in str(caught.value)


@pytest.mark.parametrize("function", [sample, sync_function])
def test_a_template_is_a_str(function: Any) -> None:
    """@manager.locked without its parentheses is a TypeError that shows how it is used."""
    with pytest.raises(TypeError, match="needs a template"):
        LockManager(["redis://localhost"]).locked(function)


# -- texts -------------------------------------------------------------------------------------------


async def name_of(template: str, value: object) -> str:
    """Return the name that a call locks."""
    async with world(1) as w:

        @w.manager.locked(template)
        async def work(value: object, other: int = 1) -> str:
            return held(w)[0]

        try:
            return await work(value)
        except TypeError:
            assert w.nodes[0].executed == [], "it fails before a node is asked"
            raise


WITHOUT_A_TEXT: list[object] = [
    Plain(), Around(Plain()), [Plain()], (1, (2, Plain())), len, string, Plain().method, lambda: 0,
    functools.partial(print, 1), {1, 2}, frozenset("ab"), {"a": 1}, [{1}], (i for i in "ab"), [].append,
    Named(), Around(1), SimpleNamespace(a=1), ValueError("a"), {"a": 1}.values(), PurePosixPath("/a"),
    Odd.SOME, Salted("a"), ["a", (Salted("a"),)], [datetime(2026, 1, 2, tzinfo=Zone())],
]  # fmt: skip


@pytest.mark.parametrize("template", ["x:{value}", "x:{value!s}", "x:{value!r}", "{other}{value}"])
async def test_what_may_have_a_text_of_its_own_in_each_process_is_refused(template: str) -> None:
    """Each process would have a lock of its own, and none would know."""
    for value in WITHOUT_A_TEXT:
        words = rf"\{{value\}} is of type {type(value).__name__}\b.*may differ between processes"
        with pytest.raises(TypeError, match=words):
            await name_of(template, value)


WITH_A_TEXT: list[tuple[str, object, str]] = [
    ("the-one", 7, "the-one"), ("x:{value}", 7, "x:7"), ("x:{value:03}", 7, "x:007"),
    ("x:{value.number}", Plain(), "x:7"), ("x:{value[0]}", [8, Plain()], "x:8"),
    ("x:{value[a]}", {"a": 9}, "x:9"), ("x:{value}", b"a", "x:b'a'"), ("x:{value}", True, "x:True"),
    ("x:{value:.2f}", 1.5, "x:1.50"), ("x:{value}", Decimal("1.50"), "x:1.50"),
    ("x:{value}", OtherUUID(int=2), "x:00000000-0000-0000-0000-000000000002"),
    ("x:{value:%Y-%m}", datetime(2026, 1, 2, tzinfo=Zone()), "x:2026-01"),
    ("x:{value}", time(12, 30), "x:12:30:00"), ("x:{value}", timedelta(hours=1), "x:1:00:00"),
    ("x:{value:02}", Number.ONE, "x:01"), ("x:{value}", Number.ONE, "x:1"),
    ("x:{value}", LossReason.EXPIRED, "x:expired"),
    ("x:{value}", [Number.ONE], "x:[<Number.ONE: 1>]"),
    ("x:{value}", ["a", ("b", 1)], "x:['a', ('b', 1)]"),
    ("x:{value}", UUID(int=1), "x:00000000-0000-0000-0000-000000000001"),
    ("x:{value}", date(2026, 1, 2), "x:2026-01-02"), ("x:{value.name}", PurePosixPath("/a/b"), "x:b"),
    ("x:{value}", None, "x:None"), ("x:{value}", "met at 0x12ab", "x:met at 0x12ab"),
    ("x:{value.name}", LossReason.EXPIRED, "x:EXPIRED"), ("{{x}}:{value!r}", "a", "{x}:'a'"),
    ("{value.inner.number:05d}/{value.inner.number}", Around(Plain()), "00007/7"),
]  # fmt: skip


async def test_what_has_a_text() -> None:
    """It gives the name that `str.format` gives."""
    for template, value, name in WITH_A_TEXT:
        assert await name_of(template, value) == name == template.format(value=value)
