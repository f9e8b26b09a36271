"""A network of a test's own: a namespace of the kernel, with a loopback device and rules that lose packets.

Whatever this thread opens or starts in the block is in that network: sockets, servers, processes.  The
namespace has no name, so that the kernel removes it, with its rules, when the last of these has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.servers import required

PROGRAMS: Final = ("ip", "ss", "nft")

_NEW_NETWORK: Final = 0x40000000  # `CLONE_NEWNET` of Linux; Python 3.11 has no names for this

_OWN: Final = "/proc/thread-self/ns/net"

_RULES: Final = """
table inet faults
delete table inet faults
table inet faults {{
    chain input {{
        type filter hook input priority 0
        {rules}
    }}
}}
"""


@final
class Network:
    """The rules for the packets in it."""

    def have(self, *rules: str) -> None:
        """Let these rules of nftables decide, in place of those before, on packets that arrive."""
        _run("nft", "-f", "-", text=_RULES.format(rules="\n        ".join(rules)))

    def heal(self) -> None:
        """Let everything through."""
        self.have()

    def counted(self) -> list[int]:
        """Return how many packets each rule with a `counter` has met."""
        listed = json.loads(_run("nft", "-j", "list", "table", "inet", "faults"))["nftables"]
        expressions = [word for entry in listed for word in entry.get("rule", {}).get("expr", ())]
        return [word["counter"]["packets"] for word in expressions if "counter" in word]


def requests(ports: Sequence[int]) -> str:
    """Return the part of a rule that picks what is sent to servers."""
    return f"tcp dport {{ {', '.join(map(str, ports))} }}"


def replies(ports: Sequence[int]) -> str:
    """Return the part of a rule that picks what servers send."""
    return f"tcp sport {{ {', '.join(map(str, ports))} }}"


def reached_at(nodes: LocalNodes, address: str = "127.0.0.1") -> list[str]:
    """Return the servers' URLs at an address of the loopback device, where the rules count."""
    return [f"redis://{address}:{port}" for port in nodes.ports]


def nodes_inside(make_nodes: Callable[..., LocalNodes], n: int) -> LocalNodes:
    """Start servers in the network; their own URLs are Unix sockets, which no rule concerns."""
    options = {"bind": "0.0.0.0", "unixsocket": "{dir}/socket"}
    return make_nodes(n, options=options, url="unix://{dir}/socket")


@contextlib.contextmanager
def own_network() -> Iterator[Network]:
    """Move this thread into a network of its own; it is back in the old one after the block."""
    if reason := unavailable():
        give_up = pytest.fail if "netns" in required() else pytest.skip
        give_up(f"netns: {reason}")
    with _entered():
        network = Network()
        network.heal()
        yield network


@functools.cache
def unavailable() -> str | None:
    """Return why there can be no such network here; None if there can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    try:
        with _entered():
            Network().heal()
    except (OSError, AttributeError, subprocess.CalledProcessError) as error:
        return f"not allowed to make one (root may): {error}"
    return None


@contextlib.contextmanager
def _entered() -> Iterator[None]:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    old = os.open(_OWN, os.O_RDONLY)
    try:
        _checked(libc.unshare(_NEW_NETWORK))
        try:
            _run("ip", "link", "set", "lo", "up")
            yield
        finally:
            _checked(libc.setns(old, _NEW_NETWORK))
    finally:
        os.close(old)


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _run(*command: str, text: str = "") -> str:
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
