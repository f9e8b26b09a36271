"""A diagnosis of masters in memory: the facts, the trial, and that it leaves nothing."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from aioredlock_ng._kinds import KINDS
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cancelled, cycle, sim
from tests.unit.traces import SCRIPTS, executed
from tests.unit.worlds import each, make, world


def wrong(findings, *levels):
    """Return what is wrong, or what is said on some levels: node and check."""
    return {(one.node, one.check) for one in findings if one.level in (levels or ("warning", "error"))}


def checks(findings, *levels):
    """Return the checks that say so."""
    return {check for _, check in wrong(findings, *levels)}


def answering(monkeypatch, node, answer):
    """Let a node answer otherwise to some commands: to those for which `answer` has something."""
    execute = node.execute
    monkeypatch.setattr(node, "execute", lambda words, *by: answer(words) or execute(words, *by))


def scripts(node):
    """Return which scripts a node has executed, and on which keys for which owner."""
    done = [words for words in node.executed if words[0] == b"EVALSHA"]
    return [(SCRIPTS[words[1]], words[3], words[3 + int(words[2])]) for words in done]


def kinds(node):
    """Return which scripts a node has executed."""
    return {kind for kind, *_ in scripts(node)}


def fresh():
    """Return nodes that have restarted empty."""
    nodes = [MemoryNode() for _ in range(3)]
    each(nodes).restart()
    return nodes


def scripts_of(*operations):
    """Return the scripts of all kinds for some of their operations."""
    return {SCRIPTS[getattr(kind, name).script.digest] for kind in KINDS for name in operations}


async def test_a_trial_does_on_each_node_what_locks_do():
    """All that each kind asks, also a kind that is new, by fresh owners; no key is left, not even a counter.
    What masters in memory cannot answer is a warning.
    """
    asked = scripts_of("acquire", "raise_", "extend", "repair", "release")
    async with world(3, restart_quarantine=60) as w:
        assert checks(await w.manager.diagnose()) == {"access"}
        for node in w.nodes:
            assert kinds(node) >= asked | {"inspect", "queue"}
            assert not [key for key in node.keys if b"diagnosis:" in key]
        # Of each kind three owners, of two names one more time.
        acquires = [owner for node in w.nodes for what, _, owner in scripts(node) if "acquire" in what]
        assert len(set(acquires)) > len(w.nodes) * len(KINDS)


async def test_nodes_of_no_quorum_or_of_another():
    """A client that only diagnoses writes no record; where another's is, that is an error for each node, in
    spite of what start() says.
    """
    nodes = fresh()
    manager = make(nodes, restart_quarantine=60)
    findings = await manager.diagnose()
    await manager.aclose()
    assert checks(findings) >= {"quorum", "incarnation"}
    assert wrong(findings, "error") == set()
    assert [node.keys for node in nodes] == [()] * 3
    await cycle(make(nodes))
    manager = make(nodes[:1])
    findings = await manager.diagnose()
    await manager.aclose()
    assert wrong(findings, "error") == {(None, "quorum"), (nodes[0].name, "incarnation")}


@pytest.mark.parametrize(
    ("script", "call", "reply", "message"),
    [
        ("read", 1, "*4\r\n+tag\r\n:0\r\n:5\r\n:1\r\n", "read lock: acquire beside another: refused"),
        ("read", 0, "-ERR Error running script\r\n", "read lock: acquire: ERR Error running script"),
        ("write", 1, "*5\r\n+tag\r\n:1\r\n:8\r\n:1\r\n:7\r\n",
         "write lock: refuse another: it was granted"),
        ("write", 2, "*5\r\n+tag\r\n:0\r\n:5\r\n:1\r\n:0\r\n",
         "write lock: acquire after another: refused"),
        ("rw-release", 0, "*4\r\n+tag\r\n:0\r\n:0\r\n:0\r\n", "read lock: release: was not held"),
    ],
    ids=["no second reader", "a script error", "a second writer", "no writer", "not in"],
)  # fmt: skip
async def test_a_read_write_lock_is_tried(script, call, reply, message, monkeypatch):
    """Readers together, a writer alone, all released: what one node does otherwise is its own error."""
    async with world(3) as w:
        calls, execute = itertools.count(), w.nodes[0].execute

        def answer(words, *by):
            result = execute(words, *by)
            if [SCRIPTS.get(word) for word in words[1:2]] == [script] and next(calls) == call:
                return reply.encode().replace(b"+tag", b"$%d\r\n%b" % (len(words[-1]), words[-1]))
            return result

        monkeypatch.setattr(w.nodes[0], "execute", answer)
        (found,) = [one for one in await w.manager.diagnose() if one.level == "error"]
        assert (found.node, found.check) == (w.nodes[0].name, "writes")
        assert found.message.startswith(f"{message}; other locks do not need this")


async def test_locks_are_not_disturbed():
    """No counter moves and no hook is called; scripts that were flushed are no fault, as locks send them."""

    class Hearer:
        def on_node_changed(self, event):
            heard.append(event)

        on_acquired = on_refused = on_extended = on_lost = on_released = on_node_changed

    heard = []
    async with world(3, latency=0.01, hooks=[Hearer()]) as w, w.manager.lock("held") as lease:
        await asyncio.sleep(0.1)
        heard.clear()
        each(w.nodes).flush_scripts()
        assert wrong(await w.manager.diagnose(), "error") == set()
        assert lease.held
        assert heard == []
        counted = w.manager.statistics()
        assert (counted.acquired, counted.refused, counted.extended, counted.released) == (1, 0, 0, 0)
        assert (counted.held, counted.waiting) == (1, 0)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "reply", [b"$-1\r\n", b"*1\r\n$1\r\nx\r\n", b":7\r\n", b"+OK\r\n", b"*2\r\n$1\r\nx\r\n:1\r\n"]
)
@pytest.mark.parametrize("verb", [b"INFO", b"TIME", b"ACL", b"CONFIG", b"UNSUBSCRIBE"])
async def test_strange_answers_cost_no_connection(verb, reply, monkeypatch):
    """A server of another make may answer as it likes: that is a warning, and locks go on."""
    async with world(3) as w, w.manager.lock("held") as lease:
        connections = list(w.nodes[0]._connections)
        answering(monkeypatch, w.nodes[0], lambda words: reply if words[0] == verb else None)
        assert wrong(await w.manager.diagnose(), "error") == set()
        await asyncio.sleep(0.1)  # the connections that only looked for other servers have ended
        assert w.nodes[0]._connections == connections
        assert lease.held


async def test_a_diagnosis_of_frozen_and_dead_nodes_ends():
    """One hangs during the diagnosis, one is dead: both are errors, and the third is still judged."""
    async with world(3) as w:
        w.nodes[0].crash()
        await asyncio.sleep(0.2)
        w.nodes[1].freeze()
        errors = wrong(await w.manager.diagnose(), "error")
        assert errors == {(None, "quorum"), (w.nodes[0].name, "reachable"), (w.nodes[1].name, "writes")}
        w.nodes[1].thaw()


@pytest.mark.heavy
async def test_a_cancelled_diagnosis_leaves_nothing():
    """Every node was listened to, on a channel of a random name; neither a key nor a subscription stays."""
    async with world(3, latency=0.01) as w:
        began = sim().time()
        await w.manager.diagnose()
        took = sim().time() - began
        for node in w.nodes:
            words = [words for words in executed(node) if words[0].endswith(b"SUBSCRIBE")]
            assert [verb for verb, _ in words] == [b"UNSUBSCRIBE", b"SUBSCRIBE", b"UNSUBSCRIBE"]
            assert words[0][1].startswith(b"redlock:diagnosis:")
            assert len({channel for _, channel in words}) == 1
        for percent in range(100):
            task = asyncio.create_task(w.manager.diagnose())
            await asyncio.sleep(took * percent / 100)
            await cancelled(task)
            await asyncio.sleep(0.1)
            assert [node._server._channels for node in w.nodes] == [{}] * 3
            assert w.keys == [()] * 3
        assert sum(words[0] == b"SUBSCRIBE" for words in executed(w.nodes[0])) > 1


@pytest.mark.parametrize(
    ("verb", "reply", "message", "asked"),
    [
        (b"UNSUBSCRIBE", b"-NOPERM no permissions to run the 'unsubscribe' command\r\n", "'unsubscribe'", 0),
        (b"UNSUBSCRIBE", b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n", "RESP2", 0),
        (b"SUBSCRIBE", b"-NOPERM No permissions to access a channel\r\n", "access a channel", 1),
    ],
    ids=["no way back", "RESP2", "no channel"],
)
async def test_nothing_is_subscribed_that_could_not_be_undone(verb, reply, message, asked, monkeypatch):
    """Whether the server answers as it should to taking it back is known before; no connection is lost."""
    async with world(3) as w:
        node, seen = w.nodes[0], []
        connections = list(node._connections)
        answering(
            monkeypatch, node, lambda words: seen.append(words[0]) or (reply if words[0] == verb else None)
        )
        findings = await w.manager.diagnose()
        (found,) = [
            one
            for one in findings
            if one.level == "warning" and (one.node, one.check) == (node.name, "notices")
        ]
        assert message in found.message
        assert seen.count(b"SUBSCRIBE") == asked
        await asyncio.sleep(0.1)  # the connections that only looked for other servers have ended
        assert node._connections == connections
