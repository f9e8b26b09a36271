"""What masters in memory and faults may be told, checked at once: an error names the field and the value."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TypeVar

from .._core.policy import number

_T = TypeVar("_T")


def check_amount(name: str, value: object, *, most: float = sys.float_info.max) -> None:
    """Check that a value is a number from 0 to `most`.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative, NaN, infinite or more than `most`.
    """
    if not 0 <= number(name, value) <= most:
        span = f"to {most:g}" if most < sys.float_info.max else "on"
        raise ValueError(f"{name} is a number from 0 {span}, not {value!r}")


def check_index(name: str, value: object, *, of: str) -> None:
    """Check that a value can be the number of a node or a way.

    Raises:
        TypeError: it is no int, or a bool.
        ValueError: it is negative.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < 0:
        raise ValueError(f"{of} are numbered from 0 on, got {name}={value!r}")


def check_line(name: str, value: object) -> None:
    """Check that a value can be one line of an answer.

    Raises:
        TypeError: it is no str.
        ValueError: it is more than one line, or has other characters that cannot be printed.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {value!r}")
    if not value.isprintable():
        raise ValueError(f"{name} is one line, such as 'BUSY …', not {value!r}")


def listed(name: str, values: Iterable[_T], kind: type[Any]) -> list[_T]:
    """Return values as a list.

    Raises:
        TypeError: there are none to go through, or one of them is not of that kind.
    """
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of {kind.__name__}, got {values!r}")
    found = list(values)
    for value in found:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a list of {kind.__name__}, got one with {value!r}")
    return found
