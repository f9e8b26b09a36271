"""Scripts in memory: what holds besides what they answer (`conformance/test_verbs.py`)."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import pytest

from aioredlock_ng.testing import MemoryNode, _memory_lua
from aioredlock_ng.testing._memory_data import NodeClock
from aioredlock_ng.testing._memory_server import MemoryServer


def server() -> MemoryServer:
    """Return a master whose clock stands still."""
    return MemoryServer(lambda: 0, clock=NodeClock(lambda: 0.0), new_identity=lambda: "x" * 40)


def test_without_lupa_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, where a master is made: all else of `testing` needs none."""
    monkeypatch.setitem(sys.modules, "lupa.lua51", None)
    _memory_lua._made.cache_clear()
    try:
        with pytest.raises(ImportError, match=r"pip install 'aioredlock_ng\[testing\]'") as caught:
            MemoryNode()
        assert caught.value.name == "lupa"
    finally:
        _memory_lua._made.cache_clear()
        _memory_lua.compiled.cache_clear()


async def test_a_master_that_is_dropped_is_gone() -> None:
    """Neither Lua nor a script keeps it."""
    node = MemoryNode()
    assert node.execute([b"EVAL", b"return redis.call('GET', 'a')", b"0"]) == b"$-1\r\n"
    gone = weakref.ref(node._server)
    del node
    gc.collect()
    assert gone() is None


def test_masters_of_several_threads_keep_apart() -> None:
    """All share one Lua: a script of one thread never sees the keys of another one's master."""
    servers = [server() for _ in range(4)]
    wrong: list[bytes] = []
    lua = b"for i = 1, 300 do redis.call('SET', 'k', ARGV[1]) end; return redis.call('GET', 'k')"

    def use(number: int) -> None:
        for _ in range(20):
            said = servers[number].execute([b"EVAL", lua, b"0", b"%d" % number])
            if said != b"$1\r\n%d\r\n" % number:
                wrong.append(said)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=use, args=(number,)) for number in range(len(servers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_a_thing_that_is_no_script_is_refused() -> None:
    """As a server refuses it."""
    node = server()
    assert node.execute([b"EVAL", b"return (", b"0"]).startswith(b"-ERR Error compiling script")
    assert node.execute([b"EVALSHA", b"0" * 40, b"0"]).startswith(b"-NOSCRIPT ")
