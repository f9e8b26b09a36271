"""Make virtual environments, and run parts of this suite in them."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

COMMAND_TIMEOUT = 300.0  # seconds for one command; the longest is an installation with its downloads

_LINES_SHOWN = 60

# What another interpreter runs: other kinds of servers would say nothing of it.
CHEAP = "not (heavy or process)"


class InstallationError(Exception):
    """An environment could not be made; the text is the end of the output."""


def make_environment(
    python: Path, folder: Path, requirements: Sequence[str], *, package: str | None = None
) -> Path:
    """Return the interpreter of a virtual environment that has the checkout (editable) and `requirements`.

    With `package`, a wheel or a source distribution, it has that in place of the checkout.  An environment
    that was made before is used again, unless the interpreter, the requirements or `pyproject.toml` changed.

    Raises:
        InstallationError: venv or pip failed, for instance because there is no network.
    """
    key = hashlib.sha256()
    for part in (str(python), package or "", *requirements):
        key.update(part.encode() + b"\0")
    key.update((ROOT / "pyproject.toml").read_bytes())
    ready = folder / "ready"
    inside = folder / "bin" / "python"
    if not (ready.is_file() and ready.read_text() == key.hexdigest() and inside.exists()):
        shutil.rmtree(folder, ignore_errors=True)
        # The pip that installed us installs there too: nothing to download first, and no ensurepip needed.
        # Little of what is installed is imported: what is, is compiled then.
        pip = (sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", "--no-compile")
        try:
            _output(python, "-m", "venv", "--without-pip", folder)
            _output(*pip, *(("-e", ROOT) if package is None else (package,)), *requirements)
        except subprocess.CalledProcessError as error:
            raise InstallationError(f"{error}\n{error.stderr[-2000:]}") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InstallationError(str(error)) from None
        ready.write_text(key.hexdigest())
    return inside


def run_suite(python: Path, suite: Sequence[str], output: Path, timeout: float) -> tuple[int, list[str]]:
    """Run a part of this suite with another interpreter; return its exit code and its last lines.

    What the calling run demands by settings, it runs itself: this one takes the servers that it finds.
    """
    own = {"REDLOCK_REQUIRE", "PYTEST_ADDOPTS", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    with output.open("w") as file:  # a file, not a pipe, which servers left behind would hold open
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", CHEAP, *suite],
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if key not in own},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    return done.returncode, output.read_text().splitlines()[-_LINES_SHOWN:]


def _output(*command: str | Path) -> str:
    """Return what `command` prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT).stdout
