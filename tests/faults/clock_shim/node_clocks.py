"""Servers whose clocks a test can set, each on its own: real ones, under the shim ``clock_shim.c``."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.servers import required

SOURCE: Final = Path(__file__).with_name("clock_shim.c")

_OFFSET_NS: Final = struct.Struct("=q")


def compiled(directory: Path) -> Path:
    """Compile the shim; skips where that cannot work, and fails if ``REDLOCK_REQUIRE`` names ``cc``."""
    if sys.platform != "linux":
        pytest.skip("the shim is for Linux")
    if shutil.which("cc") is None:
        if "cc" in required():
            pytest.fail("no C compiler (cc) on PATH (REDLOCK_REQUIRE names it)", pytrace=False)
        pytest.skip("no C compiler (cc) on PATH")
    library = directory / "clock_shim.so"
    subprocess.run(["cc", "-Wall", "-Werror", "-O2", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return library


class ClockedNodes:
    """Servers, and their clocks; a server that is restarted finds its clock as it was."""

    def __init__(self, make: Callable[..., LocalNodes], n: int, library: Path, directory: Path) -> None:
        self._directory = directory
        env = {"LD_PRELOAD": str(library), "CLOCK_SHIM": f"{directory}/clock-{{port}}"}
        self.servers = make(n, env=env)

    @property
    def urls(self) -> list[str]:
        """One URL per server."""
        return self.servers.urls

    def step(self, i: int, seconds: float) -> None:
        """Set a clock ahead, or back, by so much."""
        file = self._directory / f"clock-{self.servers.ports[i]}"
        with file.open("r+b") as offset:
            (before,) = _OFFSET_NS.unpack(offset.read(_OFFSET_NS.size))
            offset.seek(0)
            offset.write(_OFFSET_NS.pack(before + int(seconds * 1e9)))
