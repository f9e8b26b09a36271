"""Clients that are paused, that are cancelled while nodes come and go, or that are given the wrong nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng import ConfigurationError, Lock, LockError, LockManager, RetryPolicy
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, PATIENCE, all_up, no_key_left, python, quiet
from tests.faults.accounts import GUARDED, filled
from tests.faults.disturber import Disturber
from tests.faults.two_turns import two_turns
from tests.servers import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes and sockets in /proc")

HOLDER: Final = Path(__file__).with_name("paused_holder.py")
EXAMPLES: Final = Path(__file__).parents[2] / "examples"
TTL: Final = 1.2
TICK: Final = 0.25  # seconds: how often the watchdog looks at a clock that goes on during suspend (R2)


# -- pauses ----------------------------------------------------------------------------------------


async def stopped(process: asyncio.subprocess.Process) -> None:
    """Wait until a process has stopped itself."""
    status = Path(f"/proc/{process.pid}/stat")
    await eventually(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", what="it has stopped")


STOPPED: Final = ("freeze", "suspend")  # how a process stands still that another one has to wake


@pytest.mark.parametrize("how", ["freeze", "suspend", "block", "collect"])
async def test_a_holder_is_paused(
    how: str, nodes3: LocalNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B gets the lock when A's time is over; A sees that at once, and what it writes is refused."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    path = str(tmp_path / "bank.sqlite")
    account = GUARDED["sqlite"](path)
    arguments = (how, str(TTL), path, ",".join(nodes3.urls))
    with filled("sqlite", path):
        async with LockManager(nodes3.urls) as manager, python(str(HOLDER), *arguments) as a:
            await a.said("inside", within=3 * PATIENCE)  # a million objects take their time
            if how in STOPPED:
                await stopped(a.process)
            async with manager.lock("account", blocking_timeout=PATIENCE) as by_b:
                assert await account.write(110, by_b.fence)
            if how in STOPPED:
                a.process.send_signal(signal.SIGCONT)
            a.go()
            out, errors = await a.ended()
            assert a.process.returncode == 0, errors
        assert await account.read(by_b.fence) == 110

    saw = json.loads(out)
    print(saw)
    assert saw["wrote"]
    assert not saw["held"], "without any help of the loop"
    assert "left" not in saw, "its block ends in LockLostError"
    assert saw["cancelled_after"] < TICK + ALLOWANCE
    assert not saw["wrote_again"]
    assert saw["fence"] < by_b.fence
    assert saw["paused"] - TICK - 0.3 < saw["stall"] < saw["paused"] + TICK + ALLOWANCE
    assert saw["suspended"] == pytest.approx(saw["paused"] if how == "suspend" else 0.0, abs=0.3)


# -- cancellations ---------------------------------------------------------------------------------

CANCELLATIONS: Final = 400
FAULTS: Final = 9
AT_ONCE: Final = 20


async def test_cancellations_while_nodes_come_and_go(nodes5: LocalNodes) -> None:
    """Wherever hundreds of them strike: no key, no task, no socket and no warning is left."""
    seed = random.randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)
    disturber = Disturber(nodes5, draw, ("freeze", "restart", "disconnect"))
    struck = 0
    sockets = len(open_sockets())

    async def cancel_some(manager: LockManager, number: int) -> None:
        nonlocal struck
        while struck < CANCELLATIONS or disturber.did.total() < FAULTS:
            name = draw.choice((f"own:{number}", "contended"))
            task = asyncio.create_task(use(manager.lock(name, ttl=60.0)))
            await asyncio.sleep(draw.expovariate(1 / 0.005))
            task.cancel()
            await asyncio.wait((task,))
            struck += task.cancelled()
            if not task.cancelled() and (error := task.exception()) is not None:
                assert isinstance(error, LockError)

    async def use(lock: Lock) -> None:
        async with lock:
            await asyncio.sleep(draw.uniform(0.0, 0.01))

    async with quiet():
        async with LockManager(nodes5.urls, retry=RetryPolicy(base=0.001, cap=0.01)) as manager:
            idle = asyncio.all_tasks()
            disturbing = asyncio.create_task(disturber.disturb())
            await asyncio.gather(*(cancel_some(manager, number) for number in range(AT_ONCE)))
            disturbing.cancel()
            await asyncio.wait((disturbing,))
            await all_up(manager)
            await no_key_left(nodes5.urls, within=PATIENCE)
            assert asyncio.all_tasks() == idle
            assert (manager.statistics().held, manager.statistics().waiting) == (0, 0)
            async with manager.lock("contended", blocking_timeout=PATIENCE) as lease:
                lease.check()
        await eventually(lambda: len(open_sockets()) == sockets, what="every socket is closed")
    print(f"{struck} cancelled; {dict(disturber.did)}")
    assert disturber.did.total() >= FAULTS


def open_sockets() -> list[str]:
    """Return this process's sockets."""
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.append(str(fd.readlink()))
    return [target for target in found if target.startswith("socket:")]


# -- the wrong nodes -------------------------------------------------------------------------------


async def test_another_node_list(nodes5: LocalNodes) -> None:
    """A client that names three of five gets an error, no lock, and disturbs no holder or waiter."""
    async with quiet(), two_turns(nodes5.urls, ttl=TTL, restart_quarantine=TTL) as two:
        wrong = LockManager(nodes5.urls[:3], ttl=TTL, restart_quarantine=TTL)
        with pytest.raises(ConfigurationError, match="5 nodes"):
            await wrong.start()
        with pytest.raises(ConfigurationError, match="5 nodes"):
            await wrong.lock("another", blocking_timeout=PATIENCE).acquire()
        await wrong.aclose()
        await two.a.outlives(TTL / 2)
        assert not two.b.inside.is_set()
        await two.recovered()
        assert two.a.lost is None
