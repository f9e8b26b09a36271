"""Debian's chromium, driven by playwright."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.servers import required

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
    """What the browser had to complain about: errors of scripts, violations of the page's policy, dialogs."""

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
