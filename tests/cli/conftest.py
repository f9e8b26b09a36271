"""What several tests of the command line need."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.servers import fastest_arm


@pytest.fixture
def raw_nodes() -> Iterator[Callable[[int], LocalNodes]]:
    """Return a function that starts servers which were never used."""
    with contextlib.ExitStack() as stack:

        def start(n: int) -> LocalNodes:
            nodes = LocalNodes(n, server=fastest_arm())
            stack.enter_context(contextlib.closing(nodes))
            for _ in nodes.starting():
                time.sleep(0.002)
            return nodes

        yield start
