"""A hook, label or template that cannot work is refused where it is given."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.events import Acquired, Hooks, Released
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import world

METHODS = [name for name in dir(Hooks) if name.startswith("on_")]


def make(*hooks: object) -> LockManager:
    """Make a manager with these hooks."""
    return LockManager([MemoryNode()], hooks=hooks)


class Good:
    """A hook; as a class it is none."""

    def on_lost(self, event: object) -> None:
        """Do nothing."""


async def awaited(event: object) -> None:
    """Would never be awaited."""


@pytest.mark.parametrize("name", METHODS)
def test_async_methods_are_refused(name: str) -> None:
    """A hook with an async method is a TypeError when the manager is made: it would not be awaited."""

    async def method(self: object, event: object) -> None:
        pass

    bad = type("Bad", (Good,), {name: method})
    with pytest.raises(TypeError, match=f"not awaited.*{method.__qualname__}"):
        make(Good(), bad())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (awaited, "not awaited"),
        (functools.partial(awaited), "not awaited"),
        (5, "on_lost of the hook Good must be a method, got 5"),
    ],
    ids=["async function", "partial", "number"],
)
def test_what_is_no_method_is_refused(value: Any, words: str) -> None:
    """It does not matter how the async function got there; None switches a method off."""
    hook: Any = Good()
    hook.on_lost = value
    with pytest.raises(TypeError, match=words):
        make(hook)
    hook.on_lost = None
    make(hook)


def test_one_hook_instead_of_a_list_is_refused() -> None:
    """Whether it derives from `Hooks` or not, the message says what to write."""
    for one, what in ((Good(), "one Good"), (Hooks(), "one Hooks"), (Good, "the class Good")):
        with pytest.raises(TypeError, match=rf"list of hook objects, got {what}: write hooks=\[…\]"):
            LockManager([MemoryNode()], hooks=one)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got None: leave it out"):
        LockManager([MemoryNode()], hooks=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("on_aquired", "on_acquired"), ("on_lose", "on_lost"), ("on_gaveup", "on_gave_up"), ("on_x", "on_")],
)
def test_an_unknown_method_is_refused(wrong: str, near: str) -> None:
    """A method that no event would call is reported with the nearest that one would."""
    bad = type("Bad", (Good,), {wrong: Good.on_lost})
    own = Good()
    setattr(own, wrong, print)
    for hook in (bad(), own):
        with pytest.raises(
            TypeError, match=f"the hook {type(hook).__name__} has '{wrong}'.*'{near}"
        ) as caught:
            make(hook)
        assert "events.Hooks" in str(caught.value)


async def test_a_hook_hears_what_it_has_methods_for() -> None:
    """A subclass of `Hooks` listens to what it overrides, be it in the object itself, and to nothing else."""

    class Lonely(Hooks):
        def on_acquired(self, event: Acquired) -> None:
            heard.append(event)

    heard: list[object] = []
    lonely, other = Lonely(), Lonely()
    lonely.on_released = heard.append  # type: ignore[method-assign]
    async with world(hooks=[Hooks(), lonely, object()]) as w, w.manager.lock("a"):
        assert other
    assert [type(event) for event in heard] == [Acquired, Released]
