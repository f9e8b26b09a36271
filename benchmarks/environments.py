"""What starts the workers: a peer that cannot live with the others gets an environment of its own."""

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
PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


class UnavailableError(Exception):
    """A peer cannot be had here; the message says why."""


async def command_of(peer: str, loop: str, folder: Path = FOLDER) -> tuple[str, ...]:
    """Return what starts a worker for a peer, with this kind of event loop where there is a choice.

    Raises:
        UnavailableError: it cannot be had.
    """
    if PEERS[peer].node:
        return await _node(peer, folder)
    return (str(await python_of(peer, folder)), "-m", "benchmarks.worker", "--loop", loop)


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


async def _node(peer: str, folder: Path) -> tuple[str, ...]:
    if not (shutil.which("node") and shutil.which("npm")):
        raise UnavailableError("there is no Node.js (node and npm) on PATH")
    spec, place = PEERS[peer], folder / peer
    told = "\n".join(spec.requirements)
    ready = place / "ready"
    if not ready.exists() or ready.read_text() != told:
        place.mkdir(parents=True, exist_ok=True)
        await _run(peer, "npm", "install", "--silent", "--prefix", str(place), *spec.requirements)
        ready.write_text(told)
    return ("node", str(ROOT / "benchmarks" / "peers" / f"{spec.module}.cjs"), str(place / "node_modules"))


async def _run(peer: str, *command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        told = output.decode(errors="replace").strip().splitlines()[-3:]
        raise UnavailableError(f"no environment for {peer}: {' / '.join(told)}")
