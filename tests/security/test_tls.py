"""TLS: an unproven server gets neither the password nor a command, and the reason says why.

Another authority's certificate and plain text are in ``tests/nodes/test_connection_real.py``.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from redis.asyncio.connection import SSLConnection

from aioredlock_ng import LockManager, NodeState, QuorumUnavailableError
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import all_up
from tests.servers import ask, eventually
from tests.tls import CERTIFICATES, KEY_PASSWORD, make_certificates, proven, serve_tls

PASSWORD: Final = "pa55-of-the-tests"

MakeNodes = Callable[..., LocalNodes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an authority and its certificates, and a client's key that has a password."""
    make_certificates(folder := tmp_path_factory.mktemp("certificates"))
    return folder


@pytest.fixture
def serve(make_nodes: MakeNodes, folder: Path) -> Callable[[str], str]:
    """Return a function that starts a server with one of the certificates and gives its URL."""
    return lambda name: proven(serve_tls(make_nodes, folder, 1, name, PASSWORD).urls[0], folder)


async def reason(url: str) -> str:
    """Try a lock at a node that cannot be reached; returns why not."""
    async with LockManager([url], connect_timeout=30.0) as manager:
        await eventually(lambda: manager.statistics().nodes[0].state is NodeState.DOWN)
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("job", blocking=False).acquire()
        (node,) = manager.statistics().nodes
        return f"{caught.value.votes[0].reason} {node.reason} {caught.value} {manager!r}"


@pytest.mark.parametrize(
    ("certificate", "words"), [("elsewhere", "mismatch|not valid for"), ("expired", "expired")]
)
async def test_a_certificate_that_does_not_fit(
    serve: Callable[[str], str], caplog: pytest.LogCaptureFixture, certificate: str, words: str
) -> None:
    """For another host, or out of date: no vote, and the reason says which, without the password."""
    caplog.set_level(logging.DEBUG)
    url = serve(certificate)
    ask(unchecked(url), "CONFIG RESETSTAT")
    shown = await reason(url)
    assert re.search("certificate", shown, re.IGNORECASE), shown
    assert re.search(words, shown), shown
    assert PASSWORD not in shown + caplog.text
    executed = ask(unchecked(url), "INFO", "commandstats")
    assert executed
    assert not [name for name in executed if "script" in name or "eval" in name]


def unchecked(url: str) -> str:
    """Return the URL for a client that asks for no proof."""
    return url.partition("?")[0] + "?ssl_cert_reqs=none"


@pytest.mark.parametrize("certificate", CERTIFICATES)
async def test_no_proof_is_asked_for_only_if_the_url_says_so(
    serve: Callable[[str], str], certificate: str
) -> None:
    """``ssl_cert_reqs=none`` takes any certificate; without it, and without the authority, none is taken."""
    url = serve(certificate)
    async with LockManager([unchecked(url)], connect_timeout=30.0) as manager:
        await all_up(manager)
        async with manager.lock("job") as lease:
            assert lease.held
    assert re.search("certificate", await reason(url.partition("?")[0]), re.IGNORECASE)


@pytest.mark.parametrize("password", [KEY_PASSWORD, f"wrong-{KEY_PASSWORD}"])
async def test_the_password_of_a_key(
    serve: Callable[[str], str], folder: Path, caplog: pytest.LogCaptureFixture, password: str
) -> None:
    """The password of a client's own key is shown nowhere, whether it opens the key or not."""
    if "ssl_password" not in inspect.signature(SSLConnection.__init__).parameters:
        pytest.skip("this redis-py opens no key that has a password")
    caplog.set_level(logging.DEBUG)
    own = f"&ssl_certfile={folder / 'client.crt'}&ssl_keyfile={folder / 'client.key'}&ssl_password={password}"
    url = serve("right") + own
    if password == KEY_PASSWORD:
        async with LockManager([url], connect_timeout=30.0) as manager, manager.lock("job") as lease:
            shown = f"{manager!r}{lease!r}{manager.statistics()}"
    else:
        shown = await reason(url)
    assert KEY_PASSWORD not in shown + caplog.text
