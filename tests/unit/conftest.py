"""Runs the async tests of modules that say ``ON_VIRTUAL_TIME = True`` as `tests.unit.worlds.virtual` does."""

from __future__ import annotations

import inspect

import pytest

from tests.unit.worlds import virtual


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Collect such a test as the function that runs it on a loop of its own."""
    told = getattr(collector.module, "ON_VIRTUAL_TIME", False)
    if told and name.startswith("test_") and inspect.iscoroutinefunction(obj):
        setattr(collector.obj, name, virtual(obj))
        return list(collector._genfunctions(name, getattr(collector.obj, name)))
    return None
