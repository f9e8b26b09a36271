"""Fixtures for tests of networks: one of the kernel's, with servers in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.faults.namespaces import Network, nodes_inside, own_network


@pytest.fixture
def network() -> Iterator[Network]:
    """Give a network of the test's own."""
    with own_network() as own:
        yield own


@pytest.fixture
def nodes(network: Network, make_nodes: Callable[..., LocalNodes]) -> LocalNodes:
    """Give five servers in that network."""
    return nodes_inside(make_nodes, 5)
