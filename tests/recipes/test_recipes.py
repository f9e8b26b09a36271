"""The programs of ``docs/recipes/``, run by the pages' commands, with the real libraries and servers."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing.local_nodes import initialise
from tests.behaviour.tools import keys
from tests.docs.pages import DOCS, blocks_of
from tests.docs.running import over
from tests.plugin.runs import AUTO, run
from tests.servers import Nodes, ask, free_port, required, until, without_quarantine_set

pytestmark = pytest.mark.timeout(180)

JOBS = 12
"""Deposits of 1 that are sent at once; without a lock some of them would be lost."""


class Recipe:
    """The programs of a page in a folder, and what was started of its commands."""

    def __init__(self, page: str, folder: Path, urls: list[str]) -> None:
        blocks = blocks_of(DOCS / "recipes" / f"{page}.md")
        self.python = [over(urls, block.source) for block in blocks if block.language == "python"]
        self.commands = [
            line for block in blocks if block.language == "sh" for line in block.source.splitlines()
        ]
        self.urls, self.store = urls[:3], urls[3]
        self._folder = folder
        scripts = Path(sys.executable).parent  # where the commands are
        self._environment = without_quarantine_set() | {
            "REDLOCK_URLS": ",".join(self.urls),
            "PYTHONPATH": str(folder),
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        }
        for block in blocks:
            if title := re.fullmatch(r'title="([\w.]+\.py)"', block.info):
                (folder / title[1]).write_text(over(urls, block.source))
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, command: str, *more: str) -> subprocess.Popen[bytes]:
        """Start a command of the page, which is ended with the test."""
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*shlex.split(command), *more],
                cwd=self._folder, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        return process

    def send(self, program: str) -> Any:
        """Run a program beside the page's, and return what it prints as JSON."""
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stderr}\n{self.log}"
        return json.loads(done.stdout)

    def in_store(self, *words: str) -> int:
        """Return a number that the page's programs keep."""
        return int(ask(self.store, *words) or 0)

    @property
    def log(self) -> str:
        """The output of the commands."""
        return (self._folder / "log").read_text() if self._started else ""

    def ends_well(self) -> None:
        """Every command that still runs ends at a SIGTERM, and no lock is left."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        for process in self._started:
            process.wait(60)
        assert keys(self.urls) == {}, self.log
        assert "Traceback" not in self.log, self.log

    def kill(self) -> None:
        """End what a failed test has left."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def open_recipe(shared_nodes: Nodes, tmp_path: Path) -> Iterator[Callable[..., Recipe]]:
    """Return a function that opens the recipe of a page, which needs modules that may be missing here."""
    opened: list[Recipe] = []

    def recipe(page: str, *modules: str) -> Recipe:
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing and "recipes" in required():
            pytest.fail(f"no {', '.join(missing)} (REDLOCK_REQUIRE names recipes)", pytrace=False)
        if missing:
            pytest.skip(f"no {', '.join(missing)}: pip install --group recipes")
        initialise(shared_nodes.urls[:3])
        opened.append(Recipe(page, tmp_path, shared_nodes.urls))
        return opened[-1]

    yield recipe
    for each in opened:
        each.kill()


def test_celery(open_recipe: Callable[..., Recipe]) -> None:
    """Deposits take turns; a task whose process was killed is run again when its lock has ended."""
    recipe = open_recipe("celery", "celery")
    recipe.start(recipe.commands[0], "--loglevel", "warning")
    balances = recipe.send(
        "import json, os, signal, time, tasks\n"
        "load = tasks.load.delay('a')\n"
        "while not (began := tasks.store.lrange('began:a', 0, -1)): time.sleep(0.05)\n"
        "os.kill(int(began[0]), signal.SIGKILL)\n"
        f"jobs = [tasks.deposit.delay(1, 1) for _ in range({JOBS})]\n"
        "balances = [job.get(timeout=60) for job in jobs]\n"
        "load.get(timeout=60)\n"
        "print(json.dumps(balances))"
    )
    assert sorted(balances) == list(range(1, JOBS + 1))
    first, second = ask(recipe.store, "LRANGE", "began:a", 0, -1)  # and no third time
    assert first != second
    until(lambda: keys(recipe.urls) == {}, "the locks are released")


def test_taskiq(open_recipe: Callable[..., Recipe]) -> None:
    """Deposits by two worker processes take turns."""
    recipe = open_recipe("taskiq", "taskiq", "taskiq_redis")
    recipe.start(recipe.commands[0])
    balances = recipe.send(
        "import asyncio, json, tasks\n"
        "async def main():\n"
        "    await tasks.broker.startup()\n"
        f"    sent = [await tasks.deposit.kiq(1, 1) for _ in range({JOBS})]\n"
        "    results = [await each.wait_result(timeout=60) for each in sent]\n"
        "    await tasks.broker.shutdown()\n"
        "    print(json.dumps([each.return_value for each in results]))\n"
        "asyncio.run(main())"
    )
    assert sorted(balances) == list(range(1, JOBS + 1))
    recipe.ends_well()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="arq's command needs the loop that asyncio gave up")
def test_arq(open_recipe: Callable[..., Recipe]) -> None:
    """Deposits by two workers take turns."""
    recipe = open_recipe("arq", "arq")
    for _ in range(2):
        recipe.start(recipe.commands[0])
    balances = recipe.send(
        "import asyncio, json, arq, worker\n"
        "async def main():\n"
        "    pool = await arq.create_pool(worker.WorkerSettings.redis_settings)\n"
        f"    jobs = [await pool.enqueue_job('deposit', 1, 1) for _ in range({JOBS})]\n"
        "    print(json.dumps([await job.result(timeout=60) for job in jobs]))\n"
        "asyncio.run(main())"
    )
    assert sorted(balances) == list(range(1, JOBS + 1))
    recipe.ends_well()


def test_apscheduler(open_recipe: Callable[..., Recipe]) -> None:
    """Two hosts with the same schedule: as many reports as times have come, and not twice as many."""
    recipe = open_recipe("apscheduler", "apscheduler")
    recipe.send(
        # Two of the times come before they are ended; one, where hosts take seconds to begin.
        "import asyncio, subprocess, sys, time\n"
        "time.sleep(4.1 - time.time() % 4)\n"
        "hosts = [subprocess.Popen([sys.executable, 'jobs.py']) for _ in range(2)]\n"
        "time.sleep(4 + 4 - 0.1 + 1.5)\n"
        "for host in hosts: host.kill()\n"
        "print(0)"
    )
    assert 1 <= recipe.in_store("GET", "reports") <= 2


def asked(url: str, method: str = "GET") -> list[int]:
    """Return the balances that `JOBS` requests at once are answered with."""

    async def ask_all() -> list[int]:
        async with httpx.AsyncClient(timeout=60) as client:
            answers = await asyncio.gather(*(client.request(method, url) for _ in range(JOBS)))
        assert {answer.status_code for answer in answers} <= {200, 201}
        return [answer.json()["balance"] for answer in answers]

    return sorted(asyncio.run(ask_all()))


def serves(url: str) -> bool:
    """Return whether a server listens there."""
    try:
        httpx.get(url)
    except httpx.TransportError:
        return False
    return True


def test_django(open_recipe: Callable[..., Recipe]) -> None:
    """Async and sync views under ASGI exclude each other; sync views work under WSGI."""
    recipe = open_recipe("django", "django", "gunicorn")
    asgi, wsgi = (f"127.0.0.1:{free_port()}" for _ in range(2))
    recipe.start(recipe.commands[0], "--port", asgi.partition(":")[2])
    recipe.start(recipe.commands[1], "--bind", wsgi, "--preload")
    for each in (asgi, wsgi):
        until(lambda each=each: serves(f"http://{each}/"), "it listens")

    async def both() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            pages = [f"http://{asgi}/{kind}/1" for kind in ("async", "sync")] * JOBS
            answers = await asyncio.gather(*(client.get(page) for page in pages))
        assert sorted(each.json()["balance"] for each in answers) == list(range(1, 2 * JOBS + 1))

    asyncio.run(both())
    assert asked(f"http://{wsgi}/sync/2") == list(range(1, JOBS + 1))
    recipe.ends_well()


def test_litestar(open_recipe: Callable[..., Recipe]) -> None:
    """Deposits take turns; an account that is taken answers 409."""
    recipe = open_recipe("litestar", "litestar")
    host = f"127.0.0.1:{free_port()}"
    recipe.start(recipe.commands[0], "--port", host.partition(":")[2])
    until(lambda: serves(f"http://{host}/"), "it listens")
    assert asked(f"http://{host}/accounts/1/deposit", "POST") == list(range(1, JOBS + 1))
    with SyncLockManager(recipe.urls) as manager, manager.lock("account:1"):
        answer = httpx.post(f"http://{host}/accounts/1/close")
    assert (answer.status_code, answer.headers["Retry-After"]) == (409, "1")
    recipe.ends_well()


def test_jupyter(open_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """The blocks run as the cells of one notebook, longer than their ttl, and its end releases the rest."""
    recipe = open_recipe("jupyter", "ipykernel", "nbclient")
    last = "kept = locks.lock('kept').acquire()\nprint('extended', lease.extensions > 0)"
    shorter = [each.replace("blocking_timeout=60", "ttl=2, blocking_timeout=60") for each in recipe.python]
    cells = json.dumps([*shorter, last])
    output = recipe.send(
        "import json, nbclient, nbformat.v4 as v4\n"
        f"book = v4.new_notebook(cells=[v4.new_code_cell(each) for each in {cells}])\n"
        "nbclient.NotebookClient(book, timeout=60, kernel_name='python3').execute()\n"
        "print(json.dumps([output for cell in book.cells for output in cell.outputs]))"
    )
    assert [each["text"] for each in output] == ["extended True\n"]
    recipe.ends_well()


def test_workers(open_recipe: Callable[..., Recipe]) -> None:
    """A SIGTERM ends the block: the lock is free long before its ttl has passed."""
    recipe = open_recipe("workers")
    started = [recipe.start(command) for command in recipe.commands]
    until(lambda: recipe.log.count("works") == len(started), "they hold their locks")
    for process in started:
        process.terminate()
    assert [process.wait(10) for process in started] == [128 + signal.SIGTERM] * 2
    recipe.ends_well()


def test_freezegun(open_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """All tests of the page pass, without a warning."""
    recipe = open_recipe("freezegun", "freezegun")
    (source,) = recipe.python
    (folder := tmp_path / "own").mkdir()
    done = run(folder, source, *AUTO)
    assert done.outcomes == {"passed": source.count("def test_")}, done.output


@pytest.mark.timeout(400)
def test_pyinstaller(open_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """The program runs as one file, with what the hook adds."""
    recipe = open_recipe("pyinstaller", "PyInstaller")
    assert recipe.start(recipe.commands[0], "--log-level", "ERROR").wait(300) == 0, recipe.log
    assert recipe.start(str(tmp_path / "dist" / "program")).wait(30) == 0, recipe.log
    assert recipe.log.endswith("has the lock True\n")
    recipe.ends_well()
