"""Templates of lock names, such as ``order:{order_id}``."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from typing import Any, Final
from uuid import UUID


def template_fields(template: str) -> tuple[str, ...]:
    """Return the parameters that a template names, such as ``order_id`` in ``order:{order_id}``.

    Raises:
        TypeError: when it is no str.
        ValueError: when the template is malformed or has a field without a name.
    """
    if not isinstance(template, str):
        raise TypeError(f'locked() needs a template, such as locked("report:{{id}}"), got {template!r}')
    fields: list[str] = []
    for _, field, spec, _ in string.Formatter().parse(template):
        if field is None:
            continue
        name = field.partition(".")[0].partition("[")[0]
        if not name.isidentifier():
            raise ValueError(
                f"template {template!r}: every field needs the name of a parameter, got {{{field}}}"
            )
        fields += [name, *template_fields(spec or "")]  # such as {number:{width}}
    return tuple(fields)


def sample_name(template: str) -> str:
    """Return a sample name, to check options at decoration: each field stands for its value.

    Raises:
        TypeError, ValueError: as `template_fields`.
    """
    template_fields(template)
    return "".join(text + (field or "") for text, field, _, _ in string.Formatter().parse(template))


def names_filler(templates: Sequence[str], function: Callable[..., object]) -> Callable[..., tuple[str, ...]]:
    """Return a function that makes a lock's names from the arguments of a call of `function`.

    Raises:
        ValueError: when a field of a template is not a parameter of the function.
    """
    signature = inspect.signature(function)
    for template in templates:
        for field in template_fields(template):
            if field not in signature.parameters:
                called = getattr(function, "__qualname__", repr(function))
                raise ValueError(
                    f"template {template!r}: {field!r} is not a parameter of {called}{signature}"
                )

    def fill(*args: Any, **kwargs: Any) -> tuple[str, ...]:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        return tuple([fill_in(template, call.arguments) for template in templates])

    return fill


def fill_in(template: str, values: Mapping[str, Any]) -> str:
    """Return the name that a template makes of these values.

    Raises:
        TypeError: the text of a value is not the same in each process; the message names the field.
    """
    return _Filler(template).vformat(template, (), values)


_LISTED: Final = (str, int, bool, float, bytes, type(None), Decimal, UUID, date, datetime, time, timedelta)
"""The types of values that a name may have; tuples, lists and enumerations of them, too.

Their text is made of nothing but the value: it is the same in each process.
"""

_PLAIN: Final = frozenset(_LISTED) - {datetime, time}
"""Those that hold no object of another type."""

_SHOWN_BY: Final = {"__format__": ("",), "__str__": (), "__repr__": ()}
"""The methods that make a text, with their further arguments."""

_STANDARD: Final = frozenset(
    getattr(kind, method)
    for kind in (*_LISTED, list, tuple, Enum, IntEnum, StrEnum, Flag, IntFlag)
    for method in _SHOWN_BY
)
"""Those of the listed types, and of enumerations."""


def _is_listed(value: object, *, by_repr: bool = False) -> bool:
    """Whether a value is of a listed type, and so is all that it holds; `by_repr`: as its `repr` shows it."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    # The text of its zone is not in its own, except in its `repr`.
    if isinstance(value, datetime | time) and by_repr and type(value.tzinfo) not in {type(None), timezone}:
        return False
    if isinstance(value, list | tuple) and not all(_is_listed(each, by_repr=True) for each in value):
        return False
    if isinstance(value, Enum) and not _is_listed(value._value_, by_repr=True):
        return False
    # Of a derived type: its text is made by a listed one's methods, or is the same as these would make.
    bases = [base for base in (*_LISTED, list, tuple, Enum) if isinstance(value, base)]
    return bool(bases) and all(
        (own := getattr(kind, method)) in _STANDARD
        or any(own(value, *more) == getattr(base, method)(value, *more) for base in bases)
        for method, more in _SHOWN_BY.items()
    )


class _Filler(string.Formatter):
    """Fills one template, and refuses values that might give each process a lock of its own."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._field = ""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self._field = field_name
        return super().get_field(field_name, args, kwargs)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if not _is_listed(value, by_repr=conversion in {"r", "a"}):
            raise TypeError(
                f"template {self._template!r}: {{{self._field}}} is of type {type(value).__qualname__}, "
                "whose text may differ between processes, so that each would have its own lock: use an "
                f"attribute of it, such as {{{self._field}.id}}, that is a str, int, bool, float, Decimal, "
                "UUID, date, time, bytes, Enum, or a tuple or list of these"
            )
        return super().convert_field(value, conversion)
