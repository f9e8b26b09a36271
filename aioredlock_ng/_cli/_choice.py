"""The locks that a command is about: by names, patterns of names, holders, and how long these hold."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from .._view.overview import Overview, look
from .common import add_time

if TYPE_CHECKING:
    from .. import LockInspection, LockManager

_LIMIT: Final = 100_000
"""Locks that are looked at, at most, in search of those that are wanted."""


def add_choice(parser: argparse.ArgumentParser, names: str) -> None:
    """Add the options that choose locks."""
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"{names}; or patterns of names: 'report:*'")
    holder = "only locks of holders with this label, or a pattern of labels: 'web-3:*'"
    parser.add_argument("--holder", type=_label, metavar="LABEL", help=holder)
    older = "only locks held for at least this long, by their holders' clocks"
    add_time(parser, "--older", help=older, default=0.0)


def _label(text: str) -> str:
    """Read a label: an empty one, of a variable that is not set, would choose all holders."""
    if not text:
        raise argparse.ArgumentTypeError("a label must not be empty")
    return text


def named(arguments: argparse.Namespace) -> bool:
    """Whether the names alone say which locks: these need no search, and free ones are shown, too."""
    patterns = any("*" in name for name in arguments.names)
    return bool(arguments.names) and not (patterns or arguments.holder or arguments.older)


def _fits(text: str, pattern: str) -> bool:
    """Whether a pattern matches; without a star it is plain text, for a URL's "?" must not match others."""
    return text == pattern or ("*" in pattern and fnmatchcase(text, pattern))


async def look_for(
    manager: LockManager, arguments: argparse.Namespace, *, whole: bool = False, **more: Any
) -> Overview:
    """Look at the locks that are chosen; of a shared one any holder counts, or, for the `whole` lock, all."""
    names, label, age = arguments.names, arguments.holder, arguments.older
    if named(arguments) or not (names or label or age):
        return await look(manager, names, **more)

    def wanted(lock: LockInspection, at: float) -> bool:
        holders = lock.permits or lock.readers or (lock,)
        fits = [
            (not label or _fits(each.holder or "", label))
            and (not age or (each.since is not None and at - each.since >= age))
            for each in holders
        ]
        chosen = all(fits) and not (lock.more_readers and (label or age)) if whole else any(fits)
        return chosen and (not names or any(_fits(lock.name, name) for name in names))

    return await look(manager, limit=_LIMIT, wanted=wanted, **more)
