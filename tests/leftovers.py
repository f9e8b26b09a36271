"""A failed test takes nothing with it.

What tests share, the fixtures of a module or of the session, ends with a failed test, and the next test makes
it again, so servers are replaced by others with other ports.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import pytest

_FAILED: Final = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[object]) -> None:
    """Note a failure, also one that is expected: an exception ended the test where it was."""
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.stash[_FAILED] = True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """End all fixtures after a failed test; an error of a fixture that ends is an error of that test."""
    failed = item.stash.get(_FAILED, False)
    try:
        return (yield)
    except BaseException:
        failed = True
        raise
    finally:
        if failed:
            item.session._setupstate.teardown_exact(None)
