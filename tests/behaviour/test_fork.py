"""A process forks while it holds locks: the child's end is no business of the parent's locks."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from aioredlock_ng import _scripts
from tests.batches import singles
from tests.behaviour.tools import keys, monitor, monitored_words, no_key_left, python
from tests.servers import Nodes, ask

PROGRAM: Final = """
import asyncio, contextlib, os, sys
from aioredlock_ng import LockManager

urls, how = sys.argv[1].split(","), sys.argv[2]
changes = []

class Hook:
    def on_node_changed(self, event):
        changes.append(str(event))

def fork():
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what asyncio says of a child inside its loop
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    print("forked", os.waitstatus_to_exitcode(status) if how != "blocks" else "", flush=True)

async def main():
    asyncio.get_running_loop().slow_callback_duration = 3600.0
    manager = LockManager(urls, ttl=20, node_timeout=5, hooks=[Hook()])
    await manager.start()
    held = await manager.lock("held").acquire()
    del changes[:]
    async with contextlib.AsyncExitStack() as stack:
        lock = manager.lock("block", reentrant=how == "twice")
        block = await (lock.acquire() if how == "plain" else stack.enter_async_context(lock))
        if how == "twice":
            await stack.enter_async_context(lock)
        # A child that goes on in its parent's loop reads from the parent's sockets: leave nothing to read.
        while any(node.in_flight for node in manager.statistics().nodes):
            await asyncio.sleep(0.001)
        task = asyncio.create_task(manager.lock("queued").acquire())
        await asyncio.sleep(0)
        assert sum(map(len, manager._life.session.outbox._waiting.values())) == 1, "queued, and not sent yet"
        fork()
        queued = await task
        for lease in (held, block, queued):
            await lease.extend()
            lease.check()
        assert all(node.ours for node in await manager.inspect("held"))
        print("extended", flush=True)
        sys.stdin.readline()  # no thread: the child may have taken the loop's own socket off its selector
        await queued.release()
        await block.release()
    await held.release()
    async with manager.lock("held", blocking_timeout=1):
        pass
    assert not changes, changes
    await manager.aclose()
    print("done", flush=True)

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.parametrize("how", ["plain", "blocks", "twice"])
async def test_a_child_that_leaves_in_order_leaves_its_parents_locks(shared_nodes: Nodes, how: str) -> None:
    """A child that unwinds through its blocks, and through asyncio.run, sends nothing and resets nothing."""
    url, *_ = urls = shared_nodes.urls
    program = python("-W", "ignore", "-c", PROGRAM, ",".join(urls), how)  # forks are warned of
    async with monitor(url) as seen, program as parent:
        await parent.said("forked" if how == "blocks" else "forked 7")
        await parent.said("extended")
        names = [b"redlock:block", b"redlock:held", b"redlock:queued"]
        assert {one: sorted(held) for one, held in keys(urls).items()} == dict.fromkeys(urls, names)
        assert all(ask(one, "PTTL", name) > 15_000 for one in urls for name in names), (
            "extended by the parent"
        )
        parent.go()
        await parent.said("done")
        out, errors = await parent.ended()
        assert (out, parent.process.returncode) == ("", 0), errors
        commands = [words for script, words in map(monitored_words, await seen()) if not script]
    scripts = [[word.encode() for word in words] for words in commands if words[0] == "EVALSHA"]
    sent = [(single[1], single[3]) for words in scripts for single in singles(words)]
    acquired, released = (
        Counter(key for digest, key in sent if digest == script.digest)
        for script in (_scripts.ACQUIRE, _scripts.RELEASE)
    )
    assert acquired == released, "each by the parent: where a try comes too late there is one more of each"
    assert (released[b"redlock:block"], released[b"redlock:queued"]) == (1, 1)
    assert released.keys() == set(names)
    await no_key_left(urls)
