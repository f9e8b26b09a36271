"""Templates of lock names, such as ``order:{order_id}``."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable
from typing import Any, Final

_ANY_NAME: Final = "any"
"""Stands for the name that a call will fill in."""


def template_fields(template: str) -> tuple[str, ...]:
    """Return the parameters that a template names, such as ``order_id`` in ``order:{order_id}``.

    Raises:
        TypeError: when it is no str.
        ValueError: when the template is malformed or has a field without a name.
    """
    if not isinstance(template, str):
        raise TypeError(f'locked() wants a template, such as locked("report:{{id}}"), got {template!r}')
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
    """Return a name, for checking options at decoration: the one, unless calls fill in parameters."""
    return _ANY_NAME if template_fields(template) else template.format()


def name_filler(template: str, function: Callable[..., object]) -> Callable[..., str]:
    """Return what makes a lock's name from the arguments of a call of `function`.

    Raises:
        ValueError: when a field of the template is no parameter of the function.
    """
    signature = inspect.signature(function)
    for field in template_fields(template):
        if field not in signature.parameters:
            raise ValueError(
                f"template {template!r}: {field!r} is no parameter of {function.__qualname__}{signature}"
            )

    def fill(*args: Any, **kwargs: Any) -> str:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        return template.format_map(call.arguments)

    return fill
