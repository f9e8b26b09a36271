"""Commands whose output goes into a pipe or onto a terminal, and what they have said so far."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cli.runs import PATIENCE


@dataclass
class Shown:
    """A running command, and what it has said."""

    process: subprocess.Popen[bytes]
    read_end: int
    output: str = ""

    def read(self) -> bool:
        """Read a little more of its output; False at its end."""
        assert select.select([self.read_end], [], [], PATIENCE)[0], self.output
        try:
            data = os.read(self.read_end, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # how Linux says that no process holds the terminal any more
                raise
            return False
        self.output += data.decode(errors="replace")
        return bool(data)

    def until(self, pattern: str) -> None:
        """Read until it has said something."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.output, re.DOTALL):
            assert time.monotonic() < deadline, self.output[-3000:]
            assert self.read(), self.output[-3000:]

    def read_until(self, words: str) -> None:
        """Read until these words have been shown."""
        self.until(re.escape(words))

    def type(self, keys: str) -> None:
        """Press keys at its terminal."""
        os.write(self.read_end, keys.encode())

    def finish(self, number: signal.Signals | None = None) -> int:
        """Send a signal, if any, read to the end, and return the exit code."""
        if number is not None:
            self.process.send_signal(number)
        while self.read():
            pass
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def showing(
    command: Sequence[str], environment: dict[str, str], *, rows: int | None = None, cwd: Path | None = None
) -> Iterator[Shown]:
    """Start a command with a pipe for its output, or a terminal of some rows and 80 columns."""
    read_end, write_end = os.pipe() if rows is None else pty.openpty()
    if rows is not None:
        fcntl.ioctl(write_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=inherited | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | environment,
        stdin=subprocess.DEVNULL if rows is None else write_end,
        stdout=write_end,
        stderr=write_end,
        start_new_session=True,
    )
    os.close(write_end)
    try:
        yield Shown(process, read_end)
    finally:
        process.kill()
        process.wait()
        os.close(read_end)
