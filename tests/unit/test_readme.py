"""The README and the examples do what they say: their code is run, their claims are looked up."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import aiohttp.test_utils
import httpx
import pytest
from aiohttp import web
from fastapi import FastAPI
from redis.asyncio import Redis

import aioredlock_ng
from aioredlock_ng import LockManager, ReleaseOutcome, Vote
from aioredlock_ng.testing import LocalNodes
from aioredlock_ng.testing._fresh import initialise
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask, eventually

README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks_of(text: str) -> dict[int, str]:
    """Return the blocks of Python in a page, by their lines."""
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return {text.count("\n", 0, match.start()) + 2: match[1] for match in found}


BLOCKS = blocks_of(README)
CALLS = {"pay": (42,), "make_report": (7,), "work": ()}
"""What the README's functions are called with."""


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


async def run_block(code: Any, names: dict[str, Any]) -> None:
    """Run one block as if its lines stood in a coroutine, and then call what it defines."""
    async with LockManager(names["URLS"]) as manager:
        names["manager"] = manager
        if code.co_flags & inspect.CO_COROUTINE:
            await eval(code, names)  # noqa: S307 (our own README)
        else:
            exec(code, names)  # noqa: S102 (likewise)
        for name, arguments in CALLS.items():
            if inspect.iscoroutinefunction(names.get(name)):
                await names[name](*arguments)
            elif name in names:
                await asyncio.to_thread(names[name], *arguments)


VISITS = (("/orders/42/pay", {"paid": 42}), ("/reports", {"done": True}))
"""What the README's web applications are asked, and what they answer."""


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


@pytest.mark.parametrize("line", BLOCKS)
def test_every_python_block_runs(line: int, shared_nodes: Nodes) -> None:
    """A reader can copy any block: it runs against real nodes, and the tests in it pass."""
    source = "\n" * (line - 1) + BLOCKS[line]  # so that tracebacks show the README's line
    for number, url in enumerate(shared_nodes.urls, start=1):
        source = source.replace(f"redis://10.0.0.{number}", url)
    alone = shared_nodes.urls[3]
    source = source.replace("redis://localhost", alone)
    code = compile(source, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    urls = shared_nodes.urls[:3]
    initialise(urls)  # for a quorum of three
    initialise([alone])  # and of one
    names: dict[str, Any] = {"LockManager": LockManager, "URLS": urls, "db": Database()}

    asyncio.run(run_block(code, names))

    if isinstance(names.get("app"), FastAPI):
        asyncio.run(visit_fastapi(names["app"]))
    elif "app" in names:
        asyncio.run(visit_aiohttp(names["app"]))
    for name in [name for name in names if name.startswith("test_")]:
        if inspect.signature(names[name]).parameters or hasattr(names[name], "pytestmark"):
            continue  # it wants a fixture: tests/plugin/test_readme.py runs it under pytest
        outcome = names[name]()
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)
    if "pay" in names:
        assert names["db"].paid == {42: 142}


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_the_blocks_of_the_other_pages_make_managers(page: Path) -> None:
    """Each makes a manager, which connects at its first use only."""
    for line, block in blocks_of(page.read_text()).items():
        names: dict[str, Any] = {"LockManager": LockManager}
        exec(compile("\n" * (line - 1) + block, page.name, "exec", dont_inherit=True), names)  # noqa: S102
        assert isinstance(names["manager"], LockManager)


def test_there_are_blocks_to_run() -> None:
    """The expression that finds the blocks finds all of them."""
    assert len(BLOCKS) == README.count("```python") >= 9
    assert sum(len(blocks_of(page.read_text())) for page in PAGES[1:]) >= 2


async def test_the_acl_line_is_enough(make_nodes: Any) -> None:
    """A user with just the README's rights can do everything, by URL and by client; nothing is denied."""
    nodes: LocalNodes = make_nodes(3)
    (rights,) = re.findall(r"^ACL SETUSER (.*)$", README, re.MULTILINE)
    for url in nodes.urls:
        ask(url, "ACL SETUSER", *rights.split())
    urls = [url.replace("redis://", "redis://locks:secret@") for url in nodes.urls]
    clients = [Redis.from_url(url) for url in urls]

    for specs in (urls, clients):
        async with LockManager(specs) as manager:
            for names in (("one",), ("one", "two")):
                lease = await manager.lock(*names, blocking_timeout=1).acquire()
                await lease.extend(20)
                await eventually(lambda lease=lease: {vote.vote for vote in lease.votes} == {Vote.GRANTED})
                assert {node.ours for node in await manager.inspect("one")} == {True}
                report = await lease.release()
                assert report.count(ReleaseOutcome.RELEASED) == 3
            assert not any(node.held for node in await manager.force_release("one"))
    for client in clients:
        await client.aclose()

    # `client|setinfo`, which redis-py sends and does without, exists in newer servers only.
    denied = [entry["object"] for url in nodes.urls for entry in ask(url, "ACL LOG")]
    assert {name for name in denied if not name.startswith("client|")} == set()


def test_every_error_in_the_readme_exists() -> None:
    """The table of errors names the classes that the package exports, and misses none."""
    rows = set(re.findall(r"^\| `(\w+Error)` \|", README, re.MULTILINE))
    exported = {name for name in aioredlock_ng.__all__ if name.endswith("Error")}
    assert rows == exported - {"LockError", "LockNotAcquiredError"}


def test_every_hook_in_the_readme_exists() -> None:
    """The README names all hooks."""
    hooks = {name for name in vars(aioredlock_ng.Hooks) if name.startswith("on_")}
    assert set(re.findall(r"\bon_\w+", README)) == hooks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links into the repository point at files that are there, and those into the page at its headings."""
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {"#" + re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    assert [link for link in links if link not in anchors and not (page.parent / link).exists()] == []


def test_the_readme_stays_short() -> None:
    """Read it."""
    assert README.count("\n") < 700
