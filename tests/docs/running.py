"""Running a page as its reader would: block after block, in one namespace and one event loop."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import aiohttp.test_utils
import httpx
from aiohttp import web
from fastapi import FastAPI

from aioredlock_ng import LockManager
from aioredlock_ng.__main__ import main
from tests.docs.pages import Block

# What functions that a page defines and does not call are called with.
CALLS: Final = {"pay": (42,), "make_report": (7,), "transfer": (1, 2, 50)}


class Database:
    """The resource that the README's first example writes to."""

    paid: dict[int, int]

    def __init__(self) -> None:
        self.paid = {}
        self.fence = 0

    async def amount(self, invoice: int) -> int:
        """Return what is to be paid."""
        return 100 + invoice

    async def pay(self, invoice: int, amount: int, *, fence: int | None) -> None:
        """Note a payment, unless a newer holder was here."""
        assert fence is not None
        assert self.fence <= fence
        self.fence = fence
        self.paid[invoice] = amount


# Pages that are a way through, whose commands are run between the blocks of Python.
COMMANDED: Final = ("docs/start.md", "docs/operate/operating.md")


# Options for each command: on a loaded machine a server may take longer than the usual 0.1 s.
UNHURRIED: Final = ("--node-timeout", "5")


def over(urls: list[str], source: str) -> str:
    """Return a block's source with real servers in the place of those of a page: three, and one alone."""
    for i, url in enumerate(urls[:3]):
        source = source.replace(f"redis://10.0.0.{i + 1}", url).replace(f"redis://localhost:{6379 + i}", url)
    return source.replace("redis://localhost", urls[3])


async def run_page(blocks: Iterable[Block], names: dict[str, Any], urls: list[str]) -> None:
    """Run the blocks, call and visit what they define, and close the managers that they made."""
    made: dict[int, LockManager] = {}
    printed = program = ""
    for block in blocks:
        if block.info == 'title="output"':
            assert digits_aside(block.source) == digits_aside(printed)
        if block.language == "sh" and block.page in COMMANDED:
            await asyncio.to_thread(run_commands, over(urls, block.source))
        if block.language != "python" or block.is_tests:
            continue
        if block.info.endswith(', one line"'):
            block = replace(block, source=with_line(program, block.source))  # noqa: PLW2901
        program = block.source
        known = dict(names)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            await run_block(block, names, urls)
        printed = out.getvalue()
        made |= {id(value): value for value in names.values() if isinstance(value, LockManager)}
        for name, arguments in CALLS.items():
            if names.get(name) is not known.get(name):
                await names[name](*arguments)
        await visit(names.get("app"))
    for manager in made.values():
        await manager.aclose()


def with_line(program: str, line: str) -> str:
    """Return a program with a line in the place of the one that gives its variable a value."""
    variable, equals, _ = line.partition(" = ")
    changed, count = re.subn(f"^{variable}{equals}.*\n", lambda _: line, program, flags=re.MULTILINE)
    assert count == 1, f"the program above has no such line, or several: {line}"
    return changed


async def run_block(block: Block, names: dict[str, Any], urls: list[str]) -> None:
    """Run one block; what awaits runs here, and a program in a thread, where it may run a loop of its own."""
    source = "\n" * (block.line - 1) + over(urls, block.source)  # so that tracebacks show the page's line
    code = compile(source, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)  # noqa: S307 (our own pages)
    else:
        await asyncio.to_thread(exec, code, names)


def run_commands(source: str) -> None:
    """Run the commands of ours in a block, but for the demonstration; each ends well."""
    for line in source.splitlines():
        program, *words = shlex.split(line, comments=True)
        if program == "export":
            variable, _, value = words[0].partition("=")
            os.environ[variable] = value
        elif program == "aioredlock-ng" and words != ["demo"]:
            assert main([*words, *UNHURRIED]) == 0, line


def digits_aside(text: str) -> str:
    """Return a text with all numbers replaced by one: fences and times differ from run to run."""
    return re.sub(r"\d+", "0", text)


def beside_database(block: Block, dsn: str) -> Block:
    """Return a block of the page about databases over a server that is there."""
    place = dict(part.split("=") for part in dsn.split())
    there = f"{place['user']}@/{place['dbname']}?host={place['host']}"
    return replace(block, source=block.source.replace("app@localhost/shop", there))


def set_up_django(dsn: str) -> None:
    """Give Django the database of a page; once per process, as it is a setting of it."""
    import django
    from django.conf import settings

    place = dict(part.split("=") for part in dsn.split())
    default = {"ENGINE": "django.db.backends.postgresql", "NAME": place["dbname"], "USER": place["user"]}
    settings.configure(DATABASES={"default": default | {"HOST": place["host"]}})
    django.setup()


async def run_database_page(blocks: Iterable[Block], names: dict[str, Any], urls: list[str]) -> None:
    """Run the page, and then its endpoints and its view at once: each must have changed the row."""
    from django.db import connections

    await run_page(blocks, names, urls)
    app = FastAPI()
    app.include_router(names["router"])

    def view() -> None:
        assert names["deposit_view"](None, 1).status_code == 200
        connections.close_all()

    async with (
        LockManager(urls[:3]) as app.state.lock_manager,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client,
    ):
        paths = ["/accounts/1/deposit?amount=1"] * 5 + ["/accounts/1/fee"] * 2
        posts = map(client.post, paths)
        answers = await asyncio.gather(*posts, *(asyncio.to_thread(view) for _ in range(3)))
    assert [answer.status_code for answer in answers[: len(paths)]] == [200] * len(paths)
    await names["engine"].dispose()
    await asyncio.to_thread(names["locks"].close)


# What the pages' web applications are asked, and what they answer.
VISITS: Final = (("/orders/42/pay", {"paid": 42}), ("/reports", {"done": True}))


async def visit(app: FastAPI | web.Application | None) -> None:
    """Ask a page's web application, if it has one."""
    if isinstance(app, FastAPI):
        await visit_fastapi(app)
    elif app is not None:
        await visit_aiohttp(app)


async def visit_fastapi(app: FastAPI) -> None:
    """Ask a FastAPI application; a number is one lock however it is written."""
    async with app.router.lifespan_context(app) as state:
        app.state.lock_manager = state["lock_manager"]  # httpx runs no lifespan, so it knows no state of one
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for path, answer in (*VISITS, ("/orders/042/pay", {"paid": 42})):
                assert (await client.post(path)).json() == answer
            assert (await client.post("/checkout", json={"user_id": 1})).json() == {"done": True}
            assert (await client.post("/checkout", json={})).status_code == 422


async def visit_aiohttp(app: web.Application) -> None:
    """Ask an aiohttp application; numbers are texts there."""
    async with aiohttp.test_utils.TestClient(aiohttp.test_utils.TestServer(app)) as client:
        for path, answer in VISITS:
            response = await client.post(path)
            assert {key: type(answer[key])(value) for key, value in (await response.json()).items()} == answer
        assert (await client.post("/orders/042/pay")).status == 404
