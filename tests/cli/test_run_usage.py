"""``aioredlock-ng run``: what is wrong usage, and what its help says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aioredlock_ng.__main__ import main
from aioredlock_ng._core.quarantine import parse
from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from tests.cli.runs import Runs, open_runs
from tests.servers import Nodes, ask


@pytest.fixture
def runs(tmp_path: Path, shared_nodes: Nodes) -> Iterator[Runs]:
    """Start runs over the shared nodes."""
    with open_runs(tmp_path, shared_nodes) as runs:
        yield runs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["job"], "no command"),
        (["job", "--"], "no command"),
        (["--", "true"], "NAME"),
        (["-n", "-w", "1", "job", "--", "true"], "not allowed with"),
        (["-w", "-1", "job", "--", "true"], "-w"),
        (["-w", "nan", "job", "--", "true"], "seconds"),
        (["-w", "soon", "job", "--", "true"], "seconds"),
        (["-E", "256", "job", "--", "true"], "0 to 255"),
        (["-E", "x", "job", "--", "true"], "0 to 255"),
        (["--kill-after", "5", "job", "--", "true"], "less than half"),
        (["--ttl", "4", "--kill-after", "2", "job", "--", "true"], "less than half"),
        (["--ttl", "0", "job", "--", "true"], "ttl"),
        (["--ttl", "1e9", "job", "--", "true"], "ttl"),
        (["--node-timeout", "20", "job", "--", "true"], "node_timeout"),
        (["", "--", "true"], "name"),
        (["fence:{x}", "--", "true"], "reserved"),
        (["--nodes", "http://user:secret@host", "job", "--", "true"], "scheme"),
        (["--nodes", "", "job", "--", "true"], "node"),
        (["job", "true"], "unrecognized"),
        (["--shared", "-x", "job", "--", "true"], "not allowed with"),
        (["--shared", "--at-least", "60", "job", "--", "true"], "--at-least goes with none of"),
        (["-x", "--at-least", "60", "job", "--", "true"], "--at-least goes with none of"),
    ],
)
def test_wrong_usage_is_2(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is asked or started; the message says what is wrong, and no password."""
    monkeypatch.setenv("REDLOCK_URLS", "redis://127.0.0.1:1")
    try:
        code = main(["run", *arguments])
    except SystemExit as exit_:
        code = exit_.code
    output = capsys.readouterr()
    assert code == 2
    assert words in output.err
    assert "secret" not in output.err
    assert "Traceback" not in output.err


def test_a_ttl_that_a_given_quarantine_does_not_outlast_is_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No lock may be held for longer than a node that forgot it keeps still; the message names both."""
    monkeypatch.setenv(QUARANTINE_VARIABLE, "60")
    assert main(["run", "--nodes", "redis://127.0.0.1:1", "--ttl", "100", "job", "--", "true"]) == 2
    said = capsys.readouterr().err
    assert "ttl=100" in said
    assert "=60" in said
    assert "restart_quarantine" in said.lower()


def test_a_name_that_is_something_elses_is_2(runs: Runs) -> None:
    """It is not waited for, and the command is not started; what is there is told."""
    for url in runs.nodes.urls:
        ask(url, "XADD", "redlock:job", "*", "field", "value")
    code, out, err = runs.finish("job", "--", "echo", "started")
    assert (code, out) == (2, "")
    assert "lock 'job' is wanted as a mutex" in err
    assert "holds a stream, which is no lock of this package" in err


def test_a_long_ttl_makes_the_default_quarantine_longer(runs: Runs) -> None:
    """The command runs, and every node will keep still for as long as its lock may live."""
    assert runs.finish("-n", "--ttl", "100", "job", "--", "echo", "started") == (0, "started\n", "")
    sentinels = [parse(ask(url, "GET", "redlock:{meta}")) for url in runs.nodes.urls]
    assert {sentinel.quarantine_ms for sentinel in sentinels if sentinel} == {100_000}


def test_without_nodes_it_says_how_to_name_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither option nor variable: exit code 2."""
    monkeypatch.delenv("REDLOCK_URLS", raising=False)
    assert main(["run", "job", "--", "true"]) == 2
    assert "REDLOCK_URLS" in capsys.readouterr().err


def test_one_server_given_twice_is_2(runs: Runs) -> None:
    """A configuration error that only the servers' answers show; the command is not started."""
    url = runs.nodes.urls[0]
    twice = f"{url},{url.replace('127.0.0.1', 'localhost')},{runs.nodes.urls[1]}"
    code, out, err = runs.finish("--nodes", twice, "job", "--", "echo", "started")
    assert (code, out) == (2, "")
    assert "one server" in err


def test_the_help_names_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    """Ttl, time to kill, exit codes, and what cannot be done."""
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "default: 10 s)",
        "a quarter of the ttl",
        "75",
        "126",
        "setsid",
        "elsewhere than on Linux",
        "both frozen",
        "both are killed",
        "hold a read lock, as flock -s",
        "REDLOCK_MODE=read",
        "REDLOCK_SLOT",
    ):
        assert words in text
