"""``aioredlock-ng status`` over real servers: the locks and their holders, for people and for programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime

import pytest

from aioredlock_ng import ConfigurationError, LockManager
from aioredlock_ng.__main__ import main
from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from aioredlock_ng.testing import LocalNodes
from aioredlock_ng.testing.local_nodes import initialise
from tests.cli.runs import environment
from tests.servers import Nodes, ask, eventually, with_rights

HOSTILE = "evil\n\x1b[31mred\x07\x9b2J\u202e"
COMMAND = (sys.executable, "-W", "error", "-m", "aioredlock_ng", "status")


@contextlib.asynccontextmanager
async def held(nodes: Nodes, *names: str, holder: str = "billing-7") -> AsyncIterator[None]:
    """Hold locks on all nodes for as long as the block runs."""
    async with (
        LockManager(nodes.urls, holder=holder, ttl=30) as manager,
        contextlib.AsyncExitStack() as stack,
    ):
        for name in names:
            await stack.enter_async_context(manager.lock(name))
        await eventually(lambda: all(ask(url, "DBSIZE") >= len(names) for url in nodes.urls))
        yield


Run = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command in this process: its exit code, and its output alone."""

    async def run(nodes: Nodes, *arguments: str, **variables: str) -> tuple[int, str]:
        capsys.readouterr()
        words = ("--node-timeout", "0.5", *arguments)  # generous: no test here wants a node to be too slow
        with monkeypatch.context() as patch:
            for name, value in ({"REDLOCK_URLS": ",".join(nodes.urls)} | variables).items():
                patch.setenv(name, value)
            code = await asyncio.to_thread(main, ["status", *words])
        out, err = capsys.readouterr()
        assert err == ""
        return code, out

    return run


def ended(command: Sequence[str], nodes: Nodes, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    env = environment(nodes, **variables)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


KEYS = {
    "": "version command error available unavailable_for at quorum margin answered nodes strangers locks "
    "truncated silent",
    "node": "node state reason votes_in round_trip clock",
    "lock": "name state kind holder since ttl held_by shared readers more_readers permits highest_fence "
    "queue nodes",
    "of node": "node held kind holder since ttl reason permits fence_counter readers more_readers",
    "reader": "holder since ttl held_by",
    "reader of node": "holder since ttl",
}
"""The keys of the document: a contract."""


def holding(nodes: Nodes) -> None:
    """Let others hold: readers of a hostile label, a key of another program's, no lock; hostile names."""
    value = b"0" * 40 + b":1763629200123:" + HOSTILE.encode()
    for url in nodes.urls:
        ask(url, "SET", b"redlock:\xff\x1b", "another program's", "PX", 60_000)
        ask(url, "ZADD", b"redlock:readers", (int(ask(url, "TIME")[0]) + 60) * 1000, value)
        ask(url, "SET", b"redlock:" + HOSTILE.encode(), value)
        ask(url, "SET", "redlock:straße–日本", value)
    ask(nodes.urls[0], "RPUSH", "redlock:list", "x")


@pytest.mark.heavy
async def test_for_programs_it_is_json(shared_nodes: Nodes, run: Run) -> None:
    """Names come back exactly, whatever they are made of; for a terminal they are escaped."""
    holding(shared_nodes)
    async with held(shared_nodes, "a"):
        code, out = await run(shared_nodes, "--json")
    assert code == 0
    assert not {character for character in out if not character.isprintable()} - {"\n"}
    shown = json.loads(out)
    locks = {lock["name"]: lock for lock in shown["locks"]}
    held_, readers, hostile, wrong, foreign = (
        locks[name] for name in ("a", "readers", HOSTILE, "list", "\udcff\x1b")
    )
    parts = [shown, shown["nodes"][0], held_, held_["nodes"][0], readers["readers"][0]]
    parts.append(readers["nodes"][0]["readers"][0])
    assert [set(part) for part in parts] == [set(keys.split()) for keys in KEYS.values()]
    assert (shown["available"], shown["unavailable_for"]) == (True, 0)
    assert (shown["quorum"], shown["answered"], shown["truncated"], shown["silent"]) == (3, 5, False, [])
    assert abs(shown["at"] - time.time()) < 60
    assert [node["node"] for node in shown["nodes"]] == shared_nodes.urls
    assert {(node["state"], node["votes_in"]) for node in shown["nodes"]} == {("up", None)}
    assert (held_["kind"], held_["nodes"][0]["kind"], foreign["kind"]) == ("mutex", "mutex", None)
    assert (held_["state"], held_["holder"], held_["held_by"]) == ("held", "billing-7", 5)
    assert (held_["shared"], held_["readers"], held_["more_readers"]) == (False, [], False)
    assert held_["highest_fence"] == held_["nodes"][0]["fence_counter"] > time.time() * 1000
    assert (foreign["highest_fence"], foreign["nodes"][0]["fence_counter"]) == (None, None)
    assert datetime.fromtimestamp(held_["since"], UTC).year >= 2024
    assert (readers["shared"], readers["readers"][0]["holder"], hostile["holder"]) == (True, HOSTILE, HOSTILE)
    assert (wrong["state"], wrong["nodes"][0]["held"]) == ("partial", None)
    assert wrong["nodes"][0]["reason"].startswith("WRONGTYPE")
    assert (foreign["state"], foreign["holder"], foreign["since"]) == ("held", None, None)


@pytest.mark.heavy
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
async def test_nothing_hostile_reaches_the_terminal(encoding: str, shared_nodes: Nodes) -> None:
    """Names, labels and reasons come from outside: control characters and line ends come out escaped.

    So do letters that an encoding lacks; what is no lock is marked as partial.
    """
    holding(shared_nodes)
    done = await asyncio.to_thread(ended, COMMAND, shared_nodes, PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert not {character for character in done.stdout if not character.isprintable()} - {"\n", "\t"}
    assert ascii(HOSTILE) in done.stdout
    assert ("straße–日本" if encoding == "utf-8" else r"stra\xdfe") in done.stdout
    assert len(done.stdout.splitlines()) == 1 + 5 + 1 + 1 + 5 + 1
    assert re.search(r"^list\t-\t.*\t0/5 partial \(WRONGTYPE\)$", done.stdout, re.MULTILINE)


@pytest.mark.heavy
async def test_names_are_looked_at_without_a_search(make_nodes: Callable[..., LocalNodes], run: Run) -> None:
    """A user without the right to search sees the locks that are named, free ones too, and no others."""
    nodes = make_nodes(3)
    urls = {"REDLOCK_URLS": ",".join(with_rights(url, "~redlock:* +@all -scan") for url in nodes.urls)}
    async with held(nodes, "a", "b"):
        (code, named), (code_of_all, all_) = [
            await run(nodes, *names, **urls) for names in (("free", "a"), ())
        ]
    assert (code, code_of_all) == (0, 69)
    assert re.search(r"^free\t-\t-\t-\t-\t0/3 free\na\tmutex\tbilling-7\t.*\t3/3$", named, re.MULTILINE)
    assert "NOPERM" in all_
    assert "0 of 3 nodes answered, 2 are needed" in all_
    assert "no lock can be acquired" not in all_  # it can, with fewer rights
    assert "secret" not in named + all_


@pytest.mark.heavy
async def test_without_a_majority_it_says_so_and_shows_what_it_knows(nodes3: LocalNodes, run: Run) -> None:
    """Exit code 69; the one node that answers is still shown, and so is what it holds."""
    async with held(nodes3, "a"):
        nodes3.kill(0)
        nodes3.pause(1)
        code, out = await run(nodes3)
        code_of_json, document = await run(nodes3, "--json", "a")
    nodes3.resume(1)
    assert (code, code_of_json) == (69, 69)
    assert "nodes up: 1 of 3\n" in out
    assert re.search(r"\tdown\t.*(refused|connect to)", out)
    assert re.search(r"^a\tmutex\tbilling-7\t.*\t1/3 unknown$", out, re.MULTILINE)
    assert "1 of 3 nodes answered, 2 are needed" in out
    assert "1 of 3 nodes are up: no lock can be acquired" in out
    shown = json.loads(document)
    assert (shown["available"], shown["unavailable_for"]) == (False, None)
    assert (shown["answered"], shown["locks"][0]["state"]) == (1, "unknown")
    assert [silent["node"] for silent in shown["silent"]] == nodes3.urls[:2]


@pytest.mark.heavy
async def test_quarantined_nodes_are_shown(shared_nodes: Nodes, run: Run) -> None:
    """Why they have no vote, for how long, and when a lock can be acquired again; looking changes nothing."""
    code, untouched = await run(shared_nodes, "--prefix", "new:", **{QUARANTINE_VARIABLE: "60"})
    assert code == 69
    assert "\n0 of 5 nodes are up: no lock can be acquired; " in untouched
    assert [ask(url, "KEYS", "new:*") for url in shared_nodes.urls] == [[]] * 5
    assert untouched.startswith("nodes up: 0 of 5\n")
    assert len(re.findall(r"^\S+\tquarantined\t.*no incarnation record", untouched, re.MULTILINE)) == 5
    async with LockManager(shared_nodes.urls, prefix="new:", restart_quarantine=90):
        before = [ask(url, "GET", "new:{meta}") for url in shared_nodes.urls]
        code, out = await run(shared_nodes, "--prefix", "new:")
        code_of_json, document = await run(shared_nodes, "--prefix", "new:", "--json")
        assert [ask(url, "GET", "new:{meta}") for url in shared_nodes.urls] == before
    assert (code, code_of_json) == (69, 69)
    for url in shared_nodes.urls:
        why = r"restart quarantine: no vote for another [\d.]+ s: FLUSHALL was called"
        row = rf"^{re.escape(url)}\tquarantined\t[\d.]+ ms\t{why}$"
        assert re.search(row, out, re.MULTILINE)
    (note,) = [line for line in out.splitlines() if "no lock can be acquired" in line]
    pattern = r"0 of 5 nodes are up: no lock can be acquired for another ([\d.]+) s; `aioredlock-ng init` .*"
    assert (match := re.fullmatch(pattern, note))
    assert 30 < float(match[1]) <= 90 * 1.01 + 0.1
    shown = json.loads(document)
    assert (shown["available"], 30 < shown["unavailable_for"] < float(match[1])) == (False, True)
    for node in shown["nodes"]:
        assert (node["state"], 30 < node["votes_in"] < float(match[1])) == ("quarantined", True)


@pytest.mark.heavy
async def test_lists_of_nodes_that_differ_are_shown(shared_nodes: Nodes, run: Run) -> None:
    """The other list's server, which client says so, and what to do; the second list cannot lock."""
    *shared, first, second = shared_nodes.urls[:4]
    for last in (second, first):  # both may vote
        initialise([*shared, last], "lists:")

    def manager(last: str, holder: str) -> LockManager:
        urls = [*shared, last]
        return LockManager(urls, holder=holder, prefix="lists:", node_timeout=0.5, restart_quarantine=60)

    async with manager(first, "old"), contextlib.aclosing(manager(second, "new")) as refused:
        await asyncio.sleep(7)  # until all servers were there together for 12 heartbeats
        with pytest.raises(ConfigurationError):
            await refused.start()
        await asyncio.sleep(1.1)  # two heartbeats
        for lacks, last, says in ((second, first, "new"), (first, second, "old")):
            urls = {"REDLOCK_URLS": ",".join([*shared, last]), QUARANTINE_VARIABLE: "60"}
            code, out = await run(shared_nodes, "--prefix", "lists:", **urls)
            machine = json.loads((await run(shared_nodes, "--prefix", "lists:", "--json", **urls))[1])
            assert code == (69 if last == second else 0), out
            run_id = ask(lacks, "INFO", "server")["run_id"]
            match = rf"that this list lacks, the one with run_id {run_id} \(.*, says client {says}\)$"
            assert re.search(match, out, re.MULTILINE), out
            assert "give all clients the same nodes: compare their lists" in out
            assert len(machine["strangers"]) == 1
            assert (machine["available"], run_id in machine["strangers"][0]) == (last == first, True)


@pytest.mark.heavy
async def test_a_reader_that_goes_away_is_no_error(shared_nodes: Nodes) -> None:
    """``status | head -1`` says nothing about a broken pipe."""
    for url in shared_nodes.urls[:1]:
        for number in range(900):
            ask(url, "SET", f"redlock:{'x' * 200}{number}", "v")
    command = f"{' '.join(COMMAND)} --node-timeout 1 | head -1; exit ${{PIPESTATUS[0]}}"
    done = await asyncio.to_thread(ended, ["bash", "-c", command], shared_nodes)
    assert (done.returncode, done.stdout, done.stderr) == (0, "nodes up: 5 of 5, 2 may fail\n", "")


@pytest.mark.heavy
@pytest.mark.parametrize("command", ["status", "doctor --json", "watch"])
@pytest.mark.parametrize(
    ("where", "words"),
    [(">&-", "the standard output is closed"), (">/dev/full", "cannot be written: No space left on device")],
)
def test_output_that_goes_nowhere_is_one_line(
    command: str, where: str, words: str, shared_nodes: Nodes
) -> None:
    """A closed output and a full disk: exit code 1 and the reason, and no traceback."""
    line = f"{sys.executable} -W error -m aioredlock_ng {command} --node-timeout 1 {where}"
    done = ended(["bash", "-c", line], shared_nodes)
    assert (done.returncode, done.stdout) == (1, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith("aioredlock-ng: ")
    assert words in said


@pytest.mark.heavy
async def test_a_long_list_is_cut_and_says_so(shared_nodes: Nodes, run: Run) -> None:
    """More locks than it looks for: the first thousand, and a note."""
    ask(shared_nodes.urls[0], "EVAL", "for i = 1, 1100 do redis.call('SET', 'redlock:' .. i, 'v') end", 0)
    code, out = await run(shared_nodes)
    assert (code, out.count("partial")) == (0, 1000)
    assert "held locks: 0 or more\n" in out
    assert "there may be more locks" in out
