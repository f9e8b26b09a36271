"""Where the items of a lane go: columns of a terminal or points of a drawing, in rows without overlaps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.simulation.picture_lanes import Item, Lane

MOST_ROWS: Final = 12
"""Of a lane; what finds no place in them is counted instead."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A stretch of time over so many units of width."""

    begin: float
    end: float
    width: int

    def place(self, moment: float) -> int:
        """Return the unit in which a moment lies; what lies outside is put to the nearer end."""
        share = (moment - self.begin) / (self.end - self.begin)
        return round(min(max(share, 0.0), 1.0) * self.width)

    def ticks(self, apart: int) -> Iterator[tuple[int, str]]:
        """Yield round times, and where they lie, that are at least `apart` units from each other."""
        least = (self.end - self.begin) * apart / self.width
        power = 10.0 ** math.floor(math.log10(least))
        step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= least)
        decimals = max(0, -math.floor(math.log10(step)))
        number = math.ceil(self.begin / step)
        while number * step <= self.end:
            yield self.place(number * step), f"{number * step:.{decimals}f}"
            number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An item with its place; all but `row` in units of width."""

    item: Item
    row: int
    first: int
    """Where its wait begins."""
    begin: int
    end: int
    last: int
    """Where its overrun ends."""
    label: str
    """Empty where there is no room for it."""
    label_at: int


@dataclass(frozen=True, slots=True)
class Packed:
    """A lane whose items do not overlap."""

    title: str
    placed: list[Placed]
    rows: int
    left_out: int


def pack(lane: Lane, axis: Axis, *, letter: float = 1.0, least: int = 1, pad: int = 1) -> Packed:
    """Place what happened in a lane; a letter is `letter` units wide, a bar at least `least`.

    `pad` units are kept free on either side of a label.
    """
    rows: list[bytearray] = []
    placed: list[Placed] = []
    # What must be seen gets its place first.
    for item in sorted(lane.items, key=lambda item: (not item.needs_label, item.first, item.last)):
        bar = _bar(item, axis, least)
        label, at, left, right = _labelled(item, bar, axis, letter, pad)
        row = _free_row(rows, left, right, axis.width)
        if row is not None:
            first, begin, end, last = bar
            placed.append(
                Placed(
                    item=item, row=row, first=first, begin=begin, end=end, last=last, label=label, label_at=at
                )
            )
    return Packed(lane.title, placed, max(1, len(rows)), len(lane.items) - len(placed))


def _bar(item: Item, axis: Axis, least: int) -> tuple[int, int, int, int]:
    begin, end = axis.place(item.begin), axis.place(item.end)
    if item.begin <= axis.end and item.end >= axis.begin:  # else only a wait or an overrun is seen
        begin = min(begin, axis.width - least)
        end = max(end, begin + least)
    return min(axis.place(item.first), begin), begin, end, max(axis.place(item.last), end)


def _labelled(
    item: Item, bar: tuple[int, int, int, int], axis: Axis, letter: float, pad: int
) -> tuple[str, int, int, int]:
    """Return the label and its place: in the bar, else behind or before it; and what both take up."""
    first, begin, end, last = bar
    size = math.ceil(len(item.label) * letter)
    if size + 2 * pad <= end - begin:
        return item.label, begin + pad, first, last
    if not item.needs_label:
        return "", begin, first, last
    behind, before = axis.width - last - 2 * pad, first - 2 * pad
    label = item.label[: max(0, math.floor(max(behind, before) / letter))]
    size = math.ceil(len(label) * letter)
    if size <= behind:
        return label, last + pad, first, last + pad + size + pad
    return label, first - pad - size, first - size - 2 * pad, last


def _free_row(rows: list[bytearray], left: int, right: int, width: int) -> int | None:
    number = next((number for number, row in enumerate(rows) if not any(row[left:right])), len(rows))
    if number == MOST_ROWS:
        return None
    if number == len(rows):
        rows.append(bytearray(width + 1))
    rows[number][left:right] = b"\x01" * (right - left)
    return number
