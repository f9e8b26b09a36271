"""The network of a test's own does what its rules say, and nothing is left of it."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.faults import namespaces
from tests.faults.namespaces import NEW, Network, nodes_inside, own_network, reached_at, replies, requests
from tests.servers import ask

OWN = Path("/proc/thread-self/ns/net")


def connects(port: int, address: str = "127.0.0.1") -> bool:
    """Return whether a connection is made within a moment."""
    try:
        with socket.create_connection((address, port), timeout=0.2):
            return True
    except TimeoutError:
        return False


def test_a_thread_goes_there_and_comes_back() -> None:
    """Its network is another one in the block, and the same as before behind it, also after an error."""
    before = OWN.readlink()
    inside: list[Path] = []

    def look() -> None:
        inside.append(OWN.readlink())

    def look_and_fail() -> None:
        with own_network():
            look()
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            raise LookupError

    with pytest.raises(LookupError):
        look_and_fail()

    assert OWN.readlink() == before
    assert inside[0] != before
    assert inside[0] == inside[1], "a thread that is started there is there, too"


def test_servers_inside_are_reached_from_inside_only(make_nodes: Callable[..., LocalNodes]) -> None:
    """By their ports, that is: the Unix socket is a file, which is how tests look at them."""
    with own_network():
        nodes = nodes_inside(make_nodes, 1)
        assert ask(reached_at(nodes)[0], "SET", "key", "value")
        assert ask(reached_at(nodes, "127.0.0.9")[0], "GET", "key") == b"value"

    with pytest.raises(ConnectionRefusedError):
        connects(nodes.ports[0])
    assert ask(nodes.urls[0], "GET", "key") == b"value"


@pytest.mark.parametrize("pick", [requests, replies])
def test_rules_lose_packets_until_they_heal(
    network: Network, pick: Callable[[list[int]], str], make_nodes: Callable[..., LocalNodes]
) -> None:
    """In one direction, of one port; the other port goes on."""
    nodes = nodes_inside(make_nodes, 2)
    network.have(f"{pick(nodes.ports[:1])} counter drop")

    assert [connects(port) for port in nodes.ports] == [False, True]
    assert network.counted()[0] > 0
    network.heal()
    assert [connects(port) for port in nodes.ports] == [True, True]
    assert network.counted() == []


def test_an_address_can_be_cut_off_by_itself(network: Network, make_nodes: Callable[..., LocalNodes]) -> None:
    """So that clients that use addresses of their own are partitioned each in its own way."""
    (port,) = nodes_inside(make_nodes, 1).ports
    network.have(f"ip daddr 127.0.0.2 {requests([port])} drop")

    assert [connects(port, address) for address in ("127.0.0.2", "127.0.0.3")] == [False, True]


def test_attempts_to_connect_are_counted(network: Network, make_nodes: Callable[..., LocalNodes]) -> None:
    """And refused by a rule as by a closed port."""
    (port,) = nodes_inside(make_nodes, 1).ports
    network.have(f"{requests([port])} {NEW} counter reject with tcp reset")

    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            connects(port)
    assert network.counted() == [3]


@pytest.mark.parametrize(
    ("names", "outcome"), [("", pytest.skip.Exception), ("path,netns", pytest.fail.Exception)]
)
def test_where_there_can_be_none_tests_are_skipped_unless_it_is_required(
    names: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is told either way."""
    monkeypatch.setattr(namespaces, "unavailable", lambda: "not installed: nft")
    monkeypatch.setenv("REDLOCK_REQUIRE", names)

    with pytest.raises(outcome, match=re.escape("netns: not installed: nft")), own_network():
        pytest.fail("it was made")


def test_why_there_can_be_none_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its programs, it says which are missing."""
    namespaces.unavailable.cache_clear()
    monkeypatch.setenv("PATH", "")
    try:
        assert namespaces.unavailable() == "not installed: ip, ss, nft"
    finally:
        namespaces.unavailable.cache_clear()
