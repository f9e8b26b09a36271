"""Every program of the benchmarks begins: those that no other test runs, too."""

from __future__ import annotations

import importlib
import pkgutil

import benchmarks

MODULES = [each.name for each in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]


def test_each_module_can_be_imported() -> None:
    """Its names are those of today; what it compares with may be missing on this machine."""
    for name in MODULES:
        if not name.endswith("__main__"):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] in ("benchmarks", "aioredlock_ng"):
                    raise
