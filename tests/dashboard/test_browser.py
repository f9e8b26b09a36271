"""The page in a real browser: it lives, works by keyboard, stays whole whatever names there are, releases."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from aiohttp import web

from aioredlock_ng import LockManager
from aioredlock_ng.contrib.aiohttp import add_locks_page
from aioredlock_ng.testing import LocalNodes
from tests.dashboard.serving import TOKEN, by_aiohttp
from tests.servers import ask, required

CHROMIUM: Final = shutil.which("chromium") or shutil.which("google-chrome")

ARGUMENTS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
"""Of a browser that talks to the page alone, also where root runs it."""

PATIENCE: Final = 30_000.0
"""Milliseconds for something to be shown."""


def skip_unless_there_is_a_browser() -> None:
    """Skip the test, or fail it where ``REDLOCK_REQUIRE`` names ``chromium``."""
    missing = [] if CHROMIUM else ["no chromium on PATH"]
    if importlib.util.find_spec("playwright") is None:
        missing.append("no playwright: pip install --group browser")
    if missing and "chromium" in required():
        pytest.fail(f"{', '.join(missing)} (REDLOCK_REQUIRE names it)", pytrace=False)
    if missing:
        pytest.skip(", ".join(missing))


@dataclass
class Complaints:
    """The browser's complaints: errors of scripts, violations of the page's policy, dialogs."""

    heard: list[str] = field(default_factory=list)

    def listen(self, page: Any) -> None:
        """Hear what a page complains about."""
        page.on(
            "console",
            lambda message: message.type in ("error", "warning") and self.heard.append(message.text),
        )
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.on("dialog", lambda dialog: self.heard.append(f"dialog: {dialog.message}"))


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Any]:
    """Run a browser; skips the test where there is none."""
    skip_unless_there_is_a_browser()
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS])
        try:
            yield chromium
        finally:
            await chromium.close()


@contextlib.asynccontextmanager
async def window(chromium: Any, complaints: Complaints, url: str, **options: Any) -> AsyncIterator[Any]:
    """Open a page in a window that knows no other."""
    context = await chromium.new_context(**options)
    context.set_default_timeout(PATIENCE)
    page = await context.new_page()
    complaints.listen(page)
    await page.goto(url)
    try:
        yield page
    finally:
        await context.close()


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "javascript:alert(1)",
    "\u202egpj.exe",
    "\x00\x1b[31m\r\n\r\ndata: {}",
    "x" * 1000,
    "__proto__",
    "#lock=%22a%22",
)


@pytest.fixture
async def manager(shared_nodes):
    """Open a manager over real nodes."""
    async with LockManager(shared_nodes.urls, holder="the shop", ttl=30) as manager:
        yield manager


@pytest.fixture
def complaints():
    """Collect what browsers complain of; at the end there is nothing."""
    complaints = Complaints()
    yield complaints
    assert not complaints.heard


@contextlib.asynccontextmanager
async def browsing(
    manager: LockManager, complaints: Complaints, place: str = "", view: Any = None, **options: Any
) -> AsyncIterator[Any]:
    """Serve the page and open it in a browser."""
    async with (
        by_aiohttp(manager, interval=0.2, **options) as url,
        browser() as chromium,
        window(chromium, complaints, f"{url}/locks{place}", **view or {}) as page,
    ):
        yield page


def rows(page: Any) -> Any:
    """Find the rows of the table."""
    return page.locator("#locks-body tr")


async def shows(locator: Any, text: str) -> None:
    """Wait until something says so."""
    await locator.filter(has_text=text).first.wait_for()


async def test_the_page_lives(manager, shared_nodes, complaints):
    """Locks come and go; each can be found, and is followed on a page of its own, all of it by keyboard."""
    async with browsing(manager, complaints) as page:
        await shows(page.locator("#availability-text"), "Locks can be acquired")
        assert await page.locator("#nodes > li").count() == len(manager.statistics().nodes)
        async with manager.lock("orders"), manager.lock("printer", fair=True):
            await shows(rows(page), "printer")
            assert await rows(page).count() == 2
            await page.keyboard.press("/")
            await page.keyboard.type("ord")
            await rows(page).filter(has_text="printer").wait_for(state="detached")
            assert await rows(page).count() == 1
            await rows(page).locator("a").focus()
            await page.keyboard.press("Enter")
            await shows(page.locator("#lock-name"), "orders")
            await shows(page.locator("#history > li"), "Held by the shop")
            assert await page.locator("#votes-body tr[data-vote]").count() == len(manager.statistics().nodes)
            assert await page.locator("#release").is_hidden()
        await shows(page.locator("#history > li"), "eleased")
        await page.locator("#view-lock[data-state=free]").wait_for()
        await page.keyboard.press("Escape")
        await page.locator("#view-overview").wait_for()
        await page.locator("#clear").click()
        await rows(page).first.wait_for(state="detached")
        async with LockManager(shared_nodes.urls, holder="the batch") as other, manager.rwlock("page").read():
            writing = asyncio.create_task(other.rwlock("page").write().acquire())
            await rows(page).locator("a").first.click()
            await shows(page.locator("#queue-note"), "Writers that wait: the batch.")
            writing.cancel()


FOREIGN = "document.querySelectorAll('img[src=x], script:not([src]), b, [onerror], [onmouseover]').length"
"""Counts the elements that names would have made."""


async def test_hostile_names_are_text(manager, shared_nodes, complaints):
    """Those of locks and holders, in the table and on their own pages: nothing of them is run or loaded."""
    for url in shared_nodes.urls:
        ask(url, "SET", b"redlock:\xff<b>", "x")  # type: ignore[arg-type]
    async with (
        LockManager(shared_nodes.urls, holder="<b onmouseover=alert(1)>", ttl=30) as other,
        browsing(manager, complaints) as page,
    ):
        leases = [await other.lock(name).acquire() for name in HOSTILE]
        await rows(page).nth(len(HOSTILE)).wait_for()  # and the key of another program
        assert await rows(page).count() == len(HOSTILE) + 1
        assert await page.evaluate(FOREIGN) == 0
        for number in range(len(HOSTILE) + 1):
            link = rows(page).nth(number).locator("a.name")
            name = await link.get_attribute("data-name")
            assert name is not None
            await link.click()
            await page.locator("#view-lock").wait_for()
            assert await page.locator("#lock-name").get_attribute("data-name") == name
            if "0xff" not in name:  # which is no lock of this library
                await page.locator("#view-lock[data-state=held]").wait_for()
            assert await page.evaluate(FOREIGN) == 0
            await page.keyboard.press("Escape")
            await rows(page).first.wait_for()
        assert await page.evaluate("({}).state") is None  # no prototype has been written to
        assert "\u202e" not in await page.locator("body").inner_text()
        for lease in leases:
            await lease.release()


async def test_a_lock_is_released_after_a_question(manager, complaints):
    """Signed in, by what the dialog shows; what has changed hands meanwhile must be agreed to again."""
    options = {"token": TOKEN, "allow_release": True}
    async with browsing(manager, complaints, "#lock=%22stuck%22", **options) as page:
        await page.locator("#token").fill("not the token at all")
        await page.keyboard.press("Enter")
        await shows(page.locator("#sign-in-error"), "Wrong token")
        await page.locator("#token").fill(TOKEN)
        await page.keyboard.press("Enter")
        first = await manager.lock("stuck").acquire()
        await page.locator("#view-lock[data-state=held]").wait_for()
        await page.locator("#release").click()
        facts = page.locator("#release-facts")
        assert "the shop" in await facts.inner_text()
        await first.release()
        async with manager.lock("stuck"):
            await page.locator("#release-confirm").click()
            await shows(page.locator("#release-message"), "changed hands meanwhile: nothing was deleted")
        await page.keyboard.press("Escape")
        await page.locator("#view-lock[data-state=free]").wait_for()
        lease = await manager.lock("stuck").acquire()
        await page.locator("#view-lock[data-state=held]").wait_for()
        await page.locator("#release").click()
        await page.locator("#release-confirm").click()
        await shows(page.locator("#release-left"), "Deleted on")
        assert all(not node.held for node in await manager.inspect("stuck"))
        await lease.release()
        await page.keyboard.press("Escape")
        await page.locator("#sign-out").click()
        await page.locator("#sign-in-form").wait_for()
        assert "stuck" not in await page.locator("body").inner_text()
    complaints.heard[:] = [each for each in complaints.heard if "status of 4" not in each]  # asked for above


@contextlib.asynccontextmanager
async def serving(manager: LockManager) -> AsyncIterator[tuple[web.AppRunner, str]]:
    """Serve the page of a manager that the application does not start; also gives what ends it."""
    app = web.Application()
    add_locks_page(app, manager=manager, interval=0.2)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner, f"http://127.0.0.1:{runner.addresses[0][1]}/locks/"
    finally:
        await runner.cleanup()


async def test_trouble_is_shown(make_nodes, complaints):
    """A node that is down, no quorum, a server that is gone: in words, and in the window's title."""
    nodes: LocalNodes = make_nodes(3)
    async with (
        LockManager(nodes.urls, ttl=30) as manager,
        serving(manager) as (runner, url),
        browser() as chromium,
        window(chromium, complaints, url) as page,
    ):
        await shows(page.locator("#margin"), "1 more node may fail")
        assert not (await page.title()).startswith("(!)")
        nodes.kill(0)
        await page.locator("#nodes > li:not([data-state=up])").first.wait_for()
        await shows(page.locator("#nodes > li[data-state=down]"), "Connection refused")
        await page.locator("#margin[data-level=warning]").wait_for()
        assert (await page.title()).startswith("(!)")
        nodes.kill(1)
        await page.locator("#availability[data-state=unavailable]").wait_for()
        await shows(page.locator("#locks-empty"), "Too few nodes answered")
        await runner.cleanup()
        await page.locator("#banner-stream").wait_for()
    complaints.heard[:] = [each for each in complaints.heard if "net::ERR" not in each]  # the server is gone
