"""A program to look at: some tasks that want a few locks, with metrics for Prometheus.

    REDLOCK_URLS=redis://…,redis://…,redis://… python examples/observability/worker.py --port 9464

Its tasks want one lock that all share, which makes them wait, and one of a hundred that they hardly ever meet
at; one more holds a lock for long, so that it is extended.  It says on its standard output where its metrics
are, and runs until it is told to end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal

from prometheus_client import start_http_server

from aioredlock_ng import LockLostError, LockManager
from aioredlock_ng.contrib.prometheus import PrometheusHooks


async def work(manager: LockManager, number: int) -> None:
    """Take the lock that all want, then one that is mostly free; for ever."""
    while True:
        async with manager.lock("report", label="report", fair=number % 2 == 0):
            await asyncio.sleep(0.01)
        order = random.randrange(100)
        async with manager.lock(f"order:{order}", label="order:{id}"):
            await asyncio.sleep(0.005)


async def work_for_long(manager: LockManager) -> None:
    """Hold a lock for long enough to be extended; when it is lost, begin anew."""
    while True:
        try:
            async with manager.lock("nightly", label="nightly"):
                await asyncio.sleep(3)
        except LockLostError as error:
            print(error, flush=True)
        await asyncio.sleep(0.1)


async def main(port: int, address: str, tasks: int) -> None:
    """Work, and serve the metrics, until a signal comes."""
    server, _ = start_http_server(port, addr=address)
    print(f"metrics at http://{address}:{server.server_port}/metrics", flush=True)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with LockManager.from_env(hooks=[PrometheusHooks()], ttl=2.0) as manager:
        workers = [asyncio.create_task(work(manager, number)) for number in range(tasks)]
        workers.append(asyncio.create_task(work_for_long(manager)))
        await ended.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9464, help="0: any that is free")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--tasks", type=int, default=4)
    options = parser.parse_args()
    asyncio.run(main(options.port, options.address, options.tasks))
