"""Read from a request: the lock manager of its application, and lock names from its parameters.

What the parameters of an endpoint are, and which values they get, only FastAPI knows: this file reads
FastAPI's own data and calls its own validation, so that what names the lock is what the endpoint works on.
"""

from __future__ import annotations

from asyncio import Future, Task, create_task, wait
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final, final

from fastapi import Depends, HTTPException, WebSocket, WebSocketException, status
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive

from ... import LockManager
from ..._locks.template import fill_in
from .._http import GONE


def name_of_lock(called: str) -> str:
    """Return the qualified name of a dependency that `locked` makes for a lock of that default label."""
    return f"locked({called!r})"


def filled(template: str, fields: Sequence[str], called: str, connection: HTTPConnection) -> str:
    """Fill a template with the values that FastAPI gives to the endpoint and its dependencies."""
    route = route_of(connection)
    nodes = list(tree(route.dependant))
    # Else they are not what FastAPI solves here.  By name: FastAPI may evaluate an annotation twice.
    if all(getattr(node.call, "__qualname__", "") != name_of_lock(called) for node in nodes):
        raise RuntimeError(f"{name_of_lock(called)} must be a dependency of the route {route.path!r} itself")
    path, query = connection.path_params, connection.query_params
    groups = [group for node in nodes for group in ((node.path_params, path), (node.query_params, query))]
    values: dict[str, Any] = {}
    for field in fields:
        declaration = _declaration(field, groups)
        if declaration is not None:
            declared, received, name = declaration
            found, errors = request_params_to_args(declared, received)
            if errors:
                raise _invalid(errors, connection)
            values[field] = found[name]
        elif field in path:
            values[field] = path[field]
        else:
            raise RuntimeError(
                f"template {template!r}: {field!r} is not a path or query parameter of the route "
                f"{route.path!r}"
            )
    return fill_in(template, values)


def route_of(connection: HTTPConnection) -> Any:
    """Return the route as it is run: one of an included router has that prefix and those dependencies."""
    route = connection.scope.get("route")
    context = connection.scope.get("fastapi", {}).get("effective_route_context")  # in newer FastAPI
    return context if context is not None and context.original_route is route else route


def tree(dependant: Dependant) -> Iterator[Dependant]:
    """Yield the endpoint, and then its dependencies, in order, each before its own."""
    yield dependant
    for dependency in dependant.dependencies:
        yield from tree(dependency)


def _declaration(field: str, groups: Sequence[tuple[Any, Any]]) -> tuple[Any, Any, str] | None:
    """Find the declaration of a parameter, by its name in Python, else by its name in requests.

    Returns:
        All parameters declared there, what the request has for them, and the parameter's name in Python.
    """
    for name_of in map(attrgetter, ("name", "alias", "field_info.validation_alias")):
        for declared, received in groups:
            for parameter in declared:
                if name_of(parameter) == field:
                    return declared, received, parameter.name
    return None


def _invalid(errors: Sequence[Any], connection: HTTPConnection) -> Exception:
    """Return what FastAPI raises itself for a request that does not validate."""
    kind = WebSocketRequestValidationError if isinstance(connection, WebSocket) else RequestValidationError
    return kind(errors)


def unusable(connection: HTTPConnection) -> Exception:
    """Return the 422 for a request that asks for a name no lock can have: empty, too long, reserved."""
    problem = {"type": "lock_name", "loc": ("request",), "msg": "No lock can have the name this asks for"}
    return _invalid([problem], connection)


def gone(connection: HTTPConnection) -> Exception:
    """Return what ends a request whose client has left; the server drops the answer to it."""
    if isinstance(connection, WebSocket):
        return WebSocketException(status.WS_1001_GOING_AWAY)
    return HTTPException(GONE, "the client has left")


READ_AHEAD: Final = 2**16
"""Bytes of a request's body that are kept while it waits for a lock, with `_MESSAGE` for each part."""

_MESSAGE: Final = 64


@final
class Ahead:
    """Reads ahead of the endpoint until the client leaves, and keeps for it what came."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection
        self._receive: Receive
        self._kept: deque[Task[Message]] = deque()

    async def until_left(self) -> None:
        """Return when the client has left; never where more of its body waits than is kept."""
        connection: Any = self._connection
        self._receive, connection._receive = connection._receive, self._next  # noqa: SLF001 (no other way)
        connection.scope["fastapi_inner_astack"].callback(self._end)
        size, more = 0, not getattr(connection, "_stream_consumed", False)
        while size < READ_AHEAD:
            reading = create_task(self._read())
            self._kept.append(reading)
            try:
                await wait([reading])
            finally:  # when the wait is over, it goes on: a middleware that is cancelled may lose a part
                if not (more or reading.done()):  # of a body that is complete there is none
                    reading.cancel()
                    await wait([self._kept.pop()])
            if reading.exception():  # the endpoint's
                break
            message = reading.result()
            if message["type"].endswith(".disconnect"):
                return
            size += _MESSAGE + len(message.get("body") or message.get("bytes") or message.get("text") or b"")
            more = message["type"] != "http.request" or message.get("more_body", False)
        await Future()

    async def _read(self) -> Message:
        return await self._receive()

    async def _next(self) -> Message:
        return await (self._kept.popleft() if self._kept else self._receive())

    def _end(self) -> None:
        for reading in self._kept:
            reading.cancel()


async def get_lock_manager(connection: HTTPConnection) -> LockManager:
    """Return the lock manager of the application.  Tests override it: ``app.dependency_overrides``.

    Raises:
        RuntimeError: there is none; says how to provide it.
    """
    for state in (connection.state, connection.app.state):
        manager = getattr(state, "lock_manager", None)
        if isinstance(manager, LockManager):
            return manager
        if manager is not None:
            raise RuntimeError(f"the application's lock_manager must be a LockManager, got {manager!r}")
    raise RuntimeError(
        'this application has no lock manager: write `yield {"lock_manager": manager}` in its lifespan '
        "(and make sure that the lifespan runs), or set `app.state.lock_manager` of the app or sub-app itself"
    )


ManagerDep = Annotated[LockManager, Depends(get_lock_manager)]
"""For endpoints that make locks of their own: ``async def endpoint(manager: ManagerDep)``."""
