"""What cannot work as a hook, a label or a template is refused where it is given."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.events import _METHODS
from aioredlock_ng.testing import MemoryNode


def make(*hooks: object) -> LockManager:
    """Make a manager with these hooks."""
    return LockManager([MemoryNode()], hooks=hooks)


class Good:
    """A hook; as a class it is none."""

    def on_lost(self, event: object) -> None:
        """Do nothing."""


async def awaited(event: object) -> None:
    """Would never be awaited."""


@pytest.mark.parametrize("name", _METHODS.values())
def test_async_methods_are_refused(name: str) -> None:
    """A hook with an async method is a TypeError when the manager is made: nobody would await it."""

    async def method(self: object, event: object) -> None:
        pass

    bad = type("Bad", (Good,), {name: method})
    with pytest.raises(TypeError, match=f"not awaited.*{method.__qualname__}"):
        make(Good(), bad())


@pytest.mark.parametrize("function", [awaited, functools.partial(awaited)], ids=["function", "partial"])
def test_async_functions_as_methods_are_refused(function: Any) -> None:
    """It does not matter how the async function got there."""
    hook = Good()
    hook.on_lost = function  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="not awaited"):
        make(hook)


def test_classes_are_refused() -> None:
    """A class in the place of its object is a TypeError when the manager is made, and named."""
    with pytest.raises(TypeError, match="got the class Good"):
        make(Good)


def test_what_works_is_not_refused() -> None:
    """Hooks with some of the methods, with other async methods, and with none are accepted."""

    class Other(Good):
        async def flush(self) -> None:
            pass

    make(Good(), Other(), object())


@pytest.mark.parametrize("label", [5, b"label", ["label"], 0, False], ids=repr)
def test_a_label_is_a_str(label: Any) -> None:
    """A label that is no str is a TypeError at the call, with the value in the message."""
    with pytest.raises(TypeError, match="label must be a str, got ") as caught:
        make().lock("a", label=label)
    assert repr(label) in str(caught.value)


def test_a_template_is_a_str() -> None:
    """@manager.locked without its parentheses is a TypeError that shows how it is used."""
    with pytest.raises(TypeError, match="wants a template"):
        make().locked(awaited)  # type: ignore[arg-type]
