"""Templates of lock names, such as ``order:{order_id}``."""

from __future__ import annotations

import string


def template_fields(template: str) -> tuple[str, ...]:
    """Return the parameters that a template names, such as ``order_id`` in ``order:{order_id}``.

    Raises:
        ValueError: when the template is malformed or has a field without a name.
    """
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
