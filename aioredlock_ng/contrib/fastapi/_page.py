"""The page of nodes and locks, as a router."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final, final

import anyio
from fastapi import APIRouter, Depends, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ... import LockManager
from ..._dashboard.feed import Stream
from ..._dashboard.site import WRITE_TIME, PageRequest, Site, site_maker
from ._requests import get_lock_manager

STREAM_TIME: Final = 20.0
"""Seconds after which a stream ends, and the browser opens the next: servers of ASGI applications wait for
answers to end before they tell the application that it should."""


def locks_router(
    manager: LockManager | None = None,
    *,
    token: str | None = None,
    allow_release: bool = False,
    hosts: Iterable[str] | None = None,
    interval: float = 2.0,
    trust_proxy: bool = False,
    dependencies: Sequence[Any] = (),
) -> APIRouter:
    """Show nodes and locks, live, on a page of the application; what ``aioredlock-ng dashboard`` shows.

        app.include_router(locks_router(dependencies=[Depends(admins_only)]), prefix="/locks")

    Whatever reaches the application sees the page, unless a `token` or one of the `dependencies` stands
    before it: it shows names of locks, labels of their holders (host names, by default) and of nodes.

    Args:
        manager: what looks; None: the application's, as `get_lock_manager` finds it.
        token: what opens the page, in its sign-in form: 16 characters or more, from a secret store.
        allow_release: whether locks can be released on the page; needs a token.
        hosts: the host names by which the page may be called, without ports; None: any.  Give them where
            browsers reach an application that has no sign-in of its own: else a foreign site may read the
            page through them (DNS rebinding).
        interval: seconds between two looks at the nodes while a page is open, 0.2 to 3600.  The time is
            longer where looking would take more than a twentieth of a processor.
        trust_proxy: whether a proxy, which alone reaches this server, says by ``X-Forwarded-Proto`` and
            ``X-Forwarded-For`` how a request came to it: for the cookie's ``Secure``, and for wrong tokens.
        dependencies: of all its routes.

    Raises:
        TypeError, ValueError: a bad value, with the value in the message.
    """
    make = site_maker(
        token=token, allow_release=allow_release, hosts=hosts, interval=interval, trust_proxy=trust_proxy
    )
    if manager is not None and not isinstance(manager, LockManager):
        raise TypeError(f"manager must be a LockManager, got {manager!r}")
    router = APIRouter(dependencies=dependencies, include_in_schema=False)
    find = get_lock_manager if manager is None else lambda: manager
    shown: list[tuple[LockManager, Site]] = []

    async def answer(
        request: Request,
        file: str = "",
        manager: LockManager = Depends(find),  # noqa: B008 (`find` is no name of the module)
    ) -> Response:
        if not shown or shown[0][0] is not manager:  # another run of the application has another one
            shown[:] = [(manager, make(manager))]
        answer = await shown[0][1].answer(_request(request, file))
        if answer.events is not None:
            return _StreamResponse(answer.headers, answer.events)
        return Response(status_code=answer.status, headers=dict(answer.headers), content=answer.body)

    router.add_api_route("/", answer, methods=["GET", "HEAD"])
    router.add_api_route("/{file}", answer, methods=["GET", "HEAD", "POST"])
    return router


def _request(request: Request, file: str) -> PageRequest:
    async def body() -> bytes:
        try:
            return await request.body()
        except ClientDisconnect:
            raise ConnectionResetError from None

    return PageRequest(
        method=request.method,
        path=file,
        headers={name.lower(): value for name, value in request.headers.items()},
        query=request.query_params,
        address="" if request.client is None else request.client.host,
        body=body,
        https=request.url.scheme == "https",
    )


@final
class _StreamResponse(Response):
    """Sends a stream until it ends, or its browser has gone, or takes nothing any more."""

    def __init__(self, headers: Mapping[str, str], events: Stream) -> None:
        super().__init__(headers=dict(headers))
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with closing(self._events):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_disconnect, receive, tasks.cancel_scope)
                with anyio.move_on_after(STREAM_TIME):
                    await self._send(send)
                tasks.cancel_scope.cancel()
        with (
            suppress(OSError),
            anyio.move_on_after(WRITE_TIME),
        ):  # what was sent before may still be under way
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        with suppress(OSError):
            while (text := await self._events.next()) is not None:
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    @staticmethod
    async def _until_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()
