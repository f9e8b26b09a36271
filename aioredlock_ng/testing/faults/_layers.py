"""Several faults of one kind at one place: what holds while some of them last, and when all have ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Layer:
    """What one fault makes of something, on top of how it was before."""

    value: Any


_layers: Final[WeakKeyDictionary[object, dict[str, list[_Layer]]]] = WeakKeyDictionary()
"""By place, and by the name of what goes wrong there: first how it was, then the faults, oldest first."""


def _newest(values: list[_T]) -> _T:
    return values[-1]


def lay(
    place: object,
    name: str,
    *,
    before: _T,
    value: _T,
    put: Callable[[_T], object],
    merge: Callable[[list[_T]], _T] = _newest,
) -> Callable[[], None]:
    """Let something be `value` from now on, and return what takes that away again, whatever else lasts then.

    Args:
        place: where it goes wrong.
        name: what goes wrong there.
        before: how it is; of no meaning while another fault lasts.
        value: what the fault makes of it.
        put: lets it be so.
        merge: returns what comes of what all make of it; the newest counts by default.
    """
    layers = _layers.setdefault(place, {}).setdefault(name, [])
    if not layers:
        layers.append(_Layer(before))
    mine = _Layer(value)
    layers.append(mine)
    put(merge([layer.value for layer in layers]))

    def end() -> None:
        shown = merge([layer.value for layer in layers])
        layers.remove(mine)
        left = merge([layer.value for layer in layers])
        if len(layers) == 1:
            layers.clear()
        if left != shown:
            put(left)

    return end


def lasts(place: object, name: str) -> bool:
    """Say whether a fault that something is put down to has not ended."""
    return bool(_layers.get(place, {}).get(name))
