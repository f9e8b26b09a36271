"""Servers whose clocks a test can set, each on its own: real ones, under the shim ``clock_shim.c``."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.servers import required

SOURCE: Final = Path(__file__).with_name("clock_shim.c")

_WORD: Final = struct.Struct("=q")
_OFFSET, _RATE, _ORIGIN = (_WORD.size * place for place in range(3))


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
        self._write(i, _OFFSET, self._read(i, _OFFSET) + int(seconds * 1e9))

    def run_at(self, i: int, rate: float) -> None:
        """Let a clock go faster or slower from now on: 1.01 is one percent faster.  Once per clock."""
        self._write(i, _ORIGIN, time.time_ns())
        self._write(i, _RATE, int((rate - 1) * 1e6))

    def _file(self, i: int) -> Path:
        return self._directory / f"clock-{self.servers.ports[i]}"

    def _read(self, i: int, place: int) -> int:
        (value,) = _WORD.unpack(self._file(i).read_bytes()[place : place + _WORD.size])
        return int(value)

    def _write(self, i: int, place: int, value: int) -> None:
        fd = os.open(self._file(i), os.O_WRONLY)
        try:
            os.pwrite(fd, _WORD.pack(value), place)
        finally:
            os.close(fd)
