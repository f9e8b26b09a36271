"""Fixtures for nodes that are users' own clients."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from redis.asyncio import Redis


@pytest.fixture
async def client():
    """Give a function that makes a client for a URL, closed at the end by us: nothing else closes it."""
    async with contextlib.AsyncExitStack() as stack:

        def make(url, **options):
            made = Redis.from_url(url, **options)
            stack.push_async_callback(made.aclose)
            return made

        yield make


@pytest.fixture(autouse=True)
async def no_stray_errors(request):
    """Fail the test when an error ends up with its loop instead of with a caller."""
    stray: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
    yield
    assert stray == []
