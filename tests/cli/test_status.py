"""``aioredlock-ng status`` over real servers: the locks and their holders, for people and for programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from aioredlock_ng.testing import LocalNodes
from tests.cli.runs import Cli, environment
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


async def status(cli: Cli, urls: Sequence[str], *words: str) -> tuple[object, str]:
    """Run the command in this process: its exit code, and its output alone."""
    patient = ("--node-timeout", "0.5")  # no test here wants a node to be too slow
    code, out, err = await asyncio.to_thread(cli, "status", "--nodes", ",".join(urls), *patient, *words)
    assert err == ""
    return code, out


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
async def test_for_programs_it_is_json(shared_nodes: Nodes, cli: Cli) -> None:
    """Names come back exactly, whatever they are made of; for a terminal they are escaped."""
    holding(shared_nodes)
    async with held(shared_nodes, "a"):
        code, out = await status(cli, shared_nodes.urls, "--json")
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
async def test_names_are_looked_at_without_a_search(make_nodes: Callable[..., LocalNodes], cli: Cli) -> None:
    """A user without the right to search sees the locks that are named, free ones too, and no others."""
    nodes = make_nodes(3)
    urls = [with_rights(url, "~redlock:* +@all -scan") for url in nodes.urls]
    async with held(nodes, "a", "b"):
        code, named = await status(cli, urls, "free", "a")
        code_of_all, all_ = await status(cli, urls)
    assert (code, code_of_all) == (0, 69)
    assert re.search(r"^free\t-\t-\t-\t-\t0/3 free\na\tmutex\tbilling-7\t.*\t3/3$", named, re.MULTILINE)
    assert "NOPERM" in all_
    assert "0 of 3 nodes answered, 2 are needed" in all_
    assert "no lock can be acquired" not in all_  # it can, with fewer rights
    assert "secret" not in named + all_


async def test_locks_are_chosen_by_pattern_holder_and_age(shared_nodes: Nodes, cli: Cli) -> None:
    """In the order of the numbers in their names; of a shared lock any holder counts."""
    since = int(time.time() * 1000) - 3600_000
    for url in shared_nodes.urls:
        ask(url, "SET", "redlock:report:old", f"{'0' * 40}:{since}:web-3:77")
        ends = (int(ask(url, "TIME")[0]) + 60) * 1000
        for number, holder in enumerate(("web-3:78", "web-4:1")):
            ask(url, "ZADD", "redlock:page", ends, f"{number:040}:{since + 3500_000}:{holder}")
    async with held(shared_nodes, "report:10", "report:2", "report:1", "b[1]", "b1"):
        for words, expected in (
            ((), ["b1", "b[1]", "page", "report:1", "report:2", "report:10", "report:old"]),
            (("report:[0-9]*",), ["report:1", "report:2", "report:10"]),
            (("b[1]", "*:2"), ["b[1]", "report:2"]),
            (("b?", "b[1]"), ["b?", "b[1]"]),
            (("--holder", "web-3:*"), ["page", "report:old"]),
            (("--older", "30m"), ["report:old"]),
            (("--holder", "web-3:*", "--older", "1m", "pa*"), ["page"]),
            (("--holder", "web-4:1", "--older", "30m"), []),
        ):
            code, out = await status(cli, shared_nodes.urls, "--json", *words)
            assert (code, [lock["name"] for lock in json.loads(out)["locks"]]) == (0, expected), words


async def test_waiting_writers_are_shown(shared_nodes: Nodes, cli: Cli) -> None:
    """With their holder labels, beside the readers that they wait for; named or not."""
    async with (
        LockManager(shared_nodes.urls, holder="web-1") as readers,
        LockManager(shared_nodes.urls, holder="batch-9") as writers,
        readers.rwlock("page").read(),
    ):
        writing = asyncio.create_task(writers.rwlock("page").write().acquire())
        await eventually(
            lambda: all(ask(url, "EXISTS", "redlock:queue:{redlock:page}") for url in shared_nodes.urls)
        )
        for words in ((), ("page",)):
            code, out = await status(cli, shared_nodes.urls, *words)
            assert (code, out.count("\twaits\tbatch-9\t")) == (0, 1)
        _, out = await status(cli, shared_nodes.urls, "--json")
        (lock,) = json.loads(out)["locks"]
        assert lock["queue"]["writers"] == ["batch-9"]
        writing.cancel()


@pytest.mark.heavy
async def test_quarantined_nodes_are_shown(
    shared_nodes: Nodes, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why they have no vote, and for how long; looking changes nothing, on nodes without a record, too."""
    new = ("--prefix", "new:")
    monkeypatch.setenv(QUARANTINE_VARIABLE, "60")
    code, untouched = await status(cli, shared_nodes.urls, *new)
    assert (code, len(re.findall(r"\tquarantined\t.*no incarnation record", untouched))) == (69, 5)
    assert [ask(url, "KEYS", "new:*") for url in shared_nodes.urls] == [[]] * 5
    async with LockManager(shared_nodes.urls, prefix="new:", restart_quarantine=90):
        before = [ask(url, "GET", "new:{meta}") for url in shared_nodes.urls]
        code, out = await status(cli, shared_nodes.urls, *new)
        assert [ask(url, "GET", "new:{meta}") for url in shared_nodes.urls] == before
    why = r"\tquarantined\t.*restart quarantine: no vote for another [\d.]+ s: FLUSHALL was called\n"
    assert (code, len(re.findall(why, out))) == (69, 5)
    (wait,) = re.findall(r"no lock can be acquired for another ([\d.]+) s; `aioredlock-ng init`", out)
    assert 30 < float(wait) <= 90 * 1.01 + 0.1


@pytest.mark.heavy
async def test_a_reader_that_goes_away_is_no_error(shared_nodes: Nodes) -> None:
    """``status | head -1`` says nothing about a broken pipe, and neither does ``trace``."""
    for url in shared_nodes.urls[:1]:
        for number in range(900):
            ask(url, "SET", f"redlock:{'x' * 200}{number}", "v")
    command = f"{' '.join(COMMAND)} --node-timeout 1 | head -1; exit ${{PIPESTATUS[0]}}"
    done = await asyncio.to_thread(ended, ["bash", "-c", command], shared_nodes)
    assert (done.returncode, done.stdout, done.stderr) == (0, "nodes up: 5 of 5, 2 may fail\n", "")
    traced = command.replace(" status ", " trace x --interval 0.05 ").replace("head -1", "true")
    done = await asyncio.to_thread(ended, ["bash", "-c", traced], shared_nodes)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
async def test_a_long_list_is_cut_and_says_so(shared_nodes: Nodes, cli: Cli) -> None:
    """More locks than it looks for: the first thousand, and a note."""
    ask(shared_nodes.urls[0], "EVAL", "for i = 1, 1100 do redis.call('SET', 'redlock:' .. i, 'v') end", 0)
    code, out = await status(cli, shared_nodes.urls)
    assert (code, out.count("partial")) == (0, 1000)
    assert "held locks: 0 or more\n" in out
    assert "there may be more locks" in out
