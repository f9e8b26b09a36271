"""Each kind of lock is offered wherever locks are: one table says how, and fails for a kind that is missing.

Managers, decorators, web frameworks, the command, the bypass, the names in surveys, docs and typing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.__main__ import main
from aioredlock_ng._kinds import KINDS
from aioredlock_ng.contrib import aiohttp, fastapi
from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import bypass
from tests.behaviour.tools import Recorder
from tests.environments.interpreters import ROOT
from tests.unit.tasks import virtual
from tests.unit.worlds import world

DESCRIBES = re.compile(r"\b(Sync)?(Lock|ReadWriteLock|Election)\b")
"""The annotation of a method that describes a lock of some kind."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """The way to a lock of a kind; elections have no decorators and no option of the command."""

    method: str
    """Of both managers."""
    page: str
    """Of the docs."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of that method."""
    then: str = ""
    """The method of its result that describes the lock."""
    decorated: Mapping[str, Any] | None = field(default_factory=dict)
    """Options of `locked`: decorators of both managers, FastAPI, aiohttp."""
    run: str = ""
    """Option of `aioredlock-ng run`."""


WAYS: Mapping[str, Way] = {
    "mutex": Way(method="lock", page="locks.md"),
    "fair": Way(
        method="lock", page="fair-locks.md", options={"fair": True}, decorated={"fair": True}, run="--fair"
    ),
    "read": Way(
        method="rwlock", page="read-write.md", then="read", decorated={"mode": "read"}, run="--shared"
    ),
    "write": Way(
        method="rwlock", page="read-write.md", then="write", decorated={"mode": "write"}, run="--exclusive"
    ),
    "semaphore": Way(
        method="semaphore",
        page="semaphores.md",
        options={"permits": 2},
        decorated={"permits": 2},
        run="--permits",
    ),
    "leader": Way(method="election", page="elections.md", then="campaign", decorated=None),
}

each_kind = pytest.mark.parametrize("kind", WAYS)
each_decorated = pytest.mark.parametrize(
    "kind", [kind for kind, way in WAYS.items() if way.decorated is not None]
)


def of(manager: Any, kind: str) -> Any:
    """Describe a lock of a kind."""
    way = WAYS[kind]
    described = getattr(manager, way.method)("x", **way.options)
    return getattr(described, way.then)() if way.then else described


def test_each_kind_has_a_way() -> None:
    """A new kind is in `KINDS`, with its own letter, and the table has each method that describes locks."""
    assert WAYS.keys() == {kind.name for kind in KINDS}
    assert len({kind.letter for kind in KINDS}) == len(KINDS)
    for manager in (LockManager, SyncLockManager):
        describing = {
            name
            for name, method in vars(manager).items()
            if not name.startswith("_")
            and DESCRIBES.search(str(getattr(method, "__annotations__", {}).get("return")))
        }
        assert describing == {way.method for way in WAYS.values()}


@each_kind
async def test_a_manager_has_it_and_surveys_name_it(kind: str) -> None:
    """As its leases and events do."""
    async with world() as w, of(w.manager, kind):
        assert [held.kind for held in w.manager.statistics().leases] == [kind]
        (lock,) = await w.manager.survey()
        assert (lock.kind, {node.kind for node in await w.manager.inspect("x")}) == (kind, {kind})


@each_kind
def test_threads_have_it(kind: str) -> None:
    """Under the bypass, too; and as a decorator."""
    way, recorder = WAYS[kind], Recorder()
    with bypass(), SyncLockManager(["redis://192.0.2.1"], hooks=[recorder]) as manager:
        with of(manager, kind):
            pass
        if way.decorated is not None:
            manager.locked("x", **way.decorated)(lambda: None)()
    assert {event.kind for event in recorder.events} == {kind}


@each_decorated
@virtual
async def test_a_decorator_has_it(kind: str) -> None:
    """By an option, unless it is the mutex."""
    recorder = Recorder()
    manager = LockManager(["redis://192.0.2.1"], hooks=[recorder])

    @manager.locked("x", **(WAYS[kind].decorated or {}))
    async def work() -> None:
        pass

    with bypass():
        await work()
    assert {event.kind for event in recorder.events} == {kind}


@each_decorated
def test_web_frameworks_take_its_options(kind: str) -> None:
    """An option that they do not know is a TypeError at once."""
    for framework in (fastapi, aiohttp):
        framework.locked("x", **(WAYS[kind].decorated or {}))


@each_decorated
def test_the_command_has_it(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`cli/test_run_kinds.py` shows that it works."""
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert re.search(WAYS[kind].run + r"\b", capsys.readouterr().out)


@each_kind
def test_docs_and_typing_have_it(kind: str) -> None:
    """Its page shows its method and its options; type checkers read the method of both managers."""
    way = WAYS[kind]
    page = (ROOT / "docs" / "how-to" / way.page).read_text()
    for option, value in {**way.options, **(way.decorated or {})}.items():
        assert f"{option}=" in page, value
    texts = [page, *((ROOT / "tests" / "typing" / file).read_text() for file in ("api.py", "sync_api.py"))]
    for text in texts:
        assert f".{way.method}(" in text
        assert not way.then or f".{way.then}(" in text
