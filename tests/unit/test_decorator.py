"""``@manager.locked(template)``: an async function under a lock, on virtual time."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest

from aioredlock_ng import ExtensionPolicy, LockLostError, LockManager, LockTakenError
from aioredlock_ng.testing import MemoryNode, SimLoop
from tests.unit.worlds import locks


@dataclass
class Order:
    """Something with attributes."""

    id: int
    lines: tuple[str, ...] = ("first", "second")


Test = Callable[[LockManager, list[MemoryNode]], Awaitable[None]]


def on_virtual_time(test: Test) -> Callable[[], None]:
    """Run a test with a manager over three masters in memory."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        nodes = [MemoryNode(latency=0.001) for _ in range(3)]
        async with LockManager(nodes, clock=loop.clock, random=random.Random(1)) as manager:
            await test(manager, nodes)

    @wraps(test)
    def run() -> None:
        SimLoop.run(main())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would take its parameters for fixtures
    return run


def unstarted() -> LockManager:
    """Make a manager that is never used."""
    return LockManager(["redis://localhost"])


def held(nodes: list[MemoryNode]) -> list[str]:
    """Return the names that are locked on the first master."""
    return [key.decode().removeprefix("redlock:") for key in locks(nodes[0])]


# -- the name ----------------------------------------------------------------------------------------


@on_virtual_time
async def test_the_template_is_filled_from_the_calls_arguments(
    manager: LockManager, nodes: list[MemoryNode]
) -> None:
    """By position, by keyword, by default, keyword-only: the name is the same."""
    seen = []

    @manager.locked("report:{customer}:{year}:{kind}")
    async def report(customer: int, year: int = 2024, *, kind: str = "short") -> None:
        seen.append(held(nodes))

    await report(7)
    await report(7, 2025)
    await report(customer=8, kind="long")
    await report(9, year=2026, kind="long")
    assert seen == [
        ["report:7:2024:short"],
        ["report:7:2025:short"],
        ["report:8:2024:long"],
        ["report:9:2026:long"],
    ]
    assert held(nodes) == []


@on_virtual_time
async def test_fields_reach_into_arguments(manager: LockManager, nodes: list[MemoryNode]) -> None:
    """Attributes, items, conversions and format specifications, as in `str.format`."""
    seen = []

    @manager.locked("{order.id:05d}/{order.lines[1]}/{ids[0]}/{tag!r}/{{x}}")
    async def work(order: Order, ids: list[int], tag: str) -> None:
        seen.extend(held(nodes))

    await work(Order(42), [7, 8], tag="ä")
    assert seen == ["00042/second/7/'ä'/{x}"]


@on_virtual_time
async def test_a_template_without_fields_is_a_name(manager: LockManager, nodes: list[MemoryNode]) -> None:
    """All calls share one lock then."""
    seen = []

    @manager.locked("the-one")
    async def work(number: int) -> None:
        seen.append((number, held(nodes)))

    await asyncio.gather(work(1), work(2))
    assert seen == [(1, ["the-one"]), (2, ["the-one"])]


@on_virtual_time
async def test_methods_and_variable_arguments_work(manager: LockManager, nodes: list[MemoryNode]) -> None:
    """`self`, positional-only parameters, ``*args`` and ``**kwargs`` are parameters like others."""
    seen = []

    class Shop:
        name = "main"

        @manager.locked("{self.name}:{number}:{rest[0]}:{more[colour]}")
        async def sell(self, number: int, /, *rest: str, **more: str) -> None:
            seen.extend(held(nodes))

    await Shop().sell(5, "a", "b", colour="red")
    assert seen == ["main:5:a:red"]


@on_virtual_time
async def test_a_name_made_by_a_call_is_checked_at_the_call(
    manager: LockManager, nodes: list[MemoryNode]
) -> None:
    """Arguments that make an empty name fail the call, before anything is sent."""

    @manager.locked("{name}")
    async def work(name: str) -> None:
        raise AssertionError("not reached")

    with pytest.raises(ValueError, match="must not be empty"):
        await work("")
    assert nodes[0].executed == []


@on_virtual_time
async def test_wrong_arguments_fail_as_without_the_decorator(
    manager: LockManager, nodes: list[MemoryNode]
) -> None:
    """A missing or unknown argument is the TypeError that the function itself would raise; no lock is
    taken.
    """

    @manager.locked("{number}")
    async def work(number: int) -> None:
        raise AssertionError("not reached")

    with pytest.raises(TypeError, match="number"):
        await work()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        await work(1, colour="red")  # type: ignore[call-arg]
    assert nodes[0].executed == []


# -- the function ------------------------------------------------------------------------------------


@on_virtual_time
async def test_the_result_comes_back(manager: LockManager, nodes: list[MemoryNode]) -> None:
    """The very object that the function returns, and its arguments arrive unchanged."""
    order = Order(1)

    @manager.locked("{order.id}")
    async def work(order: Order, *rest: int, flag: bool = False, **more: object) -> tuple[object, ...]:
        return order, rest, flag, more

    result = await work(order, 1, 2, flag=True, x=3)
    assert result == (order, (1, 2), True, {"x": 3})
    assert result[0] is order


@on_virtual_time
async def test_the_functions_own_error_comes_through(manager: LockManager, nodes: list[MemoryNode]) -> None:
    """The exception is the same object, and the lock is released."""
    error = KeyError("mine")

    @manager.locked("x")
    async def work() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await work()
    assert caught.value is error
    assert held(nodes) == []


@on_virtual_time
async def test_calls_of_one_name_take_turns_and_others_do_not_wait(
    manager: LockManager, nodes: list[MemoryNode]
) -> None:
    """Calls with the same arguments exclude each other; calls with other arguments run beside them."""
    inside: list[str] = []
    most = 0

    @manager.locked("{name}")
    async def work(name: str) -> None:
        nonlocal most
        assert name not in inside
        inside.append(name)
        most = max(most, len(inside))
        await asyncio.sleep(1)
        inside.remove(name)

    await asyncio.gather(*(work(name) for name in "aabbb"))
    assert most == 2


def test_signature_and_name_are_kept() -> None:
    """Frameworks that look at the function see the original's signature, name, docstring and kind."""

    async def work(number: int, /, *, flag: bool = False) -> str:
        """Work."""
        return f"{number}{flag}"

    wrapped = unstarted().locked("{number}")(work)
    assert inspect.signature(wrapped) == inspect.signature(work)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__module__) == ("work", "Work.", work.__module__)
    assert inspect.iscoroutinefunction(wrapped)
    assert inspect.unwrap(wrapped) is work


# -- the lock's options ------------------------------------------------------------------------------


@on_virtual_time
async def test_the_options_are_the_locks(manager: LockManager, nodes: list[MemoryNode]) -> None:
    """ttl, blocking_timeout, extension and on_lost reach the lock."""

    @manager.locked("x", ttl=60)
    async def long() -> float:
        return nodes[0].ttl(b"redlock:x") or 0

    assert await long() == pytest.approx(60, abs=0.1)

    @manager.locked("x", blocking_timeout=0)
    async def impatient() -> None:
        raise AssertionError("not reached")

    async with manager.lock("x"):
        with pytest.raises(LockTakenError):
            await impatient()

    @manager.locked("x", ttl=1, extension=ExtensionPolicy.off(), on_lost="raise")
    async def overdue() -> None:
        await asyncio.sleep(2)  # is not cancelled
        finished.append("overdue")

    finished: list[str] = []
    with pytest.raises(LockLostError):
        await overdue()
    assert finished == ["overdue"]


@on_virtual_time
async def test_events_are_labelled_with_the_template(manager: LockManager, nodes: list[MemoryNode]) -> None:
    """Metrics see the template, of which there are few, unless a label is given."""
    labels: list[str] = []

    class Hook:
        def on_acquired(self, event: Any) -> None:
            labels.append(event.label)

    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    async with LockManager(nodes, clock=loop.clock, random=random.Random(2), hooks=[Hook()]) as heard:

        @heard.locked("report:{number}")
        async def templated(number: int) -> None:
            pass

        @heard.locked("report:{number}", label="reports")
        async def labelled(number: int) -> None:
            pass

        await templated(1)
        await labelled(2)
    assert labels == ["report:{number}", "reports"]


@on_virtual_time
async def test_calls_in_mode_read_run_together_and_one_in_mode_write_alone(
    manager: LockManager, nodes: list[MemoryNode]
) -> None:
    """It is the read-write lock of that name; the label is the template here, too."""
    inside: list[str] = []
    seen: list[list[str]] = []

    def locked_in(mode: Any) -> Any:
        @manager.locked("{name}", ttl=20, mode=mode)
        async def work(name: str) -> None:
            inside.append(mode)
            await asyncio.sleep(1)
            seen.append(sorted(inside))
            inside.remove(mode)

        return work

    read, write = locked_in("read"), locked_in("write")
    async with manager.rwlock("a").read():
        await asyncio.create_task(read("a"))
    await asyncio.gather(read("a"), read("a"), write("a"), read("b"))
    assert seen == [["read"], ["read"] * 3, ["read"] * 2, ["read"], ["write"]]
    assert manager.locked("a", mode=None)(read) is not read
    assert held(nodes) == []


@on_virtual_time
async def test_so_many_calls_run_at_once(manager: LockManager, nodes: list[MemoryNode]) -> None:
    """It is the semaphore of that name (R24)."""
    inside: list[str] = []
    seen: list[int] = []

    @manager.locked("{name}", ttl=20, permits=2)
    async def work(name: str) -> None:
        inside.append(name)
        await asyncio.sleep(1)
        seen.append(len(inside))
        inside.remove(name)

    async with manager.semaphore("a", permits=2):
        await work("a")
    await asyncio.gather(*(work("a") for _ in range(4)))
    assert seen == [1, 2, 1, 2, 1]
    assert held(nodes) == []


@on_virtual_time
async def test_a_fair_call_stands_in_line(manager: LockManager, nodes: list[MemoryNode]) -> None:
    """It is the fair lock of that name (R28)."""

    @manager.locked("{name}", fair=True)
    async def work(name: str) -> None:
        assert [each.kind for each in await manager.inspect(name)] == ["fair"] * 3

    async with LockManager(nodes, clock=manager.clock) as other:
        lease = await other.lock("a", fair=True).acquire()
        waiting = asyncio.create_task(work("a"))
        await asyncio.sleep(0.1)
        assert [each.ours for each in (await manager.queue("a")).waiters] == [True]
        await lease.release()
        await waiting
    assert held(nodes) == []


# -- mistakes show at decoration ---------------------------------------------------------------------


async def sample(number: int, *, flag: bool = False) -> None:
    """Stand for any function."""


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{nmber}", "nmber"),
        ("x:{number}:{other}", "other"),
        ("{other.id}", "other"),
        ("{other[0]}", "other"),
        ("{other!r:>5}", "other"),
        ("{}", "{}"),
        ("{0}", "{0}"),
        ("{number", "{number"),
        ("number}", "number}"),
        ("{number:{width}}", "width"),
    ],
)
def test_a_template_that_cannot_be_filled_fails_at_decoration(template: str, shown: str) -> None:
    """A field that is no parameter, has no name, or has no end: a ValueError before any call."""
    with pytest.raises(ValueError, match=r".") as caught:
        unstarted().locked(template)(sample)
    assert shown in str(caught.value) or template in str(caught.value) or "'}'" in str(caught.value)


@pytest.mark.parametrize("name", ["", "x" * 1025, "{{meta}}"])
def test_a_constant_name_that_cannot_work_fails_at_decoration(name: str) -> None:
    """Nothing in it depends on the call."""
    with pytest.raises(ValueError, match="name"):
        unstarted().locked(name)(sample)


@pytest.mark.parametrize("template", ["constant", "{number}"])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ttl": 0}, ValueError),
        ({"ttl": "5"}, TypeError),
        ({"ttl": 0.1}, ValueError),
        ({"blocking_timeout": -1}, ValueError),
        ({"blocking": False, "blocking_timeout": 5}, ValueError),
        ({"extension": 3}, TypeError),
        ({"on_lost": "ignore"}, ValueError),
        ({"mode": "shared"}, ValueError),
        ({"mode": ["read"]}, ValueError),
        ({"mode": "read", "at_least": 1}, ValueError),
        ({"mode": "read", "permits": 2}, ValueError),
        ({"permits": 0, "label": "permits"}, ValueError),
        ({"permits": 2.5}, TypeError),
        ({"permits": 2, "at_least": 1}, ValueError),
        ({"permits": 2, "reentrant": True}, ValueError),
    ],
)
def test_wrong_options_fail_at_decoration(
    template: str, options: dict[str, Any], error: type[Exception]
) -> None:
    """Whatever the template: a wrong option does not wait for the first call to show."""
    with pytest.raises(error, match=r"ttl|blocking|extension|on_lost|mode|permits|semaphore"):
        unstarted().locked(template, **options)(sample)


def sync_function(number: int) -> None:
    """Stand for a function that cannot be awaited."""


async def generator(number: int) -> AsyncIterator[int]:
    """Stand for an async generator, which is not a coroutine function."""
    yield number


@pytest.mark.parametrize("function", [sync_function, generator, lambda number: number, print, Order])
def test_what_is_not_async_fails_at_decoration(function: Any) -> None:
    """A TypeError that names the function."""
    with pytest.raises(TypeError, match="async") as caught:
        unstarted().locked("{number}")(function)
    assert repr(function) in str(caught.value)
