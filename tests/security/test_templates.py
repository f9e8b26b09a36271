"""Templates of lock names: what callers and requests put in is text, and never a template itself."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import pytest

from aioredlock_ng.contrib.fastapi import locked as locked_endpoint
from tests.contrib.fastapi.tools import new_app, site
from tests.unit.tasks import virtual
from tests.unit.traces import locks, sent
from tests.unit.worlds import world

# What would be a field, if it were read as a template once more.
INJECTED: Final = (
    "{hidden}", "{value.__class__}", "{value.__class__.__init__.__globals__}", "{value[0]}", "{0}", "{}",
    "{{x}}", "{value!r:>{width}}", "}{", "%s", "%(hidden)s", "$hidden", "${hidden}", "{value:999999999}",
    "\n{hidden}",
)  # fmt: skip


@virtual
async def test_a_value_is_text() -> None:
    """Each of them stands in the name as it was given; nothing of another argument gets into it."""
    async with world(1) as w:

        @w.manager.locked("report:{value}")
        async def report(value: str, hidden: str = "not shown") -> tuple[bytes, ...]:
            return locks(w.nodes[0])

        for value in INJECTED:
            assert await report(value) == (f"redlock:report:{value}".encode(),)


@virtual
async def test_a_value_cannot_lead_out_of_its_template() -> None:
    """Behind a template's own text no value makes one of our keys; alone it is refused."""
    async with world(1) as w:

        @w.manager.locked("{value}")
        async def bare(value: str) -> None: ...

        @w.manager.locked("report:{value}")
        async def behind_text(value: str) -> list[bytes]:
            return [key for key in w.nodes[0].keys if key.startswith(b"redlock:report:")]

        for value in ("{meta}", "fence:{redlock:a}", ""):
            with pytest.raises(ValueError, match="name"):
                await bare(value)
            assert await behind_text(value) == [b"redlock:report:" + value.encode()]
        # The key of a counter of another manager, with the prefix `redlock:report:`.
        with pytest.raises(ValueError, match="reserved"):
            await behind_text("fence:{redlock:report:a}")
        with pytest.raises(ValueError, match="1024 bytes"):
            await behind_text("x" * 1024)
        assert locks(w.nodes[0]) == ()


@virtual
async def test_fastapi_takes_what_the_endpoint_takes() -> None:
    """Path parameters: decoded once, as text; a slash ends one unless its route allows it."""
    app = new_app()

    @app.post("/one/{value}", dependencies=[locked_endpoint("one:{value}")])
    async def one(value: str) -> str:
        return value

    @app.post("/tree/{value:path}", dependencies=[locked_endpoint("tree:{value}")])
    async def tree(value: str) -> str:
        return value

    async with site(app) as here:
        values = {*INJECTED, "a\0b", "a%2Fb", "é", "e\u0301"}
        for value in values:
            assert (await here.post(f"/one/{quote(value, safe='')}")).json() == value
        locked = {command.key for command in sent(here.world.nodes[0]) if command.kind == "acquire"}
        assert locked == {f"redlock:one:{value}".encode() for value in values}
        assert (await here.post("/one/a%2Fb")).status_code == 404, "the path is decoded before it is routed"
        assert (await here.post("/tree/a/b%2Fc")).json() == "a/b/c"
