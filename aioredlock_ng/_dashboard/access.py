"""The rights to look and to release: sign-in, sessions, and which requests come from the page itself."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, final
from urllib.parse import urlsplit

MIN_TOKEN: Final = 16
"""Characters of a token, at least: with five tries a minute none is found, nor is one that is random by those
that have seen a session's secret."""

MAX_SIGNED_OUT: Final = 100
"""Sessions that were signed out, and that this process remembers; beyond it the oldest counts again.

What a session can do it can do without another sign-in until it ends by itself: a token that got into wrong
hands is replaced, which ends all sessions."""

SESSION_TIME: Final = 12 * 3600.0
"""Seconds until a session ends by itself.

A session's secret is its end, signed with the token: every process that has the token can check it, behind
whatever balancer, and another token ends all of them.
"""

MAX_WRONG: Final = 5
"""Wrong tokens in a minute from one address, at most; then it has to wait."""

WRONG_TIME: Final = 60.0
"""Seconds for which a wrong token counts."""

ADDRESSES: Final = 256
"""Groups of addresses whose wrong tokens are counted, so that no number of addresses takes more room."""

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""The names by which a browser on this machine calls it."""


@final
class Access:
    """The sign-in of one page."""

    def __init__(
        self,
        *,
        token: str | None,
        may_release: bool,
        hosts: Collection[str] | None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Let in by `token`, or all when it is None; `hosts` is what the page may be called (None: anything).

        `clock` returns seconds that never go back, and `wall` the time of day, as other processes have it.

        Raises:
            ValueError: the token is too short, or there is none although locks may be released.
        """
        if token is not None and len(token) < MIN_TOKEN:
            raise ValueError(f"a token needs at least {MIN_TOKEN} characters, got {len(token)}")
        if may_release and token is None:
            raise ValueError(
                "releasing locks needs a token: otherwise any client that reaches the page could do it"
            )
        self.needs_token = token is not None
        self.may_release = may_release
        self._token = _digest(token or "")
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._clock = clock
        self._wall = wall
        # Slow to make, once: a session's secret that was seen on its way must not tell which token made it.
        self._key = b"" if token is None else _slow_digest(token)
        self._signed_out: deque[str] = deque(maxlen=MAX_SIGNED_OUT)
        self._wrong: dict[int, deque[float]] = {}

    # -- which requests ------------------------------------------------------------------------------

    def knows_host(self, headers: Mapping[str, str]) -> bool:
        """Whether the page is called by a name of its own.

        Another name that leads here is a site's that had a browser's DNS answer it with this address, so
        that its scripts may read what they get (DNS rebinding).
        """
        return self._hosts is None or host_of(headers.get("host", "")) in self._hosts

    @staticmethod
    def is_foreign(headers: Mapping[str, str]) -> bool:
        """Whether another site asks: it cannot read the answer, but would have the nodes looked at."""
        return headers.get("sec-fetch-site", "none") not in ("same-origin", "none")

    @staticmethod
    def is_own(headers: Mapping[str, str]) -> bool:
        """Whether a request that changes something comes from the page itself, or from no browser.

        A form of another site cannot send JSON, and a script of it cannot without being asked first; a
        browser also says where a request comes from.
        """
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return False
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return False
        origin = headers.get("origin")
        return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()

    # -- sign-in -------------------------------------------------------------------------------------

    def must_wait(self, address: str) -> float:
        """Return the seconds until a token is looked at that comes from this address."""
        wrong = self._wrong.get(_group(address), deque())
        return max(0.0, wrong[0] + WRONG_TIME - self._clock()) if len(wrong) == MAX_WRONG else 0.0

    def sign_in(self, token: str, address: str) -> str | None:
        """Return the secret of a new session; None when the token is wrong."""
        now = self._clock()
        if not self.needs_token or not hmac.compare_digest(_digest(token), self._token):
            self._wrong.setdefault(_group(address), deque(maxlen=MAX_WRONG)).append(now)
            return None
        session = f"{int(self._wall() + SESSION_TIME)}.{secrets.token_urlsafe(16)}"
        return f"{session}.{self._signature(session)}"

    def signed_in(self, secret: str | None) -> bool:
        """Whether a request may see the page; `secret` is the session's that came with it."""
        return not self.needs_token or self._has_session(secret)

    def may_release_now(self, secret: str | None) -> bool:
        """Whether it may also release locks."""
        return self.may_release and self._has_session(secret)

    def sign_out(self, secret: str | None) -> None:
        """End a session here; another process does not hear of it, and the browser forgets its secret."""
        if secret is not None and self._has_session(secret):
            self._signed_out.append(secret)

    def _has_session(self, secret: str | None) -> bool:
        if not self.needs_token:  # there are no sessions, and no key
            return False
        session, _, signature = (secret or "").rpartition(".")
        if not hmac.compare_digest(signature.encode(errors="replace"), self._signature(session).encode()):
            return False
        return self._wall() < int(session.partition(".")[0]) and secret not in self._signed_out

    def _signature(self, session: str) -> str:
        return hmac.new(self._key, session.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def host_of(host: str) -> str:
    """Return the name in a Host header, without its port and without an IPv6 address's brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def _slow_digest(token: str) -> bytes:
    return hashlib.scrypt(token.encode(), salt=b"aioredlock_ng session", n=2**14, r=8, p=1)


def _group(address: str) -> int:
    return hash(address) % ADDRESSES
