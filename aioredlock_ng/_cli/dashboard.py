"""``aioredlock-ng dashboard``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from .._dashboard.access import LOOPBACK
from .._log import Once, report
from ._terminal import logged_by
from .common import (
    SIGNALLED,
    UsageError,
    add_node_options,
    add_time,
    clients_quarantine,
    closing,
    make_manager,
    until_signal,
)

if TYPE_CHECKING:
    from aiohttp import web

    from .._dashboard.site import Site

DESCRIPTION: Final = """\
Serves a live web page, until it is interrupted.  The page shows the nodes and all locks: holders, since
when they hold, the time left, queues, and what happens to one lock.

Only browsers on this machine can open it, unless --bind allows others, which needs a token.  With a token
users must sign in first.  With --allow-release, locks can be released on the page; this needs a token, too,
and each release is logged."""

_PORT: Final = 8377

_LAST_PORT: Final = 65535

_SHUTDOWN: Final = 1.0
"""Seconds for which an answer may go on at the end."""

_LONGEST_TOKEN: Final = 4096
"""Bytes of a token's file, at most."""

MAX_CONNECTIONS: Final = 256
"""Connections at the same time; further ones are closed at once."""

IDLE_TIME: Final = 15.0
"""Seconds for which a connection may be open without a request, or with half a one."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--bind",
        type=_address,
        default=("127.0.0.1", _PORT),
        metavar="HOST:PORT",
        help=f"where to listen (default: 127.0.0.1:{_PORT}); port 0: a free one",
    )
    add_time(
        parser,
        "--interval",
        default=2.0,
        help="polling interval while a page is open; longer if polling would use more than 5 %% of a CPU "
        "(default: %(default)s s)",
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with the access token of "
        "the page, 16 characters or more; only its owner may have the right to read it"
    )  # fmt: skip
    parser.add_argument("--allow-release", action="store_true", help="allow releasing locks on the page")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another host name under which browsers may open the page, for example behind a proxy; may "
        "be repeated",
    )
    parser.add_argument(
        "--trust-proxy",
        action="store_true",
        help="trust X-Forwarded-Proto and X-Forwarded-For; only if a proxy is the only client that can "
        "reach this server",
    )
    add_node_options(parser)


def _address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, such as 127.0.0.1:{_PORT}, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    try:
        from .._dashboard.site import site_maker
        from ..contrib.aiohttp import _page as _
    except ModuleNotFoundError as error:
        raise UsageError(f"dashboard needs {error.name}: pip install 'aioredlock_ng[dashboard]'") from None
    token = None if arguments.token_file is None else _token(arguments.token_file)
    host, _ = arguments.bind
    if token is None and not _is_loopback(host):
        raise UsageError(f"dashboard: other machines can reach {host}: give --token-file")
    if token is None and arguments.allow_release:
        raise UsageError("dashboard: --allow-release needs a token: give --token-file")
    try:
        make_site = site_maker(
            token=token,
            allow_release=arguments.allow_release,
            hosts=_hosts(host, arguments.allow_host),
            interval=arguments.interval,
            quarantine=clients_quarantine(),
            counted=False,
            trust_proxy=arguments.trust_proxy,
        )
    except ValueError as error:
        raise UsageError(f"dashboard: {error}") from None
    manager = make_manager(arguments)
    log = logging.StreamHandler()
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with logged_by(log):
        return asyncio.run(closing(manager, _serve(make_site(manager), arguments.bind)))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _hosts(host: str, allowed: list[str]) -> set[str] | None:
    """Return by which names browsers may call the page; None: by any.

    On this machine its own names are known.  Elsewhere there is a token, whose session no other name gets.
    """
    if _is_loopback(host):
        return {host, socket.gethostname(), *LOOPBACK, *allowed}
    return {host, socket.gethostname(), *allowed} if allowed else None


def _shown(host: str) -> str:
    """Return the name in a URL that a browser can open: no browser goes to "any address of this machine"."""
    if ipaddress.ip_address(host).is_unspecified:
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _token(path: Path) -> str:
    """Read the token, which no other user may be able to read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_LONGEST_TOKEN + 1)
    except OSError as error:
        raise UsageError(f"--token-file: cannot read {path}: {error.strerror}") from None
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"--token-file: others can read {path}: chmod 600 {path}")
    with contextlib.suppress(UnicodeDecodeError):
        token = content.strip().decode()
        if len(content) <= _LONGEST_TOKEN and token.isprintable():
            return token
    raise UsageError(f"--token-file: {path} is not one line of text of at most {_LONGEST_TOKEN} bytes")


async def _serve(site: Site, bind: tuple[str, int]) -> int:
    """Serve until a signal comes; Ctrl-C is the ordinary end."""
    from aiohttp import web

    from .._dashboard.site import HEADERS
    from ..contrib.aiohttp._page import add_page

    async def protect(_request: web.Request, response: web.StreamResponse) -> None:
        for name, value in HEADERS.items():  # also of what is answered without the page
            response.headers.setdefault(name, value)

    app, door = web.Application(), _Door()
    add_page(app, "", lambda: site)
    app.on_response_prepare.extend((protect, door.has_asked))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN, keepalive_timeout=IDLE_TIME)
    await runner.setup()
    door.server = runner.server
    try:
        try:
            server = await asyncio.get_running_loop().create_server(door, *bind)
        except OSError as error:
            raise UsageError(f"dashboard: cannot listen on {bind[0]}:{bind[1]}: {error.strerror}") from None
        host, port, *_ = server.sockets[0].getsockname()
        print(f"http://{_shown(host)}:{port}/", flush=True)
        ended_by = await until_signal(_forever())
        server.close()
    finally:
        await runner.cleanup()
    return SIGNALLED + signal.SIGTERM if ended_by == signal.SIGTERM else 0


async def _forever() -> None:
    await asyncio.Event().wait()


@final
class _Door:
    """Makes the protocols of the web server, whose own timeout begins with the first request."""

    def __init__(self) -> None:
        self.server: web.Server | None = None
        self._made = 0  # the server does not know of these before the next turn of the loop
        self._silent: set[asyncio.BaseProtocol] = set()  # those that have not asked for anything
        self._once = Once()

    def __call__(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        assert self.server is not None, "set before it listens"
        if len(self.server.connections) + self._made >= MAX_CONNECTIONS:
            if self._once.first("full"):
                full = "dashboard: %d connections are open; further ones are closed at once"
                report(logging.WARNING, full, MAX_CONNECTIONS)
            return _NoRoom()
        loop, protocol = asyncio.get_running_loop(), self.server()
        self._made += 1
        self._silent.add(protocol)
        loop.call_soon(self._connected)
        loop.call_later(IDLE_TIME, self._close_if_silent, protocol)
        return protocol

    def _connected(self) -> None:
        self._made -= 1

    async def has_asked(self, request: web.Request, _response: web.StreamResponse) -> None:
        """Note that a whole request has come."""
        self._silent.discard(request.protocol)

    def _close_if_silent(self, protocol: web.RequestHandler) -> None:
        if protocol in self._silent:
            self._silent.remove(protocol)
            if protocol.transport is not None:
                protocol.transport.abort()


@final
class _NoRoom(asyncio.Protocol):
    """Closes its connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "of a stream"
        transport.abort()
