"""A history as SVG, written by hand; the colours are told apart by the colour-blind, too."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from tests.simulation.checks_words import Violation
from tests.simulation.history import History, Outcome
from tests.simulation.picture_lanes import Kind, Span, lanes, window
from tests.simulation.picture_layout import Axis, Packed, Placed, pack

WIDTH: Final = 1100
"""Of the time axis; all lengths are in points of the drawing."""

GUTTER: Final = 90
"""For the names of the lanes."""

ROW: Final = 22
BAR: Final = 16
LETTER: Final = 6.7
"""How wide a letter is, at most, of the monospaced fonts of size 11."""

PAD: Final = 4
LEAST: Final = 3
"""The width of what lasts no time."""

TOLD: Final = 20
"""Violations that are told below the lanes."""

NAMES: Final = ("#56b4e9", "#f0e442", "#66c2a5", "#e5a6cb", "#e69f00", "#a6b8e0")
"""The colours of locks, by their names; the tints are of Okabe and Ito's palette."""

WRONG: Final = "#b33c00"
FAULT: Final = "#c8c8c8"
WAIT: Final = "#777777"
INK: Final = "#111111"

LEGEND: Final = (
    "dashes: waits (× failed, ? unknown); bar: holds, with its fence's last digits; hollow: overruns;"
    " red edge: breaks a rule; grey: fault"
)

STYLE: Final = "font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 11px"


def as_svg(history: History, violations: Sequence[Violation], *, between: Span | None = None) -> str:
    """Return a picture of a history; what is shown is told by tooltips.

    It shows what was `between` two times; by default what is around the first violation, if there is one.
    """
    span = window(history, violations, between)
    axis = Axis(*span, WIDTH)
    names = sorted({name for claim in history.claims for name in claim.names})
    colours = {name: NAMES[number % len(NAMES)] for number, name in enumerate(names)}
    parts: list[str] = []
    top = 2 * ROW
    for number, lane in enumerate(lanes(history, violations, span)):
        packed = pack(lane, axis, letter=LETTER, least=LEAST, pad=PAD)
        parts += _lane(packed, top, axis, colours, shaded=number % 2 == 0)
        top += _height(packed)
    below = list(_told(violations, top + ROW))
    height = top + ROW * (2 + len(below))
    marks = _marks(violations, span, axis, top)
    return "\n".join([*_head(height), *_scale(axis, top), *parts, *marks, *below, "</svg>\n"])


def _head(height: int) -> Iterator[str]:
    width = GUTTER + WIDTH + 2 * PAD
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" style="{STYLE}">'
    )
    yield _tag("rect", x=0, y=0, width=width, height=height, fill="#ffffff")


def _scale(axis: Axis, bottom: int) -> Iterator[str]:
    for place, text in axis.ticks(80):
        yield _upright(place, ROW, bottom, stroke="#dddddd")
        yield _text(GUTTER + place, ROW - PAD, text, anchor="middle")
    yield _text(PAD, ROW - PAD, "seconds")


def _height(lane: Packed) -> int:
    return ROW * (lane.rows + (lane.left_out > 0))


def _lane(lane: Packed, top: int, axis: Axis, colours: dict[str, str], *, shaded: bool) -> Iterator[str]:
    if shaded:
        width = GUTTER + WIDTH + 2 * PAD
        yield _tag("rect", x=0, y=top, width=width, height=_height(lane), fill="#000000", fill_opacity=0.05)
    yield _text(PAD, top + BAR, lane.title)
    for placed in lane.placed:
        yield f"<g><title>{escape(placed.item.told)}</title>"
        yield from _item(placed, top + placed.row * ROW + (ROW - BAR) / 2, colours, axis.end)
        yield "</g>"
    if lane.left_out:
        yield _text(GUTTER, top + lane.rows * ROW + BAR, f"({lane.left_out} more have no room here)", WAIT)


def _item(placed: Placed, top: float, colours: dict[str, str], axis_end: float) -> Iterator[str]:
    item = placed.item
    attempt = item.kind is Kind.ATTEMPT
    waited = placed.end if attempt else placed.begin
    if placed.first < waited:
        yield _wait(placed.first, waited, top + BAR - 3)
    if placed.last > placed.end:  # hollow: it runs, and holds nothing
        yield _bar(placed.end, placed.last, top + 3, BAR - 6, fill="#ffffff", stroke=WRONG)
    if attempt:
        if item.end <= axis_end:
            end = "×" if item.outcome is Outcome.FAIL else "?"
            yield _text(GUTTER + placed.end, top + BAR - 4, end, anchor="end")
    elif placed.begin == placed.end:
        pass  # only its wait or its overrun is seen
    elif item.kind is Kind.CLAIM:
        edge = {"stroke": WRONG, "stroke_width": 2.5} if item.wrong else {"stroke": "#ffffff"}
        yield _bar(placed.begin, placed.end, top, BAR, fill=colours[item.names[0]], **edge)
    else:
        yield _bar(placed.begin, placed.end, top, BAR, fill=WRONG if item.wrong else FAULT)
    if placed.label:
        colour = WRONG if item.kind is Kind.VIOLATION else WAIT if attempt else INK
        yield _text(GUTTER + placed.label_at, top + BAR - (6 if attempt else 4), placed.label, colour)


def _marks(violations: Sequence[Violation], span: Span, axis: Axis, bottom: int) -> Iterator[str]:
    for place in sorted({axis.place(one.at) for one in violations if span[0] <= one.at <= span[1]}):
        yield _upright(place, 2 * ROW, bottom, stroke=WRONG, stroke_dasharray="6 3", stroke_opacity=0.6)


def _told(violations: Sequence[Violation], top: int) -> Iterator[str]:
    letters = int((GUTTER + WIDTH) / LETTER)
    lines = [
        line
        for number, violation in enumerate(violations[:TOLD], 1)
        for line in textwrap.wrap(f"!{number} {violation}", letters, subsequent_indent="    ")
    ]
    if len(violations) > TOLD:
        lines.append(f"and {len(violations) - TOLD} more")
    yield _text(PAD, top + BAR, LEGEND, WAIT)
    for number, line in enumerate(lines, 1):
        yield _text(PAD, top + number * ROW + BAR, line, WRONG)


def _tag(name: str, **attributes: float | str) -> str:
    words = [
        f"{key.replace('_', '-')}={quoteattr(value if isinstance(value, str) else f'{value:g}')}"
        for key, value in attributes.items()
    ]
    return f"<{name} {' '.join(words)}/>"


def _bar(begin: int, end: int, top: float, height: float, **look: float | str) -> str:
    return _tag("rect", x=GUTTER + begin, y=top, width=end - begin, height=height, **look)


def _upright(place: int, top: float, bottom: float, **look: float | str) -> str:
    return _tag("line", x1=GUTTER + place, y1=top, x2=GUTTER + place, y2=bottom, **look)


def _wait(begin: int, end: int, at: float) -> str:
    return _tag("line", x1=GUTTER + begin, y1=at, x2=GUTTER + end, y2=at, stroke=WAIT, stroke_dasharray="2 2")


def _text(x: float, y: float, text: str, colour: str = INK, *, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'
