"""Scripts in memory: what holds besides what they answer (`conformance/test_verbs.py`)."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioredlock_ng.testing import MemoryNode, SimLoop


@pytest.mark.process
def test_without_lupa_it_says_what_to_install() -> None:
    """At once, where a master is made: all else of `testing` needs none."""
    lines = (
        "import sys",
        "sys.modules['lupa.lua51'] = None",
        "from aioredlock_ng.testing import MemoryNode",
        "try: MemoryNode()",
        "except ImportError as error: print(error.name, error)",
    )
    command = [sys.executable, "-c", "\n".join(lines)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.startswith("lupa ")
    assert "pip install 'aioredlock_ng[testing]'" in said


def test_masters_of_several_threads_keep_apart() -> None:
    """All share one Lua: a script of one thread never sees the keys of another one's master."""
    lua = b"for i = 1, 300 do redis.call('SET', 'k', ARGV[1]) end; return redis.call('GET', 'k')"

    async def use(number: int) -> set[bytes]:
        node = MemoryNode()
        return {node.execute([b"EVAL", lua, b"0", b"%d" % number]) for _ in range(20)}

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            said = list(threads.map(lambda number: SimLoop.run(use(number)), range(4)))
    finally:
        sys.setswitchinterval(before)
    assert said == [{b"$1\r\n%d\r\n" % number} for number in range(4)]


@pytest.mark.process
@pytest.mark.parametrize("made", ["before the fork", "after it"])
def test_a_child_that_was_forked_while_a_script_ran_has_a_lua_of_its_own(made: str) -> None:
    """The thread that is inside Lua does not exist there, and never comes out of it."""
    lines = (
        "import os, threading, time",
        "from aioredlock_ng.testing import MemoryNode, SimLoop",
        "node = None",
        "async def run(lua):",
        "    global node",
        "    node = node or MemoryNode()",
        "    return node.execute([b'EVAL', lua, b'0'])",
        'busy = b\'redis.call("GET", "a"); for i = 1, 2e8 do end return 1\'',
        "threading.Thread(target=SimLoop.run, args=[run(busy)], daemon=True).start()",
        "time.sleep(0.2)",
        f"node = node if {made!r} == 'before the fork' else None",
        "if os.fork(): os._exit(os.waitstatus_to_exitcode(os.wait()[1]))",
        "os._exit(SimLoop.run(run(b'return 7')) != b':7\\r\\n')",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=60)
