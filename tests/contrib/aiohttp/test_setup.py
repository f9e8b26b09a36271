"""Which manager an application and its sub-apps use, and how long it lives."""

from __future__ import annotations

import contextlib

import pytest
from aiohttp import web

from aioredlock_ng import ConfigurationError, LockManager
from aioredlock_ng.contrib.aiohttp import LEASE, MANAGER, locked, setup
from aioredlock_ng.testing import MemoryNode
from tests.contrib.aiohttp.tools import serve
from tests.servers import Nodes


def three() -> list[MemoryNode]:
    """Return masters in memory."""
    return [MemoryNode() for _ in range(3)]


@locked("x", blocking=False)
async def show(request: web.Request) -> web.Response:
    """Tell what this manager has acquired."""
    request[LEASE].check()
    return web.json_response(request.config_dict[MANAGER].statistics().acquired)


def app_with_route() -> web.Application:
    """Make an application with one locked handler."""
    app = web.Application()
    app.router.add_get("/", show)
    return app


async def test_nodes() -> None:
    """Over nodes, the manager lives as long as the application."""
    app = app_with_route()
    setup(app, three(), ttl=5, holder="web-1")
    manager = app[MANAGER]
    assert "not started" in repr(manager)
    async with serve(app) as site:
        assert "running" in repr(manager)
        assert (await site.get("/"))[:2] == (200, 1)
    assert "closed" in repr(manager)


@pytest.mark.parametrize("started", [True, False])
async def test_a_ready_manager(started: bool) -> None:
    """A manager that is yours is started with the application, unless it was, and not closed with it."""
    app = app_with_route()
    async with contextlib.aclosing(LockManager(three())) as manager:
        if started:
            await manager.start()
        setup(app, manager)
        async with serve(app) as site:
            assert (await site.get("/"))[:2] == (200, 1)
        async with manager.lock("still open"):
            pass


async def test_from_the_environment(shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nodes, the environment names them."""
    monkeypatch.setenv("REDLOCK_URLS", ",".join(shared_nodes.urls))
    app = app_with_route()
    setup(app, ttl=5)
    async with serve(app) as site:
        assert (await site.get("/"))[:2] == (200, 1)
        assert len(app[MANAGER].statistics().nodes) == 5


async def test_sub_apps_find_it() -> None:
    """A sub-app of a sub-app uses the manager of the application that was set up, and gets its answers."""
    app, inner, innermost = web.Application(), web.Application(), app_with_route()
    inner.add_subapp("/b", innermost)
    app.add_subapp("/a", inner)
    setup(app, three())
    async with serve(app) as site:
        assert (await site.get("/a/b/"))[:2] == (200, 1)
        async with app[MANAGER].lock("x"):
            assert (await site.get("/a/b/"))[0] == 409


@pytest.mark.parametrize("both", [False, True])
async def test_a_sub_app_of_its_own(both: bool) -> None:
    """A sub-app that was set up on its own needs nothing from its parent, which may have its own."""
    app, inner = app_with_route(), app_with_route()
    for one in (app, inner) if both else (inner,):
        setup(one, three())
    app.add_subapp("/a", inner)
    async with serve(app) as site:
        if both:
            async with app[MANAGER].lock("x"):
                assert [(await site.get(path))[0] for path in ("/", "/a/")] == [409, 200]
        async with inner[MANAGER].lock("x"):
            assert (await site.get("/a/"))[0] == 409
    assert "closed" in repr(inner[MANAGER])


async def test_no_setup(caplog: pytest.LogCaptureFixture) -> None:
    """Without `setup` the error says what to write."""
    async with serve(app_with_route()) as site:
        assert (await site.get("/"))[0] == 500
    assert "call aioredlock_ng.contrib.aiohttp.setup(app, nodes)" in caplog.text


def test_what_setup_refuses() -> None:
    """Twice, too late, bad nodes, bad options, options for a manager that is made already."""
    app, inner = web.Application(), web.Application()
    app.add_subapp("/a", inner)
    with pytest.raises(RuntimeError, match=r"before the application starts or is added to another one"):
        setup(inner, three())
    with pytest.raises(ConfigurationError, match="at least one node"):
        setup(app, [])
    with pytest.raises(ValueError, match="ttl must be positive"):
        setup(app, three(), ttl=-1)
    with pytest.raises(TypeError, match="got ttl, prefix"):
        setup(app, LockManager(three()), ttl=1, prefix="x:")
    setup(app, three())
    with pytest.raises(RuntimeError, match=r"call setup\(\) once"):
        setup(app, three())


async def test_a_start_that_fails_is_cleaned_up(shared_nodes: Nodes) -> None:
    """One server given under two names stops the application, and the manager is closed."""
    url = shared_nodes.urls[0]
    app = app_with_route()
    setup(app, [url, url.replace("127.0.0.1", "localhost"), shared_nodes.urls[1]])
    runner = web.AppRunner(app)
    with pytest.raises(ConfigurationError, match="the same server"):
        await runner.setup()
    await runner.cleanup()
    assert "closed" in repr(app[MANAGER])
