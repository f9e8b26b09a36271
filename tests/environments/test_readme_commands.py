"""The README's commands are the ones that are tested."""

import tomllib

from tests.environments.interpreters import ROOT


def command_ending_in(end: str) -> str:
    """Return the README's only command line with that end."""
    lines = (ROOT / "README.md").read_text().splitlines()
    (command,) = (line.strip().removeprefix("$ ") for line in lines if line.rstrip().endswith(end))
    return command


def test_the_readmes_demo_command_installs_what_it_starts() -> None:
    """The demo's command line names extras and a script that exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    command = command_ending_in("&& .venv/bin/aioredlock-ng demo")

    extras = command.partition("'.[")[2].partition("]'")[0].split(",")
    assert {"local"} <= set(extras) <= set(project["optional-dependencies"])
    assert "aioredlock-ng" in project["scripts"]
