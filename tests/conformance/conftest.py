"""Masters in memory and real ones, and what runs over them: a manager, or one node for scripts by hand."""

from __future__ import annotations

import contextlib

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing.local_nodes import initialise
from tests.conformance.masters import MemoryMaster, RealMaster
from tests.conformance.stage import Stage
from tests.conformance.tools import connected
from tests.servers import EACH_ARM


@pytest.fixture(params=("memory", *EACH_ARM))
def masters(request, shared_sets):
    """Give 5 empty masters, once in memory and once per arm of real servers."""
    if request.param == "memory":
        yield [MemoryMaster() for _ in range(5)]
        return
    nodes = shared_sets(request.param)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(RealMaster(nodes, i))) for i in range(5)]


@pytest.fixture
def master(masters):
    """Give one empty master, once in memory and once per arm of real servers."""
    return masters[0]


@pytest.fixture
async def stage(request, master):
    """Give an empty node with the record that all requests expect; STAGE names the module's own class."""
    async with connected(master.spec) as node:
        stage = getattr(request.module, "STAGE", Stage)(master, node)
        stage.clear()
        yield stage


@pytest.fixture
async def make_manager(masters):
    """Give a function that makes a running manager over the masters, closed at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(**options):
            options.setdefault("node_timeout", 0.5)  # generous: no test here wants a node to be too slow
            specs = [master.spec for master in masters]
            urls = [spec for spec in specs if isinstance(spec, str)]
            if urls and "prefix" in options:  # else fresh nodes need two seconds to agree
                initialise(urls, options["prefix"])
            return await stack.enter_async_context(LockManager(specs, **options))

        yield make
