"""Reads a node's URL, and masks its secrets."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.exceptions import RedisError

from ..errors import ConfigurationError
from .handshake import RESP3, PlainConnection, TlsConnection, UnixConnection, make_connection

REDIS_SENTINEL_MARK: Final = "+sentinel"
"""A suffix of the scheme: the URL names Redis Sentinels, and not the server itself."""

_NETWORK_SCHEMES: Final = ("redis", "rediss", "valkey", "valkeys")

SCHEMES: Final = (*_NETWORK_SCHEMES, "unix", *(scheme + REDIS_SENTINEL_MARK for scheme in _NETWORK_SCHEMES))

TLS_SCHEMES: Final = ("rediss", "valkeys")

DEFAULT_PORT: Final = 6379
DEFAULT_REDIS_SENTINEL_PORT: Final = 26379

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

_DATABASE: Final = re.compile("([0-9]{1,9}/?)?")
"""A database's number, or nothing: redis-py reads ``/locks`` as 0, and ``/3/4`` as 34."""

_PORT: Final = re.compile(r"^[^:]*(:[0-9]{1,5})?$|\](:[0-9]{1,5})?$")

OURS: Final[Mapping[object, type[Any]]] = {
    Connection: PlainConnection,
    SSLConnection: TlsConnection,
    UnixDomainSocketConnection: UnixConnection,
}
"""Our class for each of redis-py's connections."""

_POOL_OPTIONS: Final = ("connection_class", "max_connections", "timeout")

_REDIS_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")
"""The login at the Redis Sentinels: the rest of the URL is about the master."""


def names_redis_sentinels(url: str) -> bool:
    """Whether a URL names Redis Sentinels, not the server itself."""
    return url.partition("://")[0].endswith(REDIS_SENTINEL_MARK)


def _split(url: str) -> SplitResult:
    """Split a URL into its parts; raises `ValueError` for an address that is none.

    Newer Pythons refuse the address of several hosts if an IPv6 address is among them.
    """
    if not names_redis_sentinels(url):
        return urlsplit(url)
    scheme, _, rest = url.partition("://")
    address = re.split("[/?#]", rest, maxsplit=1)[0]
    for host in address.rpartition("@")[2].split(","):
        urlsplit(f"//{host}")
    return urlsplit(f"{scheme}://{rest[len(address) :]}")._replace(netloc=address)


def masked(url: str) -> str:
    """Return `url` without user, password and query; parts that may hold a secret are left out."""
    scheme, separator, _ = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return "<not a URL>" if "@" in url or "?" in url else ascii(url)
    try:
        parts = _split(url)
    except ValueError:
        return f"{scheme}://<not an address>"
    # Where an unescaped '?', '/' or '#' of a password ends the address too early, its '@' comes later.
    options = [part for part in parts.query.split("&") if not part.startswith(("password=", "username="))]
    cut_short = any("@" in part for part in (parts.path, parts.fragment, *options))
    if cut_short or not (parts.hostname or parts.path):
        return f"{scheme}://<not an address>"
    host = parts.netloc.rpartition("@")[2]
    hosts = host.split(",") if names_redis_sentinels(url) else [host]
    if not all(map(_PORT.search, hosts)):  # what stands where the port should be may be a password
        host = parts.hostname or ""
    return f"{scheme}://{host}{parts.path}"


@final
@dataclass(frozen=True, slots=True)
class Service:
    """A service, and the Redis Sentinels that know its master."""

    name: str
    hosts: tuple[tuple[str, int], ...]
    login: Mapping[str, str]
    """User and password of the Redis Sentinels, if they have any."""


@final
class NodeUrl:
    """A node's URL, taken apart.

    Raises:
        ConfigurationError: when it cannot be used; the message holds no secret.
    """

    def __init__(self, url: str) -> None:
        self.name = masked(url)
        scheme = url.partition("://")[0]
        if scheme not in SCHEMES:
            hint = "" if "://" in url or self.name[0] == "<" else f"; did you mean redis://{url}?"
            schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise ConfigurationError(f"node {self.name}: unknown scheme, expected one of {schemes}{hint}")
        self.service: Service | None = None
        """None where the URL names the server itself."""
        self.connection_class: type[Connection] = Connection
        try:
            if names_redis_sentinels(url):
                self.service, url = _service(url)
                scheme = scheme.removesuffix(REDIS_SENTINEL_MARK)
            self._read(scheme, url)
            self._refuse_unknown_options(secret="password=" in url.partition("?")[2])
            make_connection(self.connection_class, self.options, 1.0, self.protocol)
        except ConfigurationError:
            raise
        except (ValueError, TypeError, RedisError):
            # The parser's own message may quote the part of the URL that holds the password.
            raise self._invalid() from None

    def _read(self, scheme: str, url: str) -> None:
        parts = urlsplit(url)
        self.address: tuple[object, ...]
        """Tells two nodes apart: database numbers and credentials do not make a second server."""
        if self.service is not None:
            hosts = self.service.hosts if all(host for host, _ in self.service.hosts) else ()
            self.address = (frozenset(hosts), self.service.name)
        elif scheme == "unix":
            self.address = (parts.path,)
        else:
            self.address = (parts.hostname, parts.port or DEFAULT_PORT)
        if not all(self.address):
            what = "path" if scheme == "unix" else "host"
            form = " or no service; it is written redis+sentinel://host:26379,host:26379/service/db"
            example = "" if self.service is None else form
            raise ConfigurationError(f"node {self.name}: the URL names no {what}{example}")
        if self.service is None and scheme != "unix" and "," in str(self.address[0]):
            raise ConfigurationError(
                f"node {self.name}: the URL of a node names one server; give several as a list of URLs"
            )
        databases = [value for option, value in parse_qsl(parts.query) if option == "db"]
        if scheme != "unix":  # there the path is the socket's
            databases.append(unquote(parts.path).removeprefix("/"))
        if parts.fragment or not all(map(_DATABASE.fullmatch, databases)):
            if "<" in self.name:  # the path is rather the rest of a password
                raise self._invalid()
            raise ConfigurationError(
                f"node {self.name}: the database is not a number; write it as in redis://host:6379/3 or ?db=3"
            )
        options = dict(parse_url(scheme.replace("valkey", "redis") + url[len(scheme) :]))
        if scheme in TLS_SCHEMES and options.get("ssl_cert_reqs") != "none":
            options.setdefault("ssl_check_hostname", True)  # redis-py 5 does not by itself
        connection_class: Any = options.get("connection_class", Connection)
        self.connection_class = OURS.get(connection_class, connection_class)
        for option in _POOL_OPTIONS:
            options.pop(option, None)
        self.protocol = int(str(options.pop("protocol", RESP3)))
        self.options: dict[str, Any] = options
        """For `connection_class`."""

    def _invalid(self) -> ConfigurationError:
        return ConfigurationError(
            f"node {self.name}: not a valid node URL; check the port, and %-escape special characters"
        )

    def _refuse_unknown_options(self, *, secret: bool) -> None:
        from difflib import get_close_matches  # here: only a mistake needs it

        known = _options_of(self.connection_class) | ({*_REDIS_SENTINEL_OPTIONS} if self.service else set())  # type: ignore[arg-type]  # mypy: a type is Hashable
        for option in self.options:
            if option in known:
                continue
            # What stands behind an unescaped '&' of a password looks like an option, too.
            shown = "" if secret or "<" in self.name else f" {option!a}"
            nearest = get_close_matches(option, known, 1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            if option in _options_of(SSLConnection):
                hint = ": it works only with rediss://, valkeys:// and other TLS schemes"
            raise ConfigurationError(f"node {self.name}: unknown option{shown} in the URL{hint}")


def _service(url: str) -> tuple[Service, str]:
    """Split a Redis Sentinel URL into its service, and the URL of a master of unknown address."""
    parts = _split(url)
    login, at, hosts = parts.netloc.rpartition("@")
    name, _, database = parts.path.lstrip("/").partition("/")
    options = parse_qsl(parts.query)
    own = {key.removeprefix("sentinel_"): value for key, value in options if key in _REDIS_SENTINEL_OPTIONS}
    service = Service(unquote(name), tuple(map(_host_and_port, hosts.split(","))), own)
    rest = urlencode([(key, value) for key, value in options if key not in _REDIS_SENTINEL_OPTIONS])
    scheme = parts.scheme.removesuffix(REDIS_SENTINEL_MARK)
    return service, f"{scheme}://{login}{at}master/{database}?{rest}"


def _host_and_port(host: str) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    return parts.hostname or "", parts.port or DEFAULT_REDIS_SENTINEL_PORT


@functools.cache
def _options_of(connection_class: type[Connection]) -> frozenset[str]:
    """Return the options that redis-py's connections of this class take."""
    found: set[str] = set()
    for base in connection_class.__mro__:
        parameters = inspect.signature(vars(base).get("__init__", object)).parameters.values()
        found |= {one.name for one in parameters if one.kind is not one.VAR_KEYWORD}
    return frozenset(found - {"self", "args", "kwargs"})
