"""A process with one peer in it, driven through pipes: ``python -m benchmarks.worker --loop uvloop``.

One JSON object per line.  In: ``{"do": "open", "peer": …, "urls": […], "options": {…}}``,
``{"do": "latency", …}`` or another slice with its arguments, ``{"do": "close"}``.  Out: figures, or
``{"error": …}``.  It ends with its input.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import os
import sys
import traceback
from typing import Any, final

from benchmarks.peers import PEERS
from benchmarks.slices import SLICES

LOOPS = ("asyncio", "uvloop")
LINE = 1 << 26
"""Bytes of a line at most."""


@final
class Desk:
    """Carries out the orders."""

    def __init__(self) -> None:
        self._peer: Any = None

    async def do(self, what: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order and return its figures."""
        if what == "open":
            spec = PEERS[arguments["peer"]]
            module = importlib.import_module(f"benchmarks.peers.{spec.module}")
            self._peer = module.Peer(arguments["urls"], **spec.options, **arguments["options"])
            await self._peer.open()
            return {}
        if what == "close":
            await self._peer.close()
            self._peer = None
            return {}
        own = getattr(self._peer, what, None)  # a peer that is not asyncio's measures itself
        if own is not None:
            return dict(await own(**arguments))
        return dict(await SLICES[what](self._peer, **arguments))


async def serve(answers: Any) -> None:
    """Take orders until the input ends."""
    orders = asyncio.StreamReader(limit=LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    queue: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen() -> None:
        while line := await orders.readline():
            queue.put_nowait(line)
        os._exit(0)  # whatever hangs

    listening = asyncio.create_task(listen())
    desk = Desk()
    while not listening.done():
        order = json.loads(await queue.get())
        try:
            answer = await desk.do(order.pop("do"), order)
        except Exception as error:  # noqa: BLE001 (the runner is told, whatever it is)
            told = traceback.format_exception_only(error)[-1].strip()
            answer = {"error": told, "traceback": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


def work(loop: str) -> None:
    """Be a worker with this kind of event loop."""
    logging.disable()  # a library that logs every failure would measure its log
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr  # what a library prints is no answer
    factory = importlib.import_module("uvloop").new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loop", choices=LOOPS, default="asyncio")
    work(parser.parse_args().loop)


if __name__ == "__main__":
    main()
