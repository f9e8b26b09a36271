"""An aiohttp application in which no order is paid twice at the same time.

Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over five local ones of its own:

    python examples/aiohttp_app.py [PORT]
    curl -X POST localhost:8080/orders/42/pay & curl -X POST localhost:8080/orders/42/pay

One of the two is paid; the other gets 409 and a Retry-After, because it waits for half a second only.
`/livez` and `/readyz` are for the probes of Kubernetes and the like.
"""

import asyncio
import contextlib
import json
import math
import os
import sys

from aiohttp import web

from aioredlock_ng.contrib.aiohttp import LEASE, MANAGER, locked, setup
from aioredlock_ng.testing import LocalNodes

routes = web.RouteTableDef()

UNKNOWN_WAIT = 5
"""Seconds after which a client may ask again when no moment is known: nodes are down."""


@routes.post("/orders/{order_id:[1-9][0-9]*}/pay")  # only digits: /orders/042 would be another lock
@locked("order:{order_id}", ttl=15, blocking_timeout=0.5)
async def pay(request: web.Request) -> web.Response:
    await asyncio.sleep(2)  # the work; cancelled when the lock is lost, and the client gets 503
    request[LEASE].check()  # right before the write: is it still ours?
    return web.json_response({"paid": request.match_info["order_id"]})


@routes.post("/report")
async def report(request: web.Request) -> web.Response:
    async with request.config_dict[MANAGER].lock(
        "report", blocking=False
    ):  # the same answers without @locked
        return web.json_response({"report": "done"})


@routes.get("/livez")
async def live(_: web.Request) -> web.Response:
    return web.json_response({"status": "alive"})  # whatever the nodes do: no restart would mend them


@routes.get("/readyz")
async def ready(request: web.Request) -> web.Response:
    manager = request.config_dict[MANAGER]
    if manager.available:  # no I/O: ask as often as you like
        return web.json_response({"status": "ready"})
    wait, statistics = manager.unavailable_for, manager.statistics()
    reasons = [
        f"{node.name} is {node.state}: {node.reason}" for node in statistics.nodes if node.state != "up"
    ]
    raise web.HTTPServiceUnavailable(
        text=json.dumps({"detail": statistics.conflict or "; ".join(reasons)}),
        content_type="application/json",
        headers={"Retry-After": str(math.ceil(wait) if math.isfinite(wait) else UNKNOWN_WAIT)},
    )


def make_app(urls: list[str]) -> web.Application:
    app = web.Application()
    setup(app, urls)  # the manager starts and ends with the application
    app.add_routes(routes)
    return app


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    with contextlib.ExitStack() as stack:
        if os.environ.get("REDLOCK_URLS"):
            urls = os.environ["REDLOCK_URLS"].split(",")
        else:
            nodes = stack.enter_context(contextlib.closing(LocalNodes(5)))
            nodes.start()
            urls = nodes.urls
        web.run_app(make_app(urls), host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
