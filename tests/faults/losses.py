"""Ways in which a server forgets its grants, and the place of its file."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aioredlock_ng.testing import LocalNodes
from tests.servers import ask

PERSISTENT: Final = {"appendonly": "yes", "appendfsync": "always"}


def kept(nodes: LocalNodes, i: int) -> Path:
    """Return where a server keeps its append-only file."""
    return Path(ask(nodes.urls[i], "CONFIG GET", "dir")["dir"]) / "appendonlydir"


async def restart_empty(nodes: LocalNodes, i: int, _older: Path) -> None:
    """Restart a server without its data."""
    shutil.rmtree(kept(nodes, i))
    await nodes.restart(i)


async def restart_older(nodes: LocalNodes, i: int, older: Path) -> None:
    """Restart a server with a copy of its data that was made before A came."""
    place = kept(nodes, i)
    nodes.kill(i)
    shutil.rmtree(place)
    shutil.copytree(older, place)
    await nodes.restart(i)


async def flush(nodes: LocalNodes, i: int, _older: Path) -> None:
    """Flush a server; its connections stay."""
    ask(nodes.urls[i], "FLUSHALL")


Loss = Callable[[LocalNodes, int, Path], Awaitable[None]]
LOSSES: Final = (restart_empty, restart_older, flush)
