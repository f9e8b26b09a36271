"""Templates of lock names, such as ``order:{order_id}``."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final, NoReturn

_ANY_NAME: Final = "any"
"""Stands for the name that a call will fill in."""


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
    """Return a sample name, to check options at decoration: the name itself if it has no parameters."""
    return _ANY_NAME if template_fields(template) else template.format()


def name_filler(template: str, function: Callable[..., object]) -> Callable[..., str]:
    """Return a function that makes a lock's name from the arguments of a call of `function`.

    Raises:
        ValueError: when a field of the template is not a parameter of the function.
    """
    signature = inspect.signature(function)
    for field in template_fields(template):
        if field not in signature.parameters:
            called = getattr(function, "__qualname__", repr(function))
            raise ValueError(f"template {template!r}: {field!r} is not a parameter of {called}{signature}")

    def fill(*args: Any, **kwargs: Any) -> str:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        return fill_in(template, call.arguments)

    return fill


def fill_in(template: str, values: Mapping[str, Any]) -> str:
    """Return the name that a template makes of these values.

    Raises:
        TypeError: the text of a value is not the same in each process; the message names the field.
    """
    return _Filler(template).vformat(template, (), values)


_TEXTS: Final = frozenset({str, int, bool, float})
"""The types of most values, whose text is never checked."""

_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]+\b")

_NO_TEXT: Final = (
    FunctionType, BuiltinFunctionType, MethodType, partial, ModuleType, GeneratorType, AsyncGeneratorType,
    CoroutineType, set, frozenset, dict,
)  # fmt: skip
"""Types whose text differs from process to process, by an address or by its order."""


class _Filler(string.Formatter):
    """Fills one template, and refuses values that would give each process a lock of its own."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._field = ""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self._field = field_name
        return super().get_field(field_name, args, kwargs)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if type(value) in _TEXTS:
            return super().convert_field(value, conversion)
        if _has_no_text(value):
            self._refuse(value)
        converted = super().convert_field(value, conversion)
        if conversion and not isinstance(value, str) and _ADDRESS.search(converted):
            self._refuse(value)
        return converted

    def format_field(self, value: Any, format_spec: str) -> Any:
        text = super().format_field(value, format_spec)
        if not isinstance(value, str) and _ADDRESS.search(text):
            self._refuse(value)
        return text

    def _refuse(self, value: object) -> NoReturn:
        raise TypeError(
            f"template {self._template!r}: {{{self._field}}} is of type {type(value).__qualname__}, whose "
            "text differs between processes, so each would have its own lock: use a stable attribute of "
            f"it, such as {{{self._field}.id}}"
        )


def _has_no_text(value: object) -> bool:
    """Whether the text of a value, or of one inside it, differs from process to process."""
    if isinstance(value, list | tuple):
        return any(map(_has_no_text, value))
    return isinstance(value, _NO_TEXT)
