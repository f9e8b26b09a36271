"""Micro-benchmarks of the core and the pipe: ``python -m benchmarks.micro``, with the options of pyperf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

from aioredlock_ng._core.command import Command, Reply
from aioredlock_ng._core.fencing import at, ballot, certified
from aioredlock_ng._core.quorum import Tally, Vote
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.pipe import REQUEST_IDS, Pipe

NODES: Final = 5
QUORUM: Final = 3
BATCH: Final = 100
"""Commands that are in a pipe at once."""

OWNER: Final = b"%040x:1763640000000:host.example.org:12345" % (1 << 159)
KEY: Final = b"redlock:bench:0"
FENCE: Final = at(1_763_640_000_000)
PLAIN: Final = Primitive(MUTEX, ("bench:0",), (KEY,))
FENCED: Final = Primitive(
    MUTEX, ("bench:0",), (KEY,), counters=(b"fence",), incarnation=b"incarnation", fence_ttl=600.0
)


@final
class NoSink:
    """Waits for replies and does nothing with them."""

    awaited = True

    def on_reply(self, node: int, reply: Reply) -> None:
        """Nothing to do."""


def tally() -> None:
    votes = Tally(NODES)
    for _ in range(NODES):
        votes.cast(Vote.GRANTED)


def new_pipe() -> Pipe:
    def fail(error: Exception) -> None:
        raise error

    return Pipe(lambda _question, _message: None, lambda: None, fail)


def round_(make: Callable[[], Command], replies: Sequence[bytes]) -> Callable[[], None]:
    """Return what makes one command and passes it, and then the replies, through the pipes of five nodes."""
    sink, pipes = NoSink(), [new_pipe() for _ in range(NODES)]

    def run() -> None:
        command = make()
        for node, pipe in enumerate(pipes):
            pipe.put(command, sink, node)
            pipe.take()
        for pipe in pipes:
            pipe.feed(replies[(pipe.answered + 1) % len(replies)])

    return run


def parsing(make: Callable[[], Command], replies: Sequence[bytes]) -> Callable[[], None]:
    """Return what feeds a pipe with the replies to many commands, which came at once."""
    sink, command = NoSink(), make()
    together = b"".join(replies[number % len(replies)] for number in range(1, BATCH + 1))

    def run() -> None:
        pipe = new_pipe()
        for _ in range(BATCH):
            pipe.put(command, sink, 0)
        pipe.take()
        pipe.feed(together)

    return run


def parts() -> dict[str, Callable[[], object]]:
    """Return what is measured, by name."""
    granted = [b"*4\r\n$3\r\n%b\r\n:1\r\n:%d\r\n:1763640000000000\r\n" % (tag, FENCE) for tag in REQUEST_IDS]
    plain, fenced = (partial(mutex.acquire, OWNER, 10.0, FENCE) for mutex in (PLAIN, FENCED))
    return {
        "tally of 5 votes": tally,
        "ballot": partial(ballot, FENCE, 1_763_640_000_000),
        "certified, 5 that agree": partial(certified, (FENCE,) * NODES, QUORUM),
        "certified, 5 that differ": partial(certified, tuple(range(FENCE, FENCE + NODES)), QUORUM),
        "a plain acquire: pack, queue, parse, 5 nodes": round_(plain, [b"+OK\r\n"]),
        "a fenced acquire: pack, queue, parse, 5 nodes": round_(fenced, granted),
        f"{BATCH} plain acquires: queue, parse at once, 1 node": parsing(plain, [b"+OK\r\n"]),
        f"{BATCH} fenced acquires: queue, parse at once, 1 node": parsing(fenced, granted),
    }


def main() -> None:
    import pyperf

    runner = pyperf.Runner()
    for name, part in parts().items():
        runner.bench_func(name, part)


if __name__ == "__main__":
    main()
