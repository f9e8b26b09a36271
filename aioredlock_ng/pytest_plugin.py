"""Fixtures for users' own tests; pytest finds them by entry point, ``-p no:aioredlock_ng`` turns them off.

=================  ====================================================================================
``lock_manager``   a `LockManager` over three masters in memory: the real client, no server
``redlock_nodes``  real servers as child processes, to be killed, frozen and restarted
``lock_bypass``    every lock of every manager is granted at once, without any node
``lock_refused``   every lock of every manager is refused at once, without any node
=================  ====================================================================================

Every start of pytest imports this file, so it imports nothing but pytest: a fixture fetches what it
needs when it is used.  The fixtures are no coroutines, so that they work with pytest-asyncio in either
mode, with anyio's plugin, and in a test that runs its own loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from . import LockManager
    from .testing import LocalNodes


@pytest.fixture
def lock_manager(request: pytest.FixtureRequest) -> Iterator[LockManager]:
    """A `LockManager` over three masters in memory (extra ``testing``); no server is needed.

    It starts at its first use, in the loop of the test, and is closed after the test.  It keeps the
    time of a `SimLoop`, if that is the loop.  A test that has no loop of its own may hand it to programs
    that have, one after the other: a `TestClient` makes a loop per request, or one with ``with``.
    """
    if "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend_name")
        if backend != "asyncio":
            pytest.skip(f"lock_manager needs asyncio, and this test runs on {backend}")
    if "event_loop" in request.fixturenames:  # pytest-asyncio before 1.0: it drops its loop, tasks and all,
        request.getfixturevalue("event_loop")  # so the loop has to be there before us, and go after us
    from .testing._memory_manager import memory_manager

    with memory_manager() as manager:
        yield manager


@pytest.fixture
def redlock_nodes(request: pytest.FixtureRequest) -> Iterator[LocalNodes]:
    """Five real servers for this test alone: `urls`, `kill(i)`, `pause(i)`, `resume(i)`, `await restart(i)`.

    Another number by ``@pytest.mark.parametrize("redlock_nodes", [3], indirect=True)``.  Where there is
    no Redis or Valkey server to start, the test is skipped.
    """
    from .testing import LocalNodes, NoServerError

    try:
        nodes = LocalNodes(getattr(request, "param", 5))
    except NoServerError as error:
        pytest.skip(str(error))
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


@pytest.fixture
def lock_bypass() -> Iterator[None]:
    """Grant every lock of every manager at once: no nodes, no waiting, and no exclusion either.

    As ``@pytest.mark.usefixtures("lock_bypass")`` it lets code with a manager over production nodes be
    tested without any node; see `aioredlock_ng.testing.bypass`.
    """
    from .testing import bypass

    with bypass():
        yield


@pytest.fixture
def lock_refused(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse every lock of every manager at once: no nodes, and no waiting, whatever the timeouts.

    As if each were held by another client; or, by ``@pytest.mark.parametrize("lock_refused", ["quorum"],
    indirect=True)``, as if no node answered.  See `aioredlock_ng.testing.bypass`.
    """
    from .testing import bypass

    with bypass(refuse=getattr(request, "param", True)):
        yield
