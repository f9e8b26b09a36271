"""Release notices on real servers: heard over the connection of the commands, or known not to be (R13)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import hiredis
import pytest

from aioredlock_ng import LockManager
from aioredlock_ng._core.rights import ACL_RIGHTS
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node import NodeState
from aioredlock_ng._node.handshake import MAX_LAST_WORDS
from tests.conformance.tools import Asked, connected
from tests.servers import ask, eventually, skip_unless_available, with_rights

KEY = b"redlock:a"
NAME = Primitive(MUTEX, ("a",), (KEY,))
OWNER = b"%040x:host" % 1
PASSWORD = "s3cret-pass"


class Hearing(Asked):
    """A node on its own, and what it hears."""

    notices: list[bytes]

    async def hear(self, channel: bytes = KEY) -> None:
        """Listen to a channel, and wait until that stands."""
        self.node.subscribe(channel)
        await eventually(lambda: self.node.is_subscribed(channel), what=f"{channel!r} is heard")


@contextlib.asynccontextmanager
async def hearing(url: str) -> AsyncIterator[Hearing]:
    """Run a node for as long as the block lasts."""
    notices: list[bytes] = []
    on_notice = lambda _, channel, _message: notices.append(channel)  # noqa: E731
    async with connected(url, node_timeout=1.0, on_notice=on_notice, prefix=b"redlock:") as asked:
        it = Hearing(asked.node)
        it.notices = notices
        yield it


@pytest.fixture(params=["path", "local"], ids=["Redis", "Valkey"])
def url(request, make_nodes):
    """Give a server for this test alone, of both makes."""
    skip_unless_available(request.param)
    return make_nodes(1, server=request.param).urls[0]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was said about notices."""
    return [record.getMessage() for record in caplog.records if "will poll" in record.getMessage()]


# -- heard ---------------------------------------------------------------------------------------------


async def test_a_killed_connection_is_subscribed_again(url):
    """By itself, with all its channels; while it is away nothing is heard."""
    channels = [b"redlock:%d" % number for number in range(2000)]
    async with hearing(url) as it:
        for channel in channels:
            it.node.subscribe(channel)
        await it.hear(channels[-1])
        assert ask(url, "CLIENT KILL", "TYPE", "pubsub") == 1
        await eventually(lambda: not any(map(it.node.is_subscribed, channels)))
        await eventually(lambda: all(map(it.node.is_subscribed, channels)))
        ask(url, "PUBLISH", channels[0], "")
        await eventually(lambda: it.notices == channels[:1])


# -- without the right to hear -------------------------------------------------------------------------


def grant(url: str, rights: str) -> str:
    """Make a user with these rights; returns its URL."""
    return with_rights(url, rights, "locker", PASSWORD)


def refused(url: str) -> int:
    """Return how many subscriptions the server has refused."""
    return int(ask(url, "INFO", "commandstats")["cmdstat_subscribe"]["rejected_calls"])


@pytest.mark.parametrize(
    "rights",
    [
        f"~redlock:* resetchannels {ACL_RIGHTS}",
        pytest.param(f"~redlock:* resetchannels &other:* {ACL_RIGHTS}", marks=pytest.mark.heavy),
        pytest.param(f"~redlock:* &redlock:* {ACL_RIGHTS} -subscribe", marks=pytest.mark.heavy),
    ],
    ids=["no channel", "another channel", "no command"],
)
async def test_without_the_rights_nothing_is_heard_and_all_else_works(url, rights, caplog):
    """It is said once what to allow, and asked once for each wish; what is allowed later is heard then."""
    async with hearing(grant(url, rights)) as it:
        for _ in range(3):
            it.node.subscribe(KEY)
            assert await it.ask(NAME.acquire(OWNER, 10.0)) == b"OK"
            assert not it.node.is_subscribed(KEY)
            assert (await it.ask(NAME.release(OWNER, 10.0)))[:2] == [1, 0]
        assert refused(url) == 1
        await asyncio.sleep(1.2)  # two heartbeats, at which nothing is tried in vain
        assert refused(url) == 1
        it.node.unsubscribe(KEY)
        it.node.subscribe(b"redlock:b")
        await eventually(lambda: refused(url) == 2)
        (said,) = warnings(caplog)
        assert "&redlock:* +subscribe +unsubscribe +publish +pubsub|numsub" in said
        assert "NOPERM" in said
        ask(url, "ACL SETUSER", "locker", "+subscribe", "resetchannels", "&redlock:*")
        await it.hear()
        assert it.node.status.mismatched == 0
        assert len(warnings(caplog)) == 1


# -- RESP2 ---------------------------------------------------------------------------------------------


async def test_a_url_may_ask_for_resp2(url, caplog):
    """Then nothing is heard, nothing is tried, and no warning tells of what was asked for."""
    async with hearing(f"{url}?protocol=2") as it:
        it.node.subscribe(KEY)
        assert await it.ask(NAME.acquire(OWNER, 10.0)) == b"OK"
        assert not it.node.is_subscribed(KEY)
        assert " resp=2" in ask_text(url, "CLIENT LIST")
        assert ask(url, "PUBSUB CHANNELS") == []
    async with hearing(f"{url}?protocol=3") as it:
        await it.hear()
    assert warnings(caplog) == []


def ask_text(url: str, *words: str) -> str:
    """Return a reply as text, however redis-py gives it."""
    reply = ask(url, *words)
    if isinstance(reply, list):
        return "\n".join(" ".join(f"{key}={value}" for key, value in entry.items()) for entry in reply)
    return str(reply)


class Proxy:
    """Stands before a server, answers some commands itself, and writes down all that clients send."""

    def __init__(self, url: str, hello: bytes | None) -> None:
        self.target = urlsplit(url)
        self.answers: dict[bytes | tuple[bytes, ...], bytes | None] = {b"HELLO": hello}
        """The answers to commands, whole or by their verb; None: by the server itself, empty: by
        hanging up."""
        self.hang_ups = math.inf
        """The number of times it hangs up before the server answers to that command as well."""
        self.unanswered = 0
        """Which HELLO gets no answer, counted from 1."""
        self.words: list[list[bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []

    @property
    def hellos(self) -> int:
        """The number of HELLO commands that came."""
        return sum(words[0] == b"HELLO" for words in self.words)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        there, back = await asyncio.open_connection(self.target.hostname, self.target.port)
        self.writers.append(writer)
        relay = asyncio.create_task(self.relay(there, writer))
        requests = hiredis.Reader()
        try:
            while data := await reader.read(65536):
                requests.feed(data)
                while (words := requests.gets()) is not False:
                    self.words.append(words)
                    if words[0] == b"HELLO" and self.hellos == self.unanswered:
                        continue
                    answer = self.answers.get(tuple(words), self.answers.get(words[0]))
                    if answer is None or (not answer and self.hang_ups <= 0):
                        back.write(hiredis.pack_command(tuple(words)))  # type: ignore[arg-type]
                    elif answer:
                        writer.write(answer)
                    else:
                        self.hang_ups -= 1
                        return
        except ConnectionError:
            pass
        finally:
            back.close()
            await relay
            writer.close()

    async def relay(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what the server says."""
        with contextlib.suppress(ConnectionError):
            while data := await there.read(65536):
                writer.write(data)


@contextlib.asynccontextmanager
async def proxied(
    url: str, hello: bytes | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Proxy, str]]:
    """Run a proxy before a server; gives it and the URL through it."""
    proxy = Proxy(url, hello)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", ssl=tls)
    through = url.replace(f":{proxy.target.port}", f":{server.sockets[0].getsockname()[1]}")
    try:
        yield proxy, through
    finally:
        server.close()
        for writer in proxy.writers:
            writer.transport.abort()
        await eventually(lambda: len(asyncio.all_tasks()) == 1, what="the proxy has ended")


async def test_one_hang_up_at_login_does_not_cost_the_notices(make_nodes, caplog):
    """A server or proxy that restarts hangs up: the connection is soon left for one that hears releases."""
    (url,) = make_nodes(1).urls
    async with proxied(url, b"") as (proxy, through):
        proxy.hang_ups = 1
        async with hearing(through) as it:
            await eventually(lambda: it.node.can_hear, what="the next connection hears of releases")
            await it.hear()
    assert len(warnings(caplog)) == 1


@contextlib.asynccontextmanager
async def hanging_up(line: bytes, asked: int) -> AsyncIterator[str]:
    """Run a peer that answers some commands, and hangs up with its last words; gives its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = asked
        while left and (data := await reader.read(4096)):
            commands = re.findall(rb"(?m)^\*\d+\r$", data)
            writer.write(b"+OK\r\n" * min(left, len(commands)))
            left -= min(left, len(commands))
        writer.write(line)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("options", ["", "?protocol=2"])
@pytest.mark.parametrize("asked", [0, 1, 3])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"-DENIED in protected mode\r\n", "DENIED in protected mode"),
        (b"-LATER we are closed\n", "LATER we are closed"),
    ],
)
async def test_the_last_words_of_a_peer_are_the_reason(line, words, asked, options):
    """Whenever it hangs up: at once, at the first command, in the middle of the login."""
    async with hanging_up(line, asked) as url, LockManager([url + options]) as manager:
        await eventually(lambda: words in manager.statistics().nodes[0].reason)


@pytest.mark.parametrize("asked", [0, 1, 3])
async def test_the_last_words_of_a_peer_do_no_harm(asked, caplog):
    """They repeat no password, and are of one line of bounded length."""
    async with (
        hanging_up(b"-no login with secret\r\n", asked) as telling,
        hanging_up(b"-\x1b[2J\xff%b\r\n" % (b"x" * 3000), 3) as long,
        LockManager([telling + "?password=secret", long + "?protocol=2"], connect_timeout=5) as manager,
    ):
        await eventually(lambda: "\\x1b[2J" in manager.statistics().nodes[1].reason)
        assert len(manager.statistics().nodes[1].reason) < 2 * MAX_LAST_WORDS
    assert caplog.text
    assert "secret" not in caplog.text


UNKNOWN = b"-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `locker`, `%b`, \r\n"


@pytest.mark.parametrize(
    ("hello", "remembered"),
    [
        (UNKNOWN % PASSWORD.encode(), True),
        (b"-ERR unsupported: HELLO 3 AUTH locker %b\r\n" % PASSWORD.encode(), True),
        (b"-NOPERM this user has no permissions to run the 'hello' command\r\n", True),
        (b"-NOPROTO unsupported protocol version\r\n", True),
        (b"+OK\r\n", False),
        (b"*2\r\n$5\r\nproto\r\n:2\r\n", False),
        (b"", False),
        (b"-ERR upstream failure\r\n", False),
    ],
    ids=["unknown", "echoed", "NOPERM", "NOPROTO", "OK", "no map", "hung up", "no upstream"],
)
async def test_a_server_without_resp3_is_spoken_to_in_resp2(make_nodes, hello, remembered, caplog):
    """At once, said once and without secrets; one that said so is not asked again, one that hung up is."""
    (url,) = make_nodes(1).urls
    rights = f"~redlock:* &redlock:* {ACL_RIGHTS}"
    async with proxied(grant(url, rights), hello) as (proxy, through):
        began = asyncio.get_running_loop().time()
        async with hearing(through) as it:
            assert asyncio.get_running_loop().time() - began < 0.5
            it.node.subscribe(KEY)
            assert await it.ask(NAME.acquire(OWNER, 10.0)) == b"OK"
            assert not it.node.is_subscribed(KEY)
            assert len(warnings(caplog)) == 1
            assert PASSWORD not in caplog.text
            for writer in proxy.writers:
                writer.transport.abort()
            await eventually(lambda: it.node.status.state is not NodeState.UP)
            await it.up()
            assert await it.ask(NAME.release(OWNER, 10.0)) == [1, 0, 0]
            assert (proxy.hellos == 1) is remembered
            assert len(warnings(caplog)) == 1
        assert not [words for words in proxy.words if words[0] == b"SUBSCRIBE"]


async def test_a_server_that_knows_no_bare_hello_speaks_resp3(make_nodes, caplog):
    """Redis 6.0 and 6.1 do: HELLO needs a version there."""
    (url,) = make_nodes(1).urls
    async with proxied(url) as (proxy, through):
        proxy.answers[(b"HELLO",)] = b"-ERR wrong number of arguments for 'hello' command\r\n"
        async with hearing(through) as it:
            it.node.subscribe(KEY)
            assert await it.ask(NAME.acquire(OWNER, 10.0)) == b"OK"
            await eventually(lambda: it.node.is_subscribed(KEY))
    assert warnings(caplog) == []
