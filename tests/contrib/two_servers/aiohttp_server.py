"""An aiohttp application for the test of two servers."""

import os
import sys

from aiohttp import web

from aioredlock_ng.contrib.aiohttp import LEASE, locked, setup
from tests.contrib.two_servers.inside import be_inside


async def handle(request: web.Request) -> web.Response:
    """Be inside for the key of the path."""
    await be_inside(request.match_info["key"], float(request.query["seconds"]))
    return web.json_response({"name": request[LEASE].name})


def main() -> None:
    """Serve on the port that the command line names."""
    app = web.Application()
    ttl, node_timeout = float(os.environ["TTL"]), float(os.environ["NODE_TIMEOUT"])
    setup(app, os.environ["REDLOCK_URLS"].split(","), ttl=ttl, node_timeout=node_timeout)
    app.router.add_post("/try/{key}", locked("item:{key}", ttl=ttl, blocking=False)(handle))
    app.router.add_post("/wait/{key}", locked("item:{key}", ttl=ttl, blocking_timeout=20)(handle))
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)


if __name__ == "__main__":
    main()
