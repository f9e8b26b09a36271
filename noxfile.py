"""What one does with this project, by one word each: ``nox -l`` lists it, ``nox -s tests`` does it.

All of it runs in ``.venv``, which the README's test command makes; nox itself may live anywhere.
"""

from __future__ import annotations

from pathlib import Path

import nox

PYTHON = Path(__file__).parent / ".venv" / "bin" / "python"

nox.options.default_venv_backend = "none"
nox.options.sessions = ["tests", "lint"]


def run(session: nox.Session, *arguments: str) -> None:
    """Run a module of the project's environment."""
    if not PYTHON.exists():
        session.error(f"{PYTHON} is missing: run the README's test command once")
    session.run(str(PYTHON), "-m", *arguments, external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the quick tier, in a minute on two idle cores; or what is named behind ``--``."""
    run(session, "pytest", *session.posargs)


@nox.session
def all_tests(session: nox.Session) -> None:
    """Run every tier on the servers that are here; .ci/run brings the others. Half an hour."""
    run(session, "pytest", "-m", "", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Look for faults of style and of types; changes nothing."""
    run(session, "ruff", "check")
    run(session, "ruff", "format", "--check")
    run(session, "mypy")
    run(session, "basedpyright")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site of docs/; needs ``pip install --group docs``."""
    run(session, "mkdocs", "build", "--strict", "--config-file", "docs/mkdocs.yml", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Ask what an acquire goes through, and whether anything has become slower; a minute."""
    run(session, "benchmarks.path")
    run(session, "benchmarks.guard")
