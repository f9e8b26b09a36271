"""Promises of `locked` in FastAPI and aiohttp: every kind of lock, every answer, every refusal."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from aioredlock_ng import LockManager, LossReason, WouldDeadlockError
from aioredlock_ng.events import Acquired
from aioredlock_ng.testing import lose
from tests.behaviour.tools import Recorder
from tests.contrib.sites import SITES, Answer, Site
from tests.contrib.stay import Stay
from tests.servers import eventually
from tests.unit.traces import locks
from tests.unit.worlds import states

TAKEN = {"detail": "locked by another request"}
MISCONFIGURED = "locking is unavailable: its nodes or names are misconfigured"
LOST = Answer(503, {"detail": "the lock was lost"}, "1")


@pytest.fixture(params=SITES)
def new(request: pytest.FixtureRequest) -> Callable[..., Site]:
    """Return what makes a site of one of the frameworks."""
    return SITES[request.param]


@pytest.fixture
def site(new: Callable[..., Site]) -> Site:
    """Make a site that is not open."""
    return new()


async def kind(lease: Any, manager: LockManager) -> object:
    """Tell the kind of the handler's lock as the nodes tell it, its mode, and whether it has a slot."""
    lease.check()
    return [(await manager.inspect(lease.name))[0].kind, lease.mode, lease._holding.slot is not None]


async def done(*_: object) -> str:
    """Do nothing."""
    return "done"


async def own_lock(_: object, manager: LockManager) -> str:
    """Take a lock without `locked`."""
    async with manager.lock("secret-1", blocking=False):
        return "done"


# -- kinds of locks ------------------------------------------------------------------------------------


def pool(manager: LockManager) -> Any:
    """Describe permits, of which there are two."""
    return manager.semaphore("job:1", permits=2)


@pytest.mark.parametrize(
    ("options", "others", "beside", "tells"),
    [
        pytest.param({}, lambda m: [m.lock("job:1")], 0, ["mutex", None, False], id="mutex"),
        pytest.param({"fair": True}, lambda m: [m.lock("job:1")], 0, ["fair", None, False], id="fair"),
        pytest.param(
            {"mode": "read"},
            lambda m: [m.rwlock("job:1").read(), m.rwlock("job:1").write()],
            1,
            ["read", "read", False],
            id="read",
        ),
        pytest.param(
            {"mode": "write"}, lambda m: [m.rwlock("job:1").read()], 0, ["write", "write", False], id="write"
        ),
        pytest.param(
            {"permits": 2},
            lambda m: [pool(m), pool(m)],
            1,
            ["semaphore", None, True],
            id="permits",
        ),
    ],
)
async def test_every_kind_of_lock(options: Any, others: Any, beside: int, tells: Any, site: Site) -> None:
    """A request is served beside some others, and then learns when to come back; other names are free."""
    site.route("/{id}", kind, "job:{id}", blocking=False, **options)
    async with site.open():
        assert await site.ask("/1") == Answer(200, tells)
        holders = others(site.manager)
        for lock in holders[:beside]:
            async with lock:
                assert await site.ask("/1") == Answer(200, tells)
        async with contextlib.AsyncExitStack() as stack:
            for lock in holders if "permits" in options else holders[-1:]:
                await stack.enter_async_context(lock)
            status, body, retry_after = await site.ask("/1")
            assert (status, 1 <= int(retry_after or 0) <= 10) == (409, True)
            if "permits" in options:
                assert (body, retry_after) == ({"detail": "all permits are taken"}, "1"), "no lease's end"
            else:
                assert body == TAKEN
            assert await site.ask("/2") == Answer(200, tells)


async def test_several_names(site: Site) -> None:
    """A request holds what its templates and functions name, or nothing; two may be the same."""

    async def names(lease: Any, manager: LockManager) -> Any:
        return lease.names

    site.route("/{a}/{b}", names, "x:{a}", site.by_query, "x:{b}", blocking=False)
    async with site.open():
        assert await site.ask("/1/2?name=q") == Answer(200, ["q", "x:1", "x:2"])
        assert await site.ask("/1/1?name=x:1") == Answer(200, ["x:1"])
        async with site.manager.lock("q"):
            assert (await site.ask("/1/2?name=q")).status == 409
            assert len(locks(site.world.nodes[0])) == 1
        assert (await site.ask("/1/2?name=")).status == 422


async def test_a_lock_that_stays_taken_for_a_while(site: Site) -> None:
    """The same request is not served twice within it (R34)."""
    site.route("/{id}", done, "job:{id}", at_least=60, blocking=False)
    async with site.open():
        assert [(await site.ask(path)).status for path in ("/1", "/2")] == [200, 200]
        status, _, retry_after = await site.ask("/1")
        assert (status, 10 < int(retry_after or 0) <= 60) == (409, True)
        site.world.vacate("job:1")
        site.world.vacate("job:2")


async def test_a_handler_goes_in_again(site: Site) -> None:
    """With ``reentrant=True`` a block of the handler's own has the handler's lease (R27)."""

    async def again(lease: Any, manager: LockManager) -> bool:
        async with manager.lock(lease.name, reentrant=True) as inner:
            return inner.fence == lease.fence and manager.statistics().acquired == 1

    site.route("/{id}", again, "job:{id}", reentrant=True)
    async with site.open():
        assert await site.ask("/7") == Answer(200, True)


async def test_requests_take_turns(site: Site) -> None:
    """Of one key never two are inside, and all get through; with a `blocking_timeout` none waits longer."""
    inside, most = 0, 0

    async def stay(*_: object) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.002)
        inside -= 1

    site.route("/turn", stay, "turn", blocking_timeout=20)
    site.route("/soon", done, "turn", blocking_timeout=0.1)
    async with site.open():
        answers = await asyncio.gather(*(site.ask("/turn") for _ in range(20)))
        assert ({answer.status for answer in answers}, most) == ({200}, 1)
        site.world.occupy("turn", 60)
        assert (await site.ask("/soon"))[:2] == (409, TAKEN)
        site.world.vacate("turn")
        assert (await site.ask("/soon")).status == 200


async def test_another_status(site: Site) -> None:
    """`status_code` and `retry_after` are that lock's alone: one that its handler takes is answered 409."""
    site.route("/", own_lock, "outer", blocking=False, status_code=423, retry_after=7.5)
    async with site.open():
        async with site.manager.lock("outer"):
            assert await site.ask("/") == Answer(423, TAKEN, "8")
        async with site.manager.lock("secret-1"):
            assert (await site.ask("/"))[:2] == (409, TAKEN)


# -- answers -------------------------------------------------------------------------------------------


async def taken(site: Site) -> None:
    """Let another request hold the lock."""
    site.world.occupy("secret-1", 60.0)


async def taken_for_ever(site: Site) -> None:
    """Let a key be there that does not expire."""
    site.world.occupy("secret-1", None)


async def no_quorum(site: Site) -> None:
    """Let two of three nodes be down."""
    for node in site.world.nodes[:2]:
        node.crash()


async def quarantined(site: Site) -> None:
    """Let two of three nodes come back without their memory."""
    for node in site.world.nodes[:2]:
        node.restart()
    await eventually(lambda: states(site.world).count("quarantined") == 2, what="the loss is noticed")


async def misconfigured(site: Site) -> None:
    """Let an operator claim one of the nodes for another list."""
    async with contextlib.aclosing(LockManager(site.world.nodes[:1], holder="secret-operator")) as other:
        await other.init(force=True)
    await eventually(lambda: site.manager.statistics().conflict is not None, what="it is noticed")


async def something_else(site: Site) -> None:
    """Let another program have a list under the lock's key."""
    for node in site.world.nodes[:2]:
        node.set(b"redlock:secret-1", None, 60.0)


async def closed(site: Site) -> None:
    """Let the manager be closed, as while the application shuts down."""
    await site.manager.aclose()


@pytest.mark.parametrize("path", ["/locked/{n}", "/own/{n}"])
@pytest.mark.parametrize(
    ("break_it", "status", "detail", "retry_after", "logged"),
    [
        (taken, 409, TAKEN["detail"], r"60|5\d", None),
        (taken_for_ever, 409, TAKEN["detail"], "None", None),
        (no_quorum, 503, "locking is unavailable", "1", "memory-.*memory-.*memory-"),
        (
            quarantined,
            503,
            r"locking is unavailable for another (\d+) s: nodes may have lost .* \(restart quarantine\)",
            r"6[01]|5\d",
            "restart quarantine.*restart quarantine",
        ),
        (
            misconfigured,
            503,
            MISCONFIGURED,
            "None",
            "node memory-.*: it belongs to a quorum of 1 node, this client has 3; .* secret-operator at 20",
        ),
        (something_else, 503, MISCONFIGURED, "None", "holds a list, which is not a lock"),
        (closed, 503, "locking is unavailable", "1", None),
    ],
)
async def test_each_error_has_its_answer(
    *,
    break_it: Any,
    status: int,
    detail: str,
    retry_after: str,
    logged: str | None,
    path: str,
    new: Callable[..., Site],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The same for locks of `locked` and a handler's own; what is wrong with nodes is one line in the log."""
    site = new(restart_quarantine=60)
    site.route("/locked/{n}", done, "secret-{n}", blocking=False)
    site.route("/own/{n}", own_lock)
    async with site.open():
        await break_it(site)
        caplog.clear()
        answer = await site.ask(path.replace("{n}", "1"))
        site.world.vacate("secret-1")
    assert (answer.status, list(answer.body)) == (status, ["detail"])
    match = re.fullmatch(detail, answer.body["detail"])
    assert match
    assert re.fullmatch(retry_after, str(answer.retry_after))
    assert not match.groups() or match[1] == answer.retry_after
    lines = [record for record in caplog.records if path in record.getMessage()]
    assert [(line.name, line.levelno) for line in lines] == [("aioredlock_ng", logging.WARNING)] * bool(
        logged
    )
    assert logged is None or re.search(logged, lines[0].getMessage())
    assert "\n" not in "".join(line.getMessage() for line in lines)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        *((how, LossReason.REFUSED) for how in ("locked", "own", "raise", "manager raises")),
        ("locked", LossReason.EXPIRED),
        ("locked", None),
        ("own", None),
    ],
)
async def test_a_lost_lock(how: str, reason: LossReason | None, new: Callable[..., Site]) -> None:
    """Its handler is cancelled, or goes on where that is asked for; its answer is never the client's (R7)."""
    site, stay = new(**({"on_lost": "raise"} if how == "manager raises" else {})), Stay()

    async def inside(*_: object) -> str:
        await stay()
        return "done"

    async def own(_: object, manager: LockManager) -> str:
        async with manager.lock("x"):
            return await inside()

    if how == "own":
        site.route("/", own)
    else:
        site.route("/", inside, "x", **({"on_lost": "raise"} if how == "raise" else {}))
    async with site.open():
        asking = asyncio.create_task(site.ask("/"))
        await stay.entered.wait()
        if reason is None:
            await site.manager.aclose()
        else:
            lose(site.manager, "x", reason)
        if "raise" in how:
            stay.leave.set()
        assert await asking == LOST
    (ended_by,) = stay.ended_by
    assert (ended_by is None) if "raise" in how else isinstance(ended_by, asyncio.CancelledError)


async def test_a_lost_lock_that_the_handler_notices(site: Site) -> None:
    """`lease.check()` in a handler ends in the same 503."""

    async def check(lease: Any, manager: LockManager) -> None:
        lose(manager, "x")
        lease.check()

    site.route("/", check, "x", on_lost="raise")
    async with site.open():
        assert await site.ask("/") == LOST


async def test_errors_of_the_handler(site: Site) -> None:
    """The errors of a handler are not touched: its own answers and its bugs."""

    async def fail(lease: Any, _: LockManager) -> None:
        raise ZeroDivisionError if lease.name == "job:bug" else site.missing

    site.route("/{id}", fail, "job:{id}")
    async with site.open():
        assert [(await site.ask(path)).status for path in ("/other", "/bug")] == [404, 500]
    assert [type(error) for error in site.errors] == [ZeroDivisionError]


async def its_own_lock_again(lease: Any, manager: LockManager) -> None:
    """Wait for a lock that the request holds."""
    async with manager.lock(lease.name):
        raise AssertionError("locks are not reentrant")


async def number(*_: object) -> Any:
    """Be a key that is no text."""
    return 42


def no_text(name: Any = "") -> Any:
    """Be a key that is no text, in either framework."""
    return 42


@pytest.mark.parametrize(
    ("body", "lock", "options", "error", "match"),
    [
        pytest.param(its_own_lock_again, "x", {}, WouldDeadlockError, "", id="a deadlock of its own"),
        pytest.param(
            done, "x", {"ttl": 0.05}, ValueError, "node_timeout must be shorter than the ttl", id="ttl"
        ),
        pytest.param(done, "{order_id}", {}, RuntimeError, r"'{order_id}'.*order_id.*/\{id\}", id="field"),
        pytest.param(done, no_text, {}, TypeError, "42", id="key"),
    ],
)
async def test_a_bug_of_the_application_is_no_answer(
    *, body: Any, lock: Any, options: Any, error: type[Exception], match: str, site: Site
) -> None:
    """Its client is not asked to try again: 500, and the error says what is wrong."""
    site.route("/{id}", body, lock, **options)
    async with site.open():
        assert (await site.ask("/1")).status == 500
    (raised,) = site.errors
    assert isinstance(raised, error)
    assert re.search(match, str(raised))


@pytest.mark.parametrize(
    "name", ["", "n" * 1025, "ä" * 513, "fence:{x", "{meta}x"], ids=lambda name: name[:9]
)
async def test_a_name_that_a_client_made_up(name: str, site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """A name that no lock can have is the client's fault, and nothing for the log."""
    site.route("/", done, site.by_query)
    async with site.open():
        caplog.clear()
        assert (await site.ask(f"/?name={name}"))[::2] == (422, None)
        assert (await site.ask(f"/?name={'x' * 1024}")).status == 200
    assert (caplog.records, site.errors) == ([], [])


async def test_the_label(new: Callable[..., Site]) -> None:
    """Metrics see the template or the key's name, never the name that a client made."""
    recorder = Recorder()
    site = new(hooks=[recorder])
    site.route("/template/{n}", done, "order:{n}")
    site.route("/key", done, site.by_query)
    site.route("/partial", done, functools.partial(site.by_query))
    site.route("/both/{n}", done, "order:{n}", site.by_query)
    site.route("/given", done, "x", label="given")
    async with site.open():
        for path in ("/template/7", "/key?name=a", "/partial?name=a", "/both/7?name=a", "/given"):
            assert (await site.ask(path)).status == 200
    labels = [event.label for event in recorder.events if isinstance(event, Acquired)]
    key = site.by_query.__qualname__
    assert labels == ["order:{n}", key, key, f"order:{{n}}, {key}", "given"]


# -- what cannot work ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "options", "error", "match"),
    [
        ("order:{id", {}, ValueError, "expected '}'"),
        ("order:}", {}, ValueError, "Single '}'"),
        ("order:{}", {}, ValueError, "needs the name of a parameter"),
        ("order:{0}", {}, ValueError, "needs the name of a parameter"),
        ("", {}, ValueError, "must not be empty"),
        ("fence:{{1}}", {}, ValueError, "reserved"),
        ("n" * 1025, {}, ValueError, "1024 bytes"),
        (42, {}, TypeError, "got 42"),
        (("a:{id}", "n" * 1025), {}, ValueError, "1024 bytes"),
        (("a:{id}", 42), {}, TypeError, "got 42"),
        ((), {}, ValueError, "at least one name"),
        ((number, number), {"fair": True}, ValueError, "a fair lock has one name"),
        (
            ("a:{id}", "b:{id}"),
            {"permits": 2},
            ValueError,
            r"a semaphore has one name, got \('a:id', 'b:id'\)",
        ),
        ("x", {"ttl": -1}, ValueError, "ttl must be positive seconds, got -1"),
        (number, {"ttl": -1}, ValueError, "ttl must be positive seconds, got -1"),
        ("x", {"ttl": "1"}, TypeError, "'1'"),
        ("x", {"blocking": False, "blocking_timeout": 1}, ValueError, "blocking=False"),
        ("x", {"on_lost": "shrug"}, ValueError, "on_lost must be .*'shrug'"),
        ("x", {"extension": 1}, TypeError, "ExtensionPolicy"),
        ("x", {"tttl": 3}, TypeError, "tttl"),
        ("x", {"mode": "both"}, ValueError, "mode must be 'read', 'write' or None, got 'both'"),
        (number, {"mode": "write", "at_least": 1}, TypeError, r"mode='write'.* unexpected .*'at_least'"),
        *(("x", {"status_code": n}, ValueError, f"400 to 599, got {n}") for n in (200, 399, 600)),
        *(
            ("x", {"retry_after": n}, ValueError, "retry_after must be a number of seconds above 0")
            for n in (0, -1, float("inf"), float("nan"))
        ),
    ],
)
def test_bad_input_fails_where_it_is_written(
    keys: Any, options: Any, error: type[Exception], match: str, new: Any
) -> None:
    """At import, not at the first request; with the value."""
    with pytest.raises(error, match=match):
        new.locked(*(keys if isinstance(keys, tuple) else (keys,)), **options)
