"""``examples/compose.yaml``: what its services run is there, and they wait for each other."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from fastapi.routing import APIRoute

from aioredlock_ng import LockManager
from aioredlock_ng.__main__ import make_parser
from aioredlock_ng._manager import URLS_VARIABLE
from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from aioredlock_ng.testing import LocalNodes
from tests.environments.interpreters import ROOT
from tests.servers import ask, without_quarantine_set

FILE: Final = ROOT / "examples" / "compose.yaml"
NODES: Final = ("node-1", "node-2", "node-3")


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """Give the services."""
    return yaml.safe_load(FILE.read_text())["services"]


def test_the_variables_are_those_that_are_read(services: dict[str, Any]) -> None:
    """No misspelt one, and the URLs name the nodes, all of them, the same for both clients."""
    for name in ("init", "app"):
        variables = services[name]["environment"]
        assert set(variables) <= {URLS_VARIABLE, QUARANTINE_VARIABLE}
        urls = variables[URLS_VARIABLE].split(",")
        LockManager(urls)  # takes them
        assert urls == [f"redis://{node}" for node in NODES]


def test_the_servers_take_their_options(
    services: dict[str, Any], make_nodes: Callable[..., LocalNodes]
) -> None:
    """A real server starts with them and has the policy that locks need."""
    (command, *others) = [services[name]["command"] for name in NODES]
    assert others == [command] * 2
    server, *words = command
    assert server == "valkey-server"
    options = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    (url,) = make_nodes(1, options=options).urls
    for name, value in options.items():
        assert ask(url, "CONFIG GET", name) == {name: value}
    assert options["maxmemory-policy"] == "noeviction"


def test_the_application_is_there(services: dict[str, Any]) -> None:
    """The module that uvicorn is given, the port, and the path that the probe asks for."""
    server, target, *options = services["app"]["command"]
    assert server == "uvicorn"
    module, _, name = target.partition(":")
    app = getattr(importlib.import_module(module), name)
    settings = dict(zip(options[::2], options[1::2], strict=True))
    assert services["app"]["ports"] == [f"127.0.0.1:{settings['--port']}:{settings['--port']}"]
    *_, python, _, code = services["app"]["healthcheck"]["test"]
    assert python == "python"
    compile(code, "healthcheck", "exec")
    (port, path) = re.findall(r"'http://127\.0\.0\.1:(\d+)(/\w+)'", code)[0]
    assert port == settings["--port"]
    assert path in {route.path for route in app.routes if isinstance(route, APIRoute)}


def test_the_image_has_what_it_needs(services: dict[str, Any]) -> None:
    """The files that are copied exist, and so does the extra that is installed."""
    build = services["app"]["build"]
    assert build == services["init"]["build"]
    context = (FILE.parent / build["context"]).resolve()
    lines = [line.split() for line in build["dockerfile_inline"].splitlines()]
    copied = [word for line in lines if line[0] == "COPY" for word in line[1:-1]]
    assert {"pyproject.toml", "aioredlock_ng", "examples"} <= set(copied)
    assert [word for word in copied if not (context / word).exists()] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (extra,) = re.findall(r"'\.\[(\w+)\]'", build["dockerfile_inline"])
    assert extra in extras


@pytest.mark.heavy
def test_init_runs_once(
    services: dict[str, Any], make_nodes: Callable[..., LocalNodes], tmp_path: Path
) -> None:
    """On fresh nodes; later the mark that it leaves lets it end well without a word.

    Nodes that have all lost their memory are then not declared to be free: a client may have lived on.
    """
    shell, flag, script = services["init"]["command"]
    (volume,) = services["init"]["volumes"]
    directory = volume.partition(":")[2]
    commands = re.findall(r"aioredlock-ng [^&|;}]*", script)
    assert [make_parser().parse_args(shlex.split(command)[1:]).run.__module__ for command in commands] == [
        "aioredlock_ng._cli.init"
    ]
    nodes = make_nodes(3)
    for url in nodes.urls:
        ask(url, "FLUSHALL")
    known = tmp_path / "known"
    known.mkdir()
    program = tmp_path / "aioredlock-ng"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m aioredlock_ng "$@"\n')
    program.chmod(0o755)
    environment = without_quarantine_set() | {URLS_VARIABLE: ",".join(nodes.urls), "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"

    def run() -> tuple[int, str]:
        done = subprocess.run(
            [shell, flag, script.replace(directory, str(known))],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout

    assert run() == (0, "".join(f"{url}  initialised\n" for url in nodes.urls))
    assert [path.name for path in known.iterdir()] == ["initialised"]
    for url in nodes.urls:
        ask(url, "FLUSHALL")
    assert run() == (0, "")
    assert [ask(url, "DBSIZE") for url in nodes.urls] == [0, 0, 0]
