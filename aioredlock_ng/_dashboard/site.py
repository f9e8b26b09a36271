"""The page's own little web site: a request in, an answer out, whichever web server is around it."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from importlib import resources
from typing import Any, Final, final

from .. import ConfigurationError, LockError, LockManager
from .._log import report
from .._view.releasing import Agreed, gone, release
from .._view.values import dumped, in_full
from .access import Access, host_of
from .feed import Feed, Stream, TooManyError

MAX_BODY: Final = 512 * 1024
"""Bytes of a request's body, at most: a release names up to 256 holders, with labels of up to a kilobyte."""

READ_TIME: Final = 10.0
"""Seconds that a request's body may take."""

WRITE_TIME: Final = 30.0
"""Seconds that a browser may take for what it was sent, before its stream is ended."""

SHORTEST: Final = 0.2
LONGEST: Final = 3600.0
"""Seconds between two looks."""

HEADERS: Final[dict[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer: nothing but the page's own files is loaded or run, and nothing of it is kept."""

STREAM_HEADERS: Final[dict[str, str]] = {
    **HEADERS,
    "Content-Type": "text/event-stream",
    "X-Accel-Buffering": "no",  # nginx, and proxies that do as it does, buffer answers unless asked not to
}
"""Of the stream of events."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """An HTTP request, independent of the framework."""

    method: str
    path: str
    """Below the page, whose own is empty."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    query: Mapping[str, str]
    """``lock``: a name as a JSON text, which a URL can have whatever bytes the name has; ``heard``: the id of
    the last event that the page had, since what opens a stream in a browser can send no header."""
    address: str
    """Where it comes from; a proxy may have said so, and anything."""
    body: Callable[[], Awaitable[bytes]]
    """Called when its length is known to be small."""
    https: bool
    """Whether it came by HTTPS to this server."""

    @property
    def client_address(self) -> str:
        """Its address, as a line of a log may have it."""
        return self.address if self.address.isprintable() else ascii(self.address)

    def as_its_proxy_saw_it(self) -> PageRequest:
        """Return the request as it came to the proxy before this server, by what that one has added."""
        scheme = self.headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        address = self.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return dataclasses.replace(
            self, https=self.https or scheme == "https", address=address or self.address
        )

    @property
    def encrypted(self) -> bool:
        """Whether its browser sent it by HTTPS, perhaps to a proxy before this server."""
        return self.https or self.headers.get("origin", "").startswith("https:")

    @property
    def cookie(self) -> str:
        """The name of its cookie, with the port: cookies of a host are those of all its ports."""
        port = self.headers.get("host", "").rpartition(":")[2]
        return f"aioredlock_ng_{port}" if port.isdecimal() else "aioredlock_ng"

    @property
    def secret(self) -> str | None:
        """The secret of its session."""
        for part in self.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                return value
        return None


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageResponse:
    """The response to it."""

    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = dataclasses.field(default_factory=HEADERS.copy)
    body: bytes = b""
    events: Stream | None = None
    """An open stream in place of the body: what sends it also closes it."""


@final
class Site:
    """All that the page's server does."""

    def __init__(
        self, manager: LockManager, feed: Feed, access: Access, *, trusts_proxy: bool = False
    ) -> None:
        """Show what `feed` sees, and release locks through `manager`, for those that `access` lets in.

        When it `trusts_proxy`, what a proxy says of how a request came to it counts.
        """
        self._trusts_proxy = trusts_proxy
        self._manager = manager
        self._feed = feed
        self._access = access

    def close(self) -> None:
        """End all streams: a server that stops waits for its answers to end."""
        self._feed.close()

    async def answer(self, request: PageRequest) -> PageResponse:
        """Answer a request."""
        if not self._access.knows_host(request.headers):
            return _error(HTTPStatus.MISDIRECTED_REQUEST, "this host name is not allowed: see --allow-host")
        if self._trusts_proxy:
            request = request.as_its_proxy_saw_it()
        if request.method in ("GET", "HEAD"):
            return self._get(request)
        if request.method != "POST":
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, "use GET, HEAD or POST", Allow="GET, HEAD, POST")
        if not self._access.is_own(request.headers):
            return _error(HTTPStatus.FORBIDDEN, "the request does not come from this page")
        body = await _read(request)
        if not isinstance(body, dict):
            return _error(
                HTTPStatus.BAD_REQUEST, f"the body must be a JSON object of at most {MAX_BODY} bytes"
            )
        return await self._post(request, body)

    # -- GET -----------------------------------------------------------------------------------------

    def _get(self, request: PageRequest) -> PageResponse:
        if request.path == "session":
            return _json(
                {
                    "signed_in": self._access.signed_in(request.secret),
                    "needs_token": self._access.needs_token,
                    "may_release": self._access.may_release,
                }
            )
        if request.path == "events" and request.method == "GET":
            return self._events(request)
        file = _files().get(request.path or "index.html")
        if file is None:
            return _error(HTTPStatus.NOT_FOUND, "there is no such page")
        kind, content = file
        return PageResponse(headers={**HEADERS, "Content-Type": kind}, body=content)

    def _events(self, request: PageRequest) -> PageResponse:
        allowed = functools.partial(self._access.signed_in, request.secret)
        if not allowed():
            return _error(HTTPStatus.UNAUTHORIZED, "sign in first")
        if self._access.is_foreign(request.headers):
            return _error(HTTPStatus.FORBIDDEN, "the request does not come from this page")
        lock = request.query.get("lock")
        name = None if lock is None else _name(lock)
        if name is None and lock is not None:
            return _error(HTTPStatus.BAD_REQUEST, "lock must be a JSON string")
        try:
            events = self._feed.open(name, request.query.get("heard", ""), allowed)
        except TooManyError as error:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return PageResponse(headers=STREAM_HEADERS, events=events)

    # -- POST ----------------------------------------------------------------------------------------

    async def _post(self, request: PageRequest, body: dict[str, Any]) -> PageResponse:
        if request.path == "sign-in":
            return self._sign_in(request, body)
        if request.path == "sign-out":
            self._access.sign_out(request.secret)
            return self._with_cookie(request, "", "; Max-Age=0")
        if request.path == "release":
            return await self._release(request, body)
        return _error(HTTPStatus.NOT_FOUND, "there is no such page")

    def _sign_in(self, request: PageRequest, body: dict[str, Any]) -> PageResponse:
        wait = math.ceil(self._access.must_wait(request.address))
        if wait:
            detail = f"too many wrong tokens: wait {wait} s"
            return _error(HTTPStatus.TOO_MANY_REQUESTS, detail, **{"Retry-After": str(wait)})
        secret = self._access.sign_in(str(body.get("token", "")), request.address)
        if secret is None:
            report(logging.WARNING, "dashboard: a wrong token from %s", request.client_address)
            return _error(HTTPStatus.UNAUTHORIZED, "wrong token")
        return self._with_cookie(request, secret)

    @staticmethod
    def _with_cookie(request: PageRequest, secret: str, lasts: str = "") -> PageResponse:
        # Without a path a browser takes that of the page, which a proxy may have put elsewhere.
        cookie = f"{request.cookie}={secret}; HttpOnly; SameSite=Strict{lasts}"
        cookie += "; Secure" if request.encrypted else ""
        return PageResponse(status=HTTPStatus.NO_CONTENT, headers={**HEADERS, "Set-Cookie": cookie})

    async def _release(self, request: PageRequest, body: dict[str, Any]) -> PageResponse:
        if not self._access.signed_in(request.secret):
            return _error(HTTPStatus.UNAUTHORIZED, "sign in first")
        if not self._access.may_release_now(request.secret):
            return _error(
                HTTPStatus.FORBIDDEN, "releasing locks is not allowed on this page: see --allow-release"
            )
        name, shown = body.get("name"), Agreed.read(body)
        if not isinstance(name, str) or shown is None:
            return _error(HTTPStatus.BAD_REQUEST, "the request must name the lock and what was shown of it")
        try:
            outcome = await release(self._manager, name, shown)
        except (ConfigurationError, LockError) as error:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except ValueError as error:
            detail = f"{error}: this is not a lock of this library"
            return _error(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        except asyncio.CancelledError:
            log = "lock %s may have been released from the dashboard by %s: the server stopped meanwhile"
            report(logging.WARNING, log, ascii(name), request.client_address, lock=(name,))
            raise
        if outcome.refused == "too few":
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, outcome.detail)
        if outcome.refused:
            now = in_full(outcome.lock, outcome.at, None)
            return _json({"detail": outcome.detail, "lock": now}, HTTPStatus.CONFLICT)
        report(
            logging.WARNING,
            "lock %s, held by %s, was released from the dashboard by %s: deleted on %d of %d nodes",
            ascii(name),
            ascii(outcome.lock.holder),
            request.client_address,
            outcome.deleted,
            len(outcome.nodes),
            lock=(name,),
            kind=outcome.lock.kind,
        )
        left = [{"node": node.node, "reason": node.reason} for node in outcome.nodes if not gone(node)]
        return _json({"deleted": outcome.deleted, "nodes": len(outcome.nodes), "left": left})


def _json(value: object, status: int = HTTPStatus.OK, **more: str) -> PageResponse:
    headers = {**HEADERS, "Content-Type": "application/json", **more}
    return PageResponse(status=status, headers=headers, body=dumped(value).encode())


def _error(status: int, detail: str, **headers: str) -> PageResponse:
    return _json({"detail": detail}, status, **headers)


async def _read(request: PageRequest) -> object:
    """Return the JSON value in a body; None when there is none, or it is too long, or does not come."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > MAX_BODY:
        return None
    if "transfer-encoding" in request.headers:  # what that says counts, and the length is not kept to
        return None
    try:
        async with asyncio.timeout(READ_TIME):
            return json.loads(await request.body())
    except (ValueError, RecursionError, OSError):
        return None


def _name(text: str) -> str | None:
    try:
        name = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return name if isinstance(name, str) else None


@functools.cache
def _files() -> Mapping[str, tuple[str, bytes]]:
    """Return the files of the page with their types, by their names."""
    folder = resources.files(__package__) / "static"
    return {
        file.name: (kind, file.read_bytes())
        for file in folder.iterdir()
        if (kind := _TYPES.get(f".{file.name.rpartition('.')[2]}"))
    }


def site_maker(
    *,
    token: str | None,
    allow_release: bool,
    hosts: Iterable[str] | None,
    interval: float,
    trust_proxy: bool,
    quarantine: float | None = None,
    counted: bool = True,
) -> Callable[[LockManager], Site]:
    """Check the options of a page, and return what makes the site that shows what a manager sees.

    Raises:
        TypeError, ValueError: one of them cannot be; the message has it, and what would be right.
    """
    if token is not None and not isinstance(token, str):
        raise TypeError(f"token must be a str, got {type(token).__name__}")  # and not what it is
    if not isinstance(interval, (int, float)):
        raise TypeError(f"interval must be a number of seconds, got {interval!r}")
    if not SHORTEST <= interval <= LONGEST:
        raise ValueError(f"interval must be {SHORTEST:g} to {LONGEST:g} seconds, got {interval!r}")
    names = None if hosts is None else _host_names(hosts)
    access = Access(token=token, may_release=allow_release, hosts=names)

    def make(manager: LockManager) -> Site:
        feed = Feed(manager, interval=interval, quarantine=quarantine, counted=counted)
        return Site(manager, feed, access, trusts_proxy=trust_proxy)

    return make


def _host_names(hosts: Iterable[str]) -> frozenset[str]:
    """Return the names as they stand in Host headers, where no other would ever be found."""
    if isinstance(hosts, (str, bytes)):
        raise TypeError(f"hosts must be several names, got {hosts!r}")
    names = frozenset(hosts)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"hosts must be names, got {name!r}")
        if not name or host_of(f"[{name}]" if name.count(":") > 1 else name) != name.lower():
            raise ValueError(f"hosts must be names without ports, got {name!r}")
    return names
