"""Fixtures of several tests of the command line."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aioredlock_ng.__main__ import main
from aioredlock_ng.testing import LocalNodes
from tests.cli.runs import Cli, Runs, open_runs
from tests.servers import Nodes, fastest_arm


@pytest.fixture
def raw_nodes() -> Iterator[Callable[[int], LocalNodes]]:
    """Return a function that starts servers which were never used."""
    with contextlib.ExitStack() as stack:

        def start(n: int) -> LocalNodes:
            nodes = LocalNodes(n, server=fastest_arm())
            stack.enter_context(contextlib.closing(nodes))
            for _ in nodes.starting():
                time.sleep(0.002)
            return nodes

        yield start


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs a command line in this process: its exit code, and both outputs."""

    def run(*words: str) -> tuple[object, str, str]:
        capsys.readouterr()
        try:
            code: object = main(words)
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def runs(tmp_path: Path, shared_nodes: Nodes) -> Iterator[Runs]:
    """Start runs over the shared nodes."""
    with open_runs(tmp_path, shared_nodes) as runs:
        yield runs
