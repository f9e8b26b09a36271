"""The page of nodes and locks, as routes of an application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing

from aiohttp import web

from ... import LockManager
from ..._dashboard.feed import Stream
from ..._dashboard.site import HEADERS, WRITE_TIME, PageRequest, Site, site_maker
from ._application import MANAGER


def add_locks_page(
    app: web.Application,
    path: str = "/locks",
    *,
    manager: LockManager | None = None,
    token: str | None = None,
    allow_release: bool = False,
    hosts: Iterable[str] | None = None,
    interval: float = 2.0,
    trust_proxy: bool = False,
) -> None:
    """Show nodes and locks, live, on a page of the application; what ``aioredlock-ng dashboard`` shows.

    Whatever reaches the application sees the page, unless a `token` or a middleware of yours stands before
    it: it shows names of locks, labels of their holders (host names, by default) and of nodes.

    Args:
        app: not started.
        path: where the page is, below the application's own path.
        manager: what looks; None: the one that `setup` gives this very application.  For a sub-app give
            its parent's, ``parent[MANAGER]``.
        token: what opens the page, in its sign-in form: 16 characters or more, from a secret store.
        allow_release: whether locks can be released on the page; needs a token.
        hosts: the host names by which the page may be called, without ports; None: any.  Give them where
            browsers reach an application that has no sign-in of its own: else a foreign site may read the
            page through them (DNS rebinding).
        interval: seconds between two looks at the nodes while a page is open, 0.2 to 3600.  The time is
            longer where looking would take more than a twentieth of a processor.
        trust_proxy: whether a proxy, which alone reaches this server, says by ``X-Forwarded-Proto`` and
            ``X-Forwarded-For`` how a request came to it: for the cookie's ``Secure``, and for wrong tokens.

    Raises:
        RuntimeError: at the start: the application has no manager.
        TypeError, ValueError: a bad value, with the value in the message.
    """
    make = site_maker(
        token=token, allow_release=allow_release, hosts=hosts, interval=interval, trust_proxy=trust_proxy
    )
    if manager is not None and not isinstance(manager, LockManager):
        raise TypeError(f"manager must be a LockManager, got {manager!r}")
    if not path.startswith("/"):
        raise ValueError(f"path must begin with a slash, got {path!r}")
    add_page(app, path.rstrip("/"), lambda: make(_manager_of(app, manager)))


def _manager_of(app: web.Application, manager: LockManager | None) -> LockManager:
    manager = manager or app.get(MANAGER)
    if manager is None:
        raise RuntimeError(
            "the locks page finds no lock manager: call setup(app, nodes), or give one (in a sub-app, "
            "manager=parent[MANAGER])"
        )
    return manager


def add_page(app: web.Application, path: str, make: Callable[[], Site]) -> None:
    """Add the page's routes; its site is made when the application starts."""
    sites: list[Site] = []

    async def live(_app: web.Application) -> AsyncIterator[None]:
        sites.append(make())
        yield
        sites.pop().close()

    async def end_streams(_app: web.Application) -> None:
        for site in sites:
            site.close()  # the server waits for its answers to end, and only then cleans up

    async def answer(request: web.Request) -> web.StreamResponse:
        answer = await sites[0].answer(_request(request))
        if answer.events is None:
            return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        with closing(answer.events):
            response = web.StreamResponse(headers=answer.headers)
            await response.prepare(request)
            if not await _send(answer.events, response) and request.transport is not None:
                request.transport.abort()  # else what it does not take stays here for as long as it likes
        return response

    async def to_folder(request: web.Request) -> web.StreamResponse:
        raise web.HTTPPermanentRedirect(f"{request.rel_url.raw_path}/", headers=HEADERS)

    app.cleanup_ctx.append(live)
    app.on_shutdown.append(end_streams)
    if path:
        app.router.add_get(path, to_folder)
    app.router.add_route("*", path + "/{file:[^/]*}", answer)


def _request(request: web.Request) -> PageRequest:
    return PageRequest(
        method=request.method,
        path=request.match_info["file"],
        headers={name.lower(): value for name, value in request.headers.items()},
        query=request.query,
        address=request.remote or "",
        body=request.read,
        https=request.secure,
    )


async def _send(events: Stream, response: web.StreamResponse) -> bool:
    """Send a stream until it ends; False when its browser has gone, or takes nothing any more."""
    try:
        while (text := await events.next()) is not None:
            async with asyncio.timeout(WRITE_TIME):
                await response.write(text.encode())
    except (ConnectionError, TimeoutError):
        return False
    return True
