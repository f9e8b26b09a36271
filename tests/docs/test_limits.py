"""The page about limits has the code's limits, with their names and values."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import math
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest

import aioredlock_ng
from tests.docs.pages import DOCS, cell_texts

PACKAGE: Final = Path(aioredlock_ng.__file__).parent
PAGE: Final = DOCS / "reference" / "limits.md"
ROWS: Final = [cells for cells in cell_texts(PAGE) if ":" in cells[-1] and "`" in cells[-1]]
LIMITS: Final = {cells[3].strip("`"): cells[1] for cells in ROWS}

UNITS: Final = {"": 1.0, "%": 0.01, "ms": 0.001, "s": 1.0, "h": 3600.0, "days": 86400.0, "MiB": 2.0**20}

# Folders whose numbers are none of a manager's: they bound commands, the dashboard, the demonstration,
# answers to HTTP requests and tests.
OUTSIDE: Final = ("_cli", "_dashboard", "_demo", "contrib", "testing")

# Numbers that bound nothing, or that are explained elsewhere, and why; patterns.
NO_LIMITS: Final = {
    "_lock/attempt:OWNER_BITS": "assumption A5 has it",
    "_lock/waiting:SAME_EXPIRY": "what counts as the same moment",
    "_admin/doctor/gather:PORTS": "how many ports there are",
    "_admin/doctor/trial:*": "what a trial lock looks like",
    "_core/clock_watch:ALIKE_WITHIN": "what counts as the same step",
    "_core/clock_watch:PRECISION": "how exact a node's time is",
    "_core/command:PRECONDITION_SIZE": "a format",
    "_admin/doctor/*": "thresholds of findings, which the page about the doctor has",
    "_core/fencing:*": "constants of the protocol, which the proof explains",
    "_core/quarantine:MARGIN_*": "a margin of the protocol, in the rules",
    "_core/members:NOT_USED": "stands for a time",
    "_core/members:WAITS": "stands for a time",
    "_core/quorum_view:*": "sums of others",
    "_core/slots:ANY": "stands for a slot that is not known",
    "_core/validity:*": "margins of the protocol, in the rules",
    "_round/outbox:CALM": "when a round is sent at once",
    "_node/handshake:RESP?": "versions of the wire protocol",
    "_node/pipe:REQUEST_ID_COUNT": "a format",
    "_node/urls:DEFAULT_*PORT": "ports",
}


def numbers_of(module: Path) -> set[str]:
    """Return the names of a module's constants that are numbers, as the page has them.

    Private ones say by their names that they are limits, or are none.
    """
    name = module.relative_to(PACKAGE).with_suffix("").as_posix()
    values = vars(importlib.import_module(f"aioredlock_ng.{name.replace('/', '.')}"))
    found = (
        node.target.id
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and ast.unparse(node.annotation).startswith("Final")
    )
    return {
        f"{name}:{constant}"
        for constant in found
        if type(values[constant]) in (int, float)
        and (not constant.startswith("_") or re.search("MAX|LIMIT", constant))
    }


NUMBERS: Final = {
    number
    for module in sorted(PACKAGE.rglob("*.py"))
    if module.relative_to(PACKAGE).parts[0] not in OUTSIDE and not module.stem.startswith("__")
    for number in numbers_of(module)
}


def value_of(name: str) -> Any:
    """Return the value of ``module:CONSTANT``, or the default of a field or a parameter."""
    module, _, path = name.partition(":")
    value: Any = importlib.import_module(f"aioredlock_ng.{module.replace('/', '.')}")
    for part in path.split("."):
        if dataclasses.is_dataclass(value) and isinstance(value, type):
            value = {field.name: field.default for field in dataclasses.fields(value)}[part]
        elif callable(value) and part in (parameters := inspect.signature(value).parameters):
            value = parameters[part].default
        else:
            value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_has_the_value_of_the_page(name: str) -> None:
    """A count is written without a unit, a time with one; constants in milliseconds say so in their names."""
    said = re.fullmatch(r"([\d,.]+) ?(\D*)", LIMITS[name])
    assert said, LIMITS[name]
    value, unit = value_of(name), said[2]
    assert bool(unit) == (isinstance(value, float) or name.endswith("_MS") or value >= 2**20)
    in_code = value * (0.001 if name.endswith("_MS") else 1)
    assert math.isclose(float(said[1].replace(",", "")) * UNITS[unit], in_code)


def test_every_limit_of_the_code_is_on_the_page() -> None:
    """A new constant that is a number is a limit, and stands on the page; or it bounds nothing."""
    excepted = {name for name in NUMBERS if any(fnmatchcase(name, each) for each in NO_LIMITS)}
    assert NUMBERS - excepted - set(LIMITS) == set()


def test_a_limit_is_told_once() -> None:
    """Each row has a name of its own, and says what happens; no table has a row without a name."""
    assert len(ROWS) == len(LIMITS)
    told = [cells for cells in cell_texts(PAGE) if cells[0] != "what" and not cells[0].startswith("---")]
    assert told == ROWS
    assert all(len(cells) == 4 and all(cells) for cells in ROWS)
