"""Fixtures for tests of networks: one of the kernel's, and proxies before the servers that tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.faults.chaos_proxy import ChaosProxy, proxied
from tests.faults.namespaces import Network, nodes_inside, own_network
from tests.servers import Nodes


@pytest.fixture
def network() -> Iterator[Network]:
    """Give a network of the test's own."""
    with own_network() as own:
        yield own


@pytest.fixture
def nodes(network: Network, make_nodes: Callable[..., LocalNodes]) -> LocalNodes:
    """Give five servers in that network."""
    return nodes_inside(make_nodes, 5)


@pytest.fixture
async def proxies(shared_nodes: Nodes) -> AsyncIterator[list[ChaosProxy]]:
    """Give proxies before the five servers of `shared_nodes`."""
    async with proxied(shared_nodes.urls) as proxies:
        yield proxies
