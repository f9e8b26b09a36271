"""Runs every async test of this folder as `tests.unit.tasks.virtual` does.

A module whose tests need real time says ``ON_REAL_TIME = True``.
"""

from __future__ import annotations

import inspect

import pytest

from tests.unit.tasks import virtual


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Collect an async test as the function that runs it on a loop of its own."""
    real = getattr(collector.module, "ON_REAL_TIME", False)
    if not real and name.startswith("test_") and inspect.iscoroutinefunction(obj):
        setattr(collector.obj, name, virtual(obj))
        return list(collector._genfunctions(name, getattr(collector.obj, name)))
    return None
