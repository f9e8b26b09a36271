"""Names from arguments: the same text in each process, or an error that says which field has none."""

from __future__ import annotations

import functools
import string
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import PurePosixPath
from uuid import UUID

import pytest

from aioredlock_ng._locks.template import fill_in
from tests.unit.worlds import locks, virtual, world


class Plain:
    """An object without a text of its own."""

    number = 7

    def method(self) -> None:
        """Be bound."""


class Named(Plain):
    """One that has a text."""

    def __str__(self) -> str:
        return "named"


class Formatted(Plain):
    """One that has a format."""

    def __format__(self, spec: str) -> str:
        return f"formatted {spec}"


@dataclass
class Around:
    """One whose text has that of another object in it."""

    inner: object


class Colour(Enum):
    """An enumeration."""

    RED = "red"


@pytest.mark.parametrize(
    "value",
    [
        Plain(), Around(Plain()), [Plain()], (1, (2, Plain())), len, string, Plain().method, lambda: 0,
        functools.partial(print, 1), {1, 2}, frozenset("ab"), {"a": 1}, [{1}], (i for i in "ab"), [].append,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize("template", ["x:{value}", "x:{value!s}", "x:{value!r}", "{other}{value}"])
def test_a_text_of_its_own_in_each_process_is_refused(template: str, value: object) -> None:
    """Each process would have a lock of its own, and none would know."""
    with pytest.raises(TypeError, match=rf"\{{value\}} is of type {type(value).__name__}\b.*not the same"):
        fill_in(template, {"value": value, "other": 1})


@pytest.mark.parametrize(
    ("template", "value", "name"),
    [
        ("x:{value}", 7, "x:7"),
        ("x:{value:03}", 7, "x:007"),
        ("x:{value.number}", Plain(), "x:7"),
        ("x:{value[0]}", [8, Plain()], "x:8"),
        ("x:{value[a]}", {"a": 9}, "x:9"),
        ("x:{value}", Named(), "x:named"),
        ("x:{value:s}", Formatted(), "x:formatted s"),
        ("x:{value}", Around(1), "x:Around(inner=1)"),
        ("x:{value}", ["a", ("b", 1)], "x:['a', ('b', 1)]"),
        ("x:{value}", UUID(int=1), "x:00000000-0000-0000-0000-000000000001"),
        ("x:{value}", date(2026, 1, 2), "x:2026-01-02"),
        ("x:{value.value}", Colour.RED, "x:red"),
        ("x:{value}", PurePosixPath("/a/b"), "x:/a/b"),
        ("x:{value}", None, "x:None"),
        ("x:{value}", "met at 0x12ab", "x:met at 0x12ab"),
        ("{{x}}:{value!r}", "a", "{x}:'a'"),
    ],
)
def test_what_has_a_text(template: str, value: object, name: str) -> None:
    """It gives the name that `str.format` gives."""
    assert fill_in(template, {"value": value}) == name == template.format(value=value)


@virtual
async def test_the_error_comes_at_the_call() -> None:
    """Before a node is asked; a partial is decorated as the function is."""
    async with world(1) as w:

        class Billing:
            @w.manager.locked("billing:{self}")
            async def run(self) -> None:
                raise AssertionError("ran")

        with pytest.raises(TypeError, match=r"template 'billing:\{self\}': \{self\} is of type .*Billing"):
            await Billing().run()
        assert locks(w.nodes[0]) == ()

        async def report(customer: int, *, kind: str) -> tuple[bytes, ...]:
            return locks(w.nodes[0])

        daily = functools.partial(report, kind="daily")
        held = await w.manager.locked("report:{customer}:{kind}")(daily)(3)
        assert b"redlock:report:3:daily" in held
        with pytest.raises(ValueError, match=r"'nothing' is no parameter of functools\.partial"):
            w.manager.locked("{nothing}")(daily)
