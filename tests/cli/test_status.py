"""``aioredlock-ng status``: which process holds what since when, for people and for programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from aioredlock_ng import (
    LockInspection,
    LockManager,
    NodeInspection,
    NodeState,
    NodeStatistics,
    SilentNode,
    Survey,
)
from aioredlock_ng.__main__ import main
from aioredlock_ng._cli._overview import as_lines
from aioredlock_ng._cli._terminal import cells, clipped, printable
from aioredlock_ng._dashboard.overview import Overview
from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from aioredlock_ng.testing import LocalNodes
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask, eventually

HOSTILE = "evil\n\x1b[31mred\x07\x9b2J\u202e"
COMMAND = (sys.executable, "-W", "error", "-m", "aioredlock_ng", "status")


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDLOCK_URLS", raising=False)


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


async def run(nodes: Nodes | None, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command over nodes in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    if nodes is not None:
        environment["REDLOCK_URLS"] = ",".join(nodes.urls)
    environment |= options.pop("environment", {})
    arguments = ("--node-timeout", "0.5", *arguments)  # generous: no test here wants a node to be too slow
    return await asyncio.to_thread(
        subprocess.run, (*COMMAND, *arguments), env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.heavy
async def test_it_shows_each_locks_holder_and_since_when(shared_nodes: Nodes) -> None:
    """Nodes, and a line per lock: name, holder, local time and age, time left, on how many nodes."""
    began = time.time()
    async with held(shared_nodes, "invoice:42", "report"):
        done = await run(shared_nodes, environment={"TZ": "EAST-5:30"})  # five and a half hours east
    assert (done.returncode, done.stderr) == (0, "")
    nodes, locks = done.stdout.split("held locks: 2\n")
    assert nodes.startswith("nodes up: 5 of 5, 2 may fail\n")
    for url in shared_nodes.urls:
        assert re.search(rf"^  {re.escape(url)} +up +\d+\.\d ms$", nodes, re.MULTILINE)
    (row, _) = re.findall(
        r"^  (\S+) +mutex +(\S+) +(.{19}) \((\d+) s\) +(\d+\.\d) s +(.*)$", locks, re.MULTILINE
    )
    assert row[:2] == ("invoice:42", "billing-7")
    local = timezone(timedelta(hours=5.5))
    since = datetime.strptime(row[2], "%Y-%m-%d %H:%M:%S").replace(tzinfo=local).timestamp()
    assert began - 1 <= since <= time.time()
    assert abs(float(row[4]) - 30) < 15
    assert row[5] == "5/5"


@pytest.mark.heavy
async def test_for_programs_it_is_json(shared_nodes: Nodes) -> None:
    """The keys are a contract; names come back exactly, whatever they are made of."""
    for url in shared_nodes.urls:
        ask(url, "SET", b"redlock:\xff", "another program's", "PX", 60_000)
    ask(shared_nodes.urls[0], "RPUSH", "redlock:list", "x")
    async with held(shared_nodes, HOSTILE):
        done = await run(shared_nodes, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    head = {"version", "command", "error"}
    own = {
        "available",
        "unavailable_for",
        "at",
        "quorum",
        "margin",
        "answered",
        "nodes",
        "locks",
        "truncated",
        "silent",
    }
    assert set(shown) == head | own
    assert (shown["available"], shown["unavailable_for"]) == (True, 0)
    assert (shown["quorum"], shown["answered"], shown["truncated"], shown["silent"]) == (3, 5, False, [])
    assert abs(shown["at"] - time.time()) < 60
    assert [node["node"] for node in shown["nodes"]] == shared_nodes.urls
    assert {node["state"] for node in shown["nodes"]} == {"up"}
    assert set(shown["nodes"][0]) == {"node", "state", "reason", "votes_in", "round_trip"}
    assert {node["votes_in"] for node in shown["nodes"]} == {None}
    evil, wrong, foreign = shown["locks"]
    assert [lock["name"] for lock in shown["locks"]] == [HOSTILE, "list", "\udcff"]
    assert set(evil) == {
        "name",
        "state",
        "kind",
        "holder",
        "since",
        "ttl",
        "held_by",
        "shared",
        "readers",
        "more_readers",
        "permits",
        "highest_fence",
        "queue",
        "nodes",
    }
    assert evil["queue"] is None
    assert (evil["shared"], evil["readers"], evil["more_readers"]) == (False, [], False)
    assert (evil["kind"], evil["nodes"][0]["kind"], foreign["kind"]) == ("mutex", "mutex", None)
    assert (evil["state"], evil["holder"], evil["held_by"]) == ("held", "billing-7", 5)
    assert evil["highest_fence"] == evil["nodes"][0]["fence_counter"] > time.time() * 1000
    assert (foreign["highest_fence"], foreign["nodes"][0]["fence_counter"]) == (None, None)
    assert datetime.fromtimestamp(evil["since"], UTC).year >= 2024
    of_node = {"node", "held", "kind", "holder", "since", "ttl", "reason", "permits", "fence_counter"}
    of_node |= {"readers", "more_readers"}
    assert set(evil["nodes"][0]) == of_node
    assert (wrong["state"], wrong["nodes"][0]["held"]) == ("partial", None)
    assert wrong["nodes"][0]["reason"].startswith("WRONGTYPE")
    assert (foreign["state"], foreign["holder"], foreign["since"]) == ("held", None, None)


@pytest.mark.heavy
@pytest.mark.parametrize("arguments", [(), ("--json",)])
async def test_nothing_hostile_reaches_the_terminal(arguments: tuple[str, ...], shared_nodes: Nodes) -> None:
    """Names, labels and reasons come from outside: control characters and line ends come out escaped."""
    value = b"0" * 40 + b":1763629200123:\x1b]0;title\x07\r\nlabel"
    for url in shared_nodes.urls:
        ask(url, "SET", b"redlock:" + HOSTILE.encode(), value)
        ask(url, "SET", b"redlock:\xff\x1b", value)
        ask(url, "SET", "redlock:straße–日本", value)
    done = await run(shared_nodes, *arguments)
    assert done.returncode == 0
    assert not {character for character in done.stdout if not character.isprintable()} - {"\n"}
    if not arguments:
        assert ascii(HOSTILE) in done.stdout
        assert "straße–日本" in done.stdout
        assert len(done.stdout.splitlines()) == 1 + 5 + 1 + 1 + 3


@pytest.mark.heavy
async def test_readers_have_a_line_each(shared_nodes: Nodes) -> None:
    """Below the lock's own, which says how many they are; those that stay longest come first."""
    async with LockManager(shared_nodes.urls, holder="web-1", ttl=30) as manager:
        lease = await manager.rwlock("catalogue").read().acquire()
        for url in shared_nodes.urls:
            until = (int(ask(url, "TIME")[0]) + 60) * 1000
            ask(url, "ZADD", "redlock:catalogue", until, f"{'0' * 40}:1763629200123:{HOSTILE}")
        await eventually(
            lambda: all(ask(url, "ZCARD", "redlock:catalogue") == 2 for url in shared_nodes.urls)
        )
        done = await run(shared_nodes)
        machine = await run(shared_nodes, "--json")
        await lease.release()
    assert (done.returncode, done.stderr) == (0, "")
    assert not {character for character in done.stdout if not character.isprintable()} - {"\n"}
    lock, hostile, web = done.stdout.splitlines()[-3:]
    assert re.fullmatch(r"  catalogue  read  2 readers +- +\d+\.\d s +5/5", lock)
    assert re.fullmatch(rf" +{re.escape(ascii(HOSTILE))} +\S+ \S+ \([\d.]+ \w+\) +\d+\.\d s +5/5", hostile)
    assert re.fullmatch(r" +web-1 +\S+ \S+ \(\d+ s\) +\d+\.\d s +5/5", web)
    (shown,) = json.loads(machine.stdout)["locks"]
    assert (shown["state"], shown["shared"], shown["more_readers"]) == ("held", True, False)
    assert [reader["holder"] for reader in shown["readers"]] == [HOSTILE, "web-1"]
    assert [reader["held_by"] for reader in shown["readers"]] == [5, 5]
    assert set(shown["readers"][0]) == {"holder", "since", "ttl", "held_by"}
    (node, *_) = shown["nodes"]
    assert [reader["holder"] for reader in node["readers"]] == [HOSTILE, "web-1"]
    assert set(node["readers"][0]) == {"holder", "since", "ttl"}


@pytest.mark.heavy
async def test_names_are_looked_at_without_a_search(make_nodes: Callable[..., LocalNodes]) -> None:
    """A user without the right to search sees the locks that are named, free ones too, and no others."""
    nodes = make_nodes(3)
    for url in nodes.urls:
        ask(url, "ACL SETUSER", "looker", "on", ">secret", "~redlock:*", "+@all", "-scan")
    urls = ",".join(url.replace("redis://", "redis://looker:secret@") for url in nodes.urls)
    environment = {"REDLOCK_URLS": urls}
    async with held(nodes, "a", "b"):
        named = await run(None, "free", "a", environment=environment)
        all_ = await run(None, environment=environment)
    assert (named.returncode, named.stderr) == (0, "")
    assert re.search(
        r"^  free +- +- +- +- +0/3 free\n  a +mutex +billing-7 .* 3/3$", named.stdout, re.MULTILINE
    )
    assert all_.returncode == 69
    assert "NOPERM" in all_.stdout
    assert "0 of 3 nodes answered, 2 are needed" in all_.stdout
    assert "no lock can be acquired" not in all_.stdout  # it can, with fewer rights
    assert "secret" not in named.stdout + all_.stdout


@pytest.mark.heavy
async def test_partial_locks_are_marked(shared_nodes: Nodes) -> None:
    """What only a minority holds is no lock."""
    ask(shared_nodes.urls[0], "SET", "redlock:left", "x", "PX", 60_000)
    done = await run(shared_nodes)
    assert done.returncode == 0
    assert "held locks: 0\n" in done.stdout
    assert re.search(r"^  left +- +- +- +\d+\.\d s +1/5 partial$", done.stdout, re.MULTILINE)


@pytest.mark.heavy
async def test_without_a_majority_it_says_so_and_shows_what_it_knows(nodes3: LocalNodes) -> None:
    """Exit code 69; the one node that answers is still shown, and so is what it holds."""
    async with held(nodes3, "a"):
        nodes3.kill(0)
        nodes3.pause(1)
        done = await run(nodes3)
        machine = await run(nodes3, "--json", "a")
    nodes3.resume(1)
    assert (done.returncode, done.stderr, machine.returncode) == (69, "", 69)
    assert "nodes up: 1 of 3\n" in done.stdout
    assert re.search(r" down .*(refused|connect to)", done.stdout)
    assert re.search(r"^  a +mutex +billing-7 .* 1/3 unknown$", done.stdout, re.MULTILINE)
    assert "1 of 3 nodes answered, 2 are needed" in done.stdout
    assert "1 of 3 nodes are up: no lock can be acquired" in done.stdout
    shown = json.loads(machine.stdout)
    assert (shown["available"], shown["unavailable_for"]) == (False, None)
    assert (shown["answered"], shown["locks"][0]["state"]) == (1, "unknown")
    assert [silent["node"] for silent in shown["silent"]] == nodes3.urls[:2]


@pytest.mark.heavy
async def test_quarantined_nodes_are_shown(shared_nodes: Nodes) -> None:
    """Why they have no vote, for how long, and when a lock can be acquired again; looking changes nothing."""
    untouched = await run(shared_nodes, "--prefix", "new:", environment={QUARANTINE_VARIABLE: "60"})
    assert (untouched.returncode, untouched.stderr) == (69, "")
    assert "\n0 of 5 nodes are up: no lock can be acquired; " in untouched.stdout
    assert [ask(url, "KEYS", "new:*") for url in shared_nodes.urls] == [[]] * 5
    assert untouched.stdout.startswith("nodes up: 0 of 5\n")
    assert len(re.findall(r"^  \S+ +quarantined .*no sentinel", untouched.stdout, re.MULTILINE)) == 5
    async with LockManager(shared_nodes.urls, prefix="new:", restart_quarantine=90):
        before = [ask(url, "GET", "new:{meta}") for url in shared_nodes.urls]
        done = await run(shared_nodes, "--prefix", "new:")
        machine = await run(shared_nodes, "--prefix", "new:", "--json")
        assert [ask(url, "GET", "new:{meta}") for url in shared_nodes.urls] == before
    assert (done.returncode, done.stderr, machine.returncode) == (69, "", 69)
    for url in shared_nodes.urls:
        row = (
            rf"^  {re.escape(url)} +quarantined +[\d.]+ ms +restart quarantine: no vote for another [\d.]+ s$"
        )
        assert re.search(row, done.stdout, re.MULTILINE)
    (note,) = [line for line in done.stdout.splitlines() if "no lock can be acquired" in line]
    pattern = r"0 of 5 nodes are up: no lock can be acquired for another ([\d.]+) s; `aioredlock-ng init` .*"
    assert (told := re.fullmatch(pattern, note))
    assert 30 < float(told[1]) <= 90 * 1.01 + 0.1
    shown = json.loads(machine.stdout)
    assert (shown["available"], 30 < shown["unavailable_for"] < float(told[1])) == (False, True)
    for node in shown["nodes"]:
        assert (node["state"], 30 < node["votes_in"] < float(told[1])) == ("quarantined", True)


@pytest.mark.heavy
async def test_one_server_twice_is_wrong_usage(nodes3: LocalNodes) -> None:
    """By the same address, or by another name of it: the message names both."""
    here = nodes3.urls[0]
    for twin in (here, here.replace("127.0.0.1", "localhost")):
        done = await run(nodes3, "--nodes", f"{here},{twin},{nodes3.urls[1]}")
        assert (done.returncode, done.stdout) == (2, "")
        assert here in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["--nodes", ""], ["--nodes", "nonsense"], ["--nodes", "redis://a", ""], ["--nope"]]
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No nodes, no valid nodes, no valid name, no such option."""
    try:
        code: object = main(["status", *arguments])
    except SystemExit as exit_:
        code = exit_.code
    assert code == 2
    assert capsys.readouterr().err.startswith(("aioredlock-ng: ", "usage: "))


@pytest.mark.heavy
async def test_a_reader_that_goes_away_is_no_error(shared_nodes: Nodes) -> None:
    """``status | head -1`` says nothing about a broken pipe."""
    for url in shared_nodes.urls[:1]:
        for number in range(900):
            ask(url, "SET", f"redlock:{'x' * 200}{number}", "v")
    command = f"{' '.join(COMMAND)} --node-timeout 1 | head -1; exit ${{PIPESTATUS[0]}}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "REDLOCK_URLS": ",".join(shared_nodes.urls)}
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "nodes up: 5 of 5, 2 may fail\n", "")


@pytest.mark.heavy
@pytest.mark.parametrize("command", ["status", "status --json", "doctor", "doctor --json", "watch"])
@pytest.mark.parametrize(
    ("where", "words"),
    [(">&-", "the standard output is closed"), (">/dev/full", "cannot be written: No space left on device")],
)
def test_output_that_goes_nowhere_is_one_line(
    command: str, where: str, words: str, shared_nodes: Nodes
) -> None:
    """A closed output and a full disk: exit code 1 and the reason, and no traceback."""
    line = f"{sys.executable} -W error -m aioredlock_ng {command} --node-timeout 1 {where}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "REDLOCK_URLS": ",".join(shared_nodes.urls)}
    done = subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith("aioredlock-ng: ")
    assert words in said


@pytest.mark.heavy
async def test_an_encoding_that_lacks_letters_is_no_error(shared_nodes: Nodes) -> None:
    """They come out escaped."""
    async with held(shared_nodes, "straße"):
        done = await run(shared_nodes, environment={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert r"stra\xdfe" in done.stdout


@pytest.mark.heavy
async def test_a_long_list_is_cut_and_says_so(shared_nodes: Nodes) -> None:
    """More locks than it looks for: the first thousand, and a note."""
    ask(shared_nodes.urls[0], "EVAL", "for i = 1, 1100 do redis.call('SET', 'redlock:' .. i, 'v') end", 0)
    done = await run(shared_nodes)
    assert done.returncode == 0
    assert "held locks: 0 or more\n" in done.stdout
    assert done.stdout.count("partial") == 1000
    assert "there may be more locks" in done.stdout


# -- pieces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a b", "a b"), ("", "''"), ("a\nb", r"'a\nb'"), ("\x1b[0m", r"'\x1b[0m'"), ("\u202ex", r"'\u202ex'"),
     ("\udcff", r"'\udcff'"), ("日本", "日本"), ("\x85", r"'\x85'")],
)  # fmt: skip
def test_printable(text: str, shown: str) -> None:
    """Harmless text stays; anything else is quoted and escaped."""
    assert printable(text) == shown


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本", 4), ("a\u0301", 1), ("", 0)])
def test_cells(text: str, width: int) -> None:
    """Wide characters take two columns, combining ones none."""
    assert cells(text) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本", 4, "日本"), ("日本", 3, "日…"), ("日本語", 4, "日…")],
)
def test_clipped(text: str, width: int, shown: str) -> None:
    """What is too wide ends in an ellipsis, and is not wider than allowed."""
    assert clipped(text, width) == shown
    assert cells(clipped(text, width)) <= width


@pytest.fixture
def crowded(shared_nodes: Nodes) -> Overview:
    """Give an overview of fifty locks on five nodes."""
    for url in shared_nodes.urls:
        ask(url, "EVAL", "for i = 1, 50 do redis.call('SET', 'redlock:' .. i, 'v') end", 0)

    async def look() -> Overview:
        async with LockManager(shared_nodes.urls, node_timeout=0.5) as manager:
            return Overview(nodes=manager.statistics().nodes, survey=await manager.survey())

    return asyncio.run(look())


@pytest.mark.parametrize("room", [0, 1, 5, 6, 7, 8, 9, 10, 20, 57, 58, 59, 100])
def test_it_fits_into_the_room_that_there_is(room: int, crowded: Overview) -> None:
    """A terminal's height is never exceeded; what is left out is counted."""
    lines = as_lines(crowded, room)
    assert len(lines) <= room
    more = [int(number) for line in lines for number in re.findall(r"… and (\d+) more", line.text)]
    locks = sum("/5" in line.text for line in lines)
    if room >= 9:
        assert locks + sum(more) == 50
        assert bool(more) is (room < 58)
        assert len(lines) == min(room, 58)


def node_in(state: NodeState, votes_in: float | None = None) -> NodeStatistics:
    """Make a node in that state."""
    return NodeStatistics(name="node", state=state, reason="", round_trip=0.001, in_flight=0, owed=0,
                          dropped=0, mismatched=0, votes_in=votes_in, clock=None)  # fmt: skip


def overview(*names: str, silent: bool = False) -> Overview:
    """Make an overview of one node that is up, and of locks without a holder."""
    node = node_in(NodeState.UP)
    free = NodeInspection(node="node", held=False)
    locks = tuple(LockInspection(name=name, nodes=(free,), agreed=()) for name in names)
    missing = (SilentNode(node="node", reason="NOPERM"),) if silent else ()
    return Overview(nodes=(node,), survey=Survey(locks=locks, truncated=False, silent=missing, at=0.0))


def test_a_very_long_name_does_not_push_the_others_away() -> None:
    """It is shown whole, but what stands beside shorter names stays where it can be seen."""
    lines = [line.text for line in as_lines(overview("short", "x" * 1000))]
    assert any("x" * 1000 in line for line in lines)
    (short,) = [line for line in lines if "short" in line]
    assert len(short) < 110


@pytest.mark.parametrize(("silent", "style"), [(True, "warning"), (False, "ok")])
def test_a_node_that_is_up_but_did_not_tell_is_not_fine(silent: bool, style: str) -> None:
    """The reason is not shown in green."""
    (line,) = [line for line in as_lines(overview(silent=silent)) if line.text.startswith("  node")]
    assert (line.style, "NOPERM" in line.text) == (style, silent)


@pytest.mark.parametrize(
    ("up", "waits", "lost", "wait", "words"),
    [
        (0, [3.0, 1.0, 2.0], 0, 2.0, "0 of 3 nodes are up: no lock can be acquired for another 2.0 s"),
        (1, [9.0], 1, 9.0, "1 of 3 nodes are up: no lock can be acquired for another 9.0 s"),
        (0, [9.0], 2, math.inf, "0 of 3 nodes are up: no lock can be acquired"),
        (2, [9.0], 0, 0.0, ""),
        (0, [0.0], 2, 0.0, "these nodes have not been used yet: the first lock can be acquired at once"),
    ],
)
def test_how_long_no_lock_can_be_had(up: int, waits: list[float], lost: int, wait: float, words: str) -> None:
    """Until a majority votes again, if waiting is all it needs; what waits is not shown as broken."""
    quarantined = [node_in(NodeState.QUARANTINED, wait) for wait in waits]
    nodes = (*[node_in(NodeState.UP)] * up, *quarantined, *[node_in(NodeState.DOWN)] * lost)
    survey = Survey(locks=(), truncated=False, silent=(), at=0.0)
    shown = as_lines(Overview(nodes=nodes, survey=survey, unavailable_for=wait))
    assert [line.style for line in shown[1:4]] == ["ok"] * up + ["warning"] * len(waits) + ["error"] * lost
    (note,) = [line.text for line in shown[5:]] or [""]
    assert note.partition("; `aioredlock-ng init`")[0] == words


def test_without_limit_everything_is_there(crowded: Overview) -> None:
    """1 line and 5 for the nodes, 2 and 50 for the locks."""
    assert len(as_lines(crowded)) == 58
