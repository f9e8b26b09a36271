"""A real Redis Sentinel for tests."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from aioredlock_ng.testing._server import find_server
from tests.servers import answers, fastest_arm, free_port, until


@contextlib.contextmanager
def running_sentinel(directory: Path, *lines: str) -> Iterator[int]:
    """Run a Sentinel with these lines in its configuration, which lives in `directory`; gives its port."""
    port = free_port()
    directory.mkdir()
    file = directory / "sentinel.conf"
    file.write_text("\n".join((f"port {port}", "bind 127.0.0.1", f"dir {directory}", *lines, "")))
    command = [find_server(fastest_arm()), str(file), "--sentinel"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: answers(port, secured=True) or process.poll() is not None, "it answers")
            assert process.poll() is None, "it has ended"
            yield port
        finally:
            process.kill()


def watching(service: str, port: int, *more: str) -> Sequence[str]:
    """Return the lines by which a lone Sentinel watches a master, and fails it over within some seconds."""
    return (
        f"sentinel monitor {service} 127.0.0.1 {port} 1",
        f"sentinel down-after-milliseconds {service} 300",
        f"sentinel failover-timeout {service} 2000",
        *more,
    )
