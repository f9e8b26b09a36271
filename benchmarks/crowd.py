"""Many workers with one peer, forked from one warm process: ``python -m benchmarks.crowd --copies 300``.

It speaks what `benchmarks.worker` speaks: an order goes to all of them, and the answer has their figures, in
``parts``.  They are forked when the peer is known, after a rehearsal and with no event loop left, so they
start within milliseconds and share the memory of what is imported.  They end with it, and it ends with its
input.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final, NamedTuple

from benchmarks import worker

AT_ONCE: Final = 16
"""Workers that connect at the same time: all of them together would keep each other waiting."""

Figures = dict[str, Any]


class Child(NamedTuple):
    """A worker, as this process sees it."""

    orders: IO[bytes]
    answers: IO[bytes]

    def close(self) -> None:
        """Leave it alone; in another child, so that it can see the end of its input."""
        self.orders.close()
        self.answers.close()


def forked(loop: str, others: Sequence[Child]) -> Child:
    """Start a worker."""
    (orders, to_child), (from_child, answers) = os.pipe(), os.pipe()
    if os.fork():
        os.close(orders)
        os.close(answers)
        return Child(os.fdopen(to_child, "wb", buffering=0), os.fdopen(from_child, "rb"))
    try:
        for other in others:
            other.close()
        os.close(to_child)
        os.close(from_child)
        os.dup2(orders, 0)
        os.dup2(answers, 1)
        worker.work(loop)
    finally:
        os._exit(1)


def carry_out(children: Sequence[Child], line: bytes, at_once: int) -> Figures:
    """Let all of them carry out an order, so many at a time."""
    parts: list[Figures] = []
    for first in range(0, len(children), at_once):
        group = children[first : first + at_once]
        for child in group:
            child.orders.write(line)
        parts += [json.loads(child.answers.readline() or b'{"error": "it died"}') for child in group]
    if errors := [part["error"] for part in parts if "error" in part]:
        return {"error": f"{errors[0]} (in {len(errors)} of {len(parts)} processes)"}
    return {"parts": parts}


async def rehearsal(order: Figures) -> None:
    """Use the peer for a moment: many a library imports half of itself when it is first used."""
    desk = worker.Desk()
    await desk.do(order["do"], order)
    await desk.do("latency", {"prefix": "rehearsal", "count": 2, "seconds": 1.0})
    await desk.do("close", {})


def answers_to(orders: IO[bytes], loop: str, copies: int) -> Iterator[Figures]:
    """Carry out the orders."""
    children: list[Child] = []
    for line in orders:
        order = json.loads(line)
        if not children:
            asyncio.run(rehearsal(order))
            gc.freeze()
            for _ in range(copies):
                children.append(forked(loop, children))
        yield carry_out(children, line, copies if order["do"] not in {"open", "close"} else AT_ONCE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loop", choices=worker.LOOPS, default="asyncio")
    parser.add_argument("--copies", type=int, required=True)
    given = parser.parse_args()
    for answer in answers_to(sys.stdin.buffer, given.loop, given.copies):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
