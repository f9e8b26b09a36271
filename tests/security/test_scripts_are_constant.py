"""Names, labels and values that callers choose are arguments of a script, never a part of its text."""

from __future__ import annotations

import hashlib
import re
from typing import Final

import pytest

from aioredlock_ng import LockManager, _scripts
from aioredlock_ng.contrib.redis import _SCRIPT
from tests.behaviour.tools import monitor, no_key_left
from tests.servers import Nodes, ask

LUA: Final = "'] redis.call('FLUSHALL') --"
NAMES: Final = (
    LUA,
    '"); redis.call("FLUSHALL") --',
    "]]..redis.call('FLUSHALL')..[[",
    "return 1",
    "#!lua",
    "KEYS[1]",
)
# Labels of holders that are taken; the last but one looks like an owner value.
PRINTABLE: Final = ("a:b:c", LUA, "{holder}", "*", "{meta}", "0" * 40 + ":", "straße–日本")
UNPRINTABLE: Final = ("a\nb", "\r\n", "\0", "\x1b[2J", "\u202eabc", "a\u2028b", "x" * 201, "\ud800")


async def test_servers_get_the_packages_scripts_and_no_others(shared_nodes: Nodes) -> None:
    """Under hostile names and holders: every script that is loaded or run is one of the package's files."""
    digests = {script.digest for script in _scripts.ALL}
    url = shared_nodes.urls[0]
    ask(url, "SET", "canary", "alive")
    ask(url, "SCRIPT FLUSH")
    async with monitor(url) as seen:
        for holder in PRINTABLE:
            async with LockManager(shared_nodes.urls, holder=holder) as manager:
                for name in NAMES:
                    async with manager.lock(name, name + "2", label=LUA) as lease:
                        await lease.extend(20)
                        ask(url, "SCRIPT FLUSH")  # so that sources are sent again
                    ask(url, "SCRIPT FLUSH")
                    async with manager.lock(name, label=LUA) as lease:  # alone, it is asked in batches (R42)
                        await lease.extend(20)
                        ask(url, "SCRIPT FLUSH")
                    await manager.inspect(name)
        lines = await seen()
    ran, loaded = set(), []
    for line in lines:
        script, (verb, *words) = " lua] " in line, unquoted(line)
        if script:
            assert verb.upper() != b"FLUSHALL"
        elif verb.upper() == b"EVALSHA":
            ran.add(words[0])
        elif verb.upper() == b"EVAL":
            loaded.append(words[0])
        elif (verb.upper(), words[:1]) == (b"SCRIPT", [b"LOAD"]):
            loaded.append(words[1])
    assert len(ran) >= 5
    assert ran <= digests
    assert len(loaded) > len(_scripts.ALL)
    assert {hashlib.sha1(source).hexdigest().encode() for source in loaded} <= digests  # noqa: S324
    assert ask(url, "GET", "canary") in (b"alive", "alive")
    ask(url, "DEL", "canary")
    await no_key_left(shared_nodes.urls)


def unquoted(line: str) -> list[bytes]:
    """Return the words of a line of MONITOR, to the byte."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', line.partition("] ")[2])
    return [word.encode("latin-1").decode("unicode_escape").encode("latin-1") for word in words]


def test_the_guards_script_is_a_constant() -> None:
    """The one script outside takes its values by KEYS and ARGV alone."""
    assert "{" not in _SCRIPT
    assert "%" not in _SCRIPT


@pytest.mark.parametrize("holder", UNPRINTABLE)
def test_a_holder_label_is_one_printable_line(holder: str) -> None:
    """Line ends, control sequences, what reorders a line, and what no server can be sent, are refused."""
    with pytest.raises(ValueError, match="holder") as caught:
        LockManager(["redis://any"], holder=holder)
    assert str(caught.value).isprintable()
