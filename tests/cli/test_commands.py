"""Common to all commands of ``aioredlock-ng``: the list of them, help, times, JSON, probes."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import pytest

import aioredlock_ng
from aioredlock_ng import LockManager
from aioredlock_ng.__main__ import COMMANDS, _split, make_parser
from aioredlock_ng._cli.common import FORMAT
from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from aioredlock_ng.testing import LocalNodes
from tests.cli.runs import Cli
from tests.docs.pages import ROOT, command_lines
from tests.servers import Nodes, with_rights

NAMES = list(COMMANDS)
PAGES_LINES = sorted({line for line in command_lines() if line.startswith("aioredlock-ng ")})


# -- the list ----------------------------------------------------------------------------------------


def test_without_a_command_all_are_listed(cli: Cli) -> None:
    """As help does, but as wrong usage: a script whose variable is empty does not go on."""
    code, out, err = cli()
    assert (code, out) == (2, "")
    listed = re.findall(r"^    ([a-z]+) +[a-z]", err, re.MULTILINE)
    assert listed == NAMES
    code, out, err = cli("--help")
    assert (code, err) == (0, "")
    assert re.findall(r"^    ([a-z]+) +[a-z]", out, re.MULTILINE) == NAMES


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    """One version: of the command, of the module, and of what is installed."""
    assert cli("--version") == (0, f"aioredlock-ng {aioredlock_ng.__version__}\n", "")
    assert metadata.version("aioredlock_ng") == aioredlock_ng.__version__


@pytest.mark.parametrize("line", ["--version", "--help", "status --nope", "run job"])
def test_a_command_imports_what_it_needs(line: str) -> None:
    """Neither clients nor an event loop for what asks no node, nor the other commands: a start is imports."""
    code = f"from aioredlock_ng.__main__ import main\ntry: main({line.split()})\nexcept SystemExit: pass\n"
    code += "import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert not imported & {"redis", "hiredis", "anyio", "asyncio", "rich"}
    commands = {name for name in NAMES if f"aioredlock_ng._cli.{name}" in imported}
    assert commands == {line.split(maxsplit=1)[0]} & set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_help_speaks_plainly(name: str, cli: Cli) -> None:
    """It cites no rules, which are for readers of the code, and any encoding of the output can write it."""
    code, out, _ = cli(name, "--help")
    assert code == 0
    assert out.isascii()
    assert not re.search(r"\b[RA]\d+\b", out)
    assert ("TIME" in out) == ("90s, 5m, 1h30m" in out)


@pytest.mark.parametrize("line", PAGES_LINES)
def test_the_commands_of_the_pages_are_understood(line: str) -> None:
    """Every one in README and docs that a reader may copy is a command with options that exist."""
    own, child = _split(shlex.split(line, comments=True)[1:])
    arguments = make_parser().parse_args([word for word in own if word not in ("[NAME", "…]")])
    assert arguments.run is not None
    assert bool(child) == (own[0] == "run")


def test_every_command_is_on_a_page() -> None:
    """One that is added has an example, a section, and tests: the rest is common to all."""
    examples = {line.split()[1] for line in PAGES_LINES}
    sections = set(re.findall(r"^## ([a-z]+)$", (ROOT / "docs/how-to/cli.md").read_text(), re.MULTILINE))
    tested = {name for name in NAMES if Path(__file__).with_name(f"test_{name}.py").exists()}
    assert examples == set(NAMES), "docs have an example of each command"
    assert sections == set(NAMES), "docs/how-to/cli.md has a section for each command"
    assert tested == set(NAMES), "each command has tests, in tests/cli/test_NAME.py"


# -- the quarantine ---------------------------------------------------------------------------------


def test_the_quarantine_may_be_in_the_environment(
    make_nodes: Callable[..., LocalNodes], monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """As in the library, which reads the same variable; a wrong one is named.

    `doctor` asks for none of its own: it takes what there is, and compares it with its option.
    """
    nodes = ("--nodes", ",".join(make_nodes(3).urls))
    monkeypatch.setenv(QUARANTINE_VARIABLE, "1m30s")
    assert cli("init", *nodes)[0] == 0
    monkeypatch.delenv(QUARANTINE_VARIABLE)
    for asked, says in (((), "has no vote for 90 s"), (("--restart-quarantine", "5"), "asks for 5 s")):
        code, out, _ = cli("doctor", *nodes, "--node-timeout", "1s", *asked)
        assert (code, says in out) == (0, True)
    monkeypatch.setenv(QUARANTINE_VARIABLE, "soon")
    for command in ("init", "doctor"):
        code, _, err = cli(command, *nodes)
        assert (code, f"{QUARANTINE_VARIABLE}: a duration is" in err) == (2, True)


# -- for programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["status", "doctor", "init", "release job --yes", "trace a"])
def test_every_json_is_an_object_with_one_head(
    line: str, shared_nodes: Nodes, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version, command and error come first, also where nothing can be done.

    A quarantine that is shorter than the default ttl is no obstacle to what only looks.
    """
    monkeypatch.setenv(QUARANTINE_VARIABLE, "5")
    head, words = ["version", "command", "error"], line.split()
    if words[0] != "trace":  # which goes on for ever
        nodes = ("--nodes", ",".join(shared_nodes.urls), "--node-timeout", "1")
        assert cli(*words, *nodes)[::2] == (0, "")
        code, out, err = cli(*words, "--json", *nodes)
        assert (code, err) == (0, "")
        shown = json.loads(out)
        assert (list(shown)[:3], len(shown) > 3) == (head, True)
        assert (shown["version"], shown["command"], shown["error"]) == (FORMAT, words[0], None)
    code, out, err = cli(*words, "--json", "--nodes", "http://10.0.0.1")
    shown = json.loads(out)
    assert (code, list(shown), shown["command"]) == (2, head, words[0])
    assert err == f"aioredlock-ng: {shown['error']}\n"
    assert "unknown scheme" in shown["error"]


# -- probes ------------------------------------------------------------------------------------------


PROBES = ("status", "doctor")


def probe(cli: Cli, urls: Sequence[str], command: str) -> tuple[object, bool, object]:
    """Return a command's exit code, and whether and when a lock could be had, as it says."""
    code, out, _ = cli(command, "--json", "--nodes", ",".join(urls), "--node-timeout", "1")
    shown = json.loads(out)
    return code, shown["available"], shown["unavailable_for"]


@pytest.mark.parametrize("command", PROBES)
@pytest.mark.parametrize(
    ("size", "quarantine", "available"),
    [(1, "", True), (2, "", True), (3, "", False), (3, "0", True), (1, "60", False)],
)
def test_nodes_that_were_never_used(
    *,
    size: int,
    quarantine: str,
    available: bool,
    command: str,
    raw_nodes: Callable[[int], LocalNodes],
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> None:
    """They grant the first lock at once to clients without a quarantine, by the variable or by default.

    A container that probes itself before its first lock must not wait for that lock.
    """
    monkeypatch.setenv(QUARANTINE_VARIABLE, quarantine)
    wait = 0 if available else None
    assert probe(cli, raw_nodes(size).urls, command) == (0 if available else 69, available, wait)


@pytest.mark.parametrize("command", PROBES)
def test_without_a_majority_it_is_69(command: str, nodes3: LocalNodes, cli: Cli) -> None:
    """One dead node of three is none of it, two are, and a quarantine is for as long as it takes."""
    nodes3.kill(0)
    code, available, _ = probe(cli, nodes3.urls, command)
    assert (code != 69, available) == (True, True)
    nodes3.kill(1)
    assert probe(cli, nodes3.urls, command) == (69, False, None)
    nodes3.start()
    asyncio.run(begin_quarantine(nodes3.urls))
    code, available, wait = probe(cli, nodes3.urls, command)
    assert (code, available) == (69, False)
    assert isinstance(wait, float)
    assert 0 < wait <= 90 * 1.01 + 0.1


async def begin_quarantine(urls: Sequence[str]) -> None:
    """Use nodes that have lost their memory, as a client with a quarantine does."""
    async with LockManager(urls, restart_quarantine=90) as manager:
        assert not manager.available


def test_nodes_that_are_up_but_refuse_are_69(nodes3: LocalNodes, cli: Cli) -> None:
    """`doctor` tries what locks ask for: without rights to write no lock can be acquired."""
    urls = [with_rights(url, "~redlock:* +@all -@write -@scripting") for url in nodes3.urls]
    assert probe(cli, urls, "doctor") == (69, False, None)
