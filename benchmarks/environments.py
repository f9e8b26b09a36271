"""The workers' interpreters: a peer that cannot live with the others gets an environment of its own."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sys
from pathlib import Path
from typing import Final

from benchmarks.peers import PEERS

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / ".benchmarks" / "environments"
NODE_REDLOCK: Final = ("redlock@5.0.0-beta.2", "ioredis@5.4.1")
PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


class UnavailableError(Exception):
    """A peer cannot be had here; the message says why."""


async def python_of(peer: str, folder: Path = FOLDER) -> Path:
    """Return the interpreter for a peer, in an environment that is made if need be.

    Raises:
        UnavailableError: it cannot be had.
    """
    spec = PEERS[peer]
    if spec.needs_cc and not shutil.which("cc"):
        raise UnavailableError("there is no C compiler (cc) on PATH")
    if not spec.requirements:
        return Path(sys.executable)
    told = "\n".join((sys.version, *spec.requirements))
    place = folder / f"{peer}-{hashlib.sha1(told.encode(), usedforsecurity=False).hexdigest()[:10]}"
    python, ready = place / "bin" / "python", place / "ready"
    if not ready.exists():
        shutil.rmtree(place, ignore_errors=True)
        await _run(peer, sys.executable, "-m", "venv", str(place))
        await _run(peer, str(python), *PIP, *spec.requirements)
        ready.touch()
    return python


async def node_redlock(folder: Path = FOLDER) -> tuple[str, ...]:
    """Return the command of the worker for node-redlock, whose packages are installed if need be.

    Raises:
        UnavailableError: they cannot be had.
    """
    if not (shutil.which("node") and shutil.which("npm")):
        raise UnavailableError("there is no Node.js (node and npm) on PATH")
    place = folder / "node-redlock"
    if not (place / "ready").exists():
        place.mkdir(parents=True, exist_ok=True)
        await _run("node-redlock", "npm", "install", "--silent", "--prefix", str(place), *NODE_REDLOCK)
        (place / "ready").touch()
    return ("node", str(Path(__file__).parent / "peers" / "node_redlock.cjs"), str(place / "node_modules"))


async def _run(peer: str, *command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        told = output.decode(errors="replace").strip().splitlines()[-3:]
        raise UnavailableError(f"no environment for {peer}: {' / '.join(told)}")
