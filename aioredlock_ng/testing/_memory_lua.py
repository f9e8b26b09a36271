"""Lua for masters in memory: the shipping scripts, run by Lua 5.1, as servers run them.

What a script calls is in `_memory_commands`.  Numbers, nil and errors are converted as a server does it, on
their way in and out.  One Lua serves all masters of the process: a script keeps nothing, and sets no global.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

from ._memory_commands import COMMANDS
from ._memory_data import CommandError, MemoryProcess

_SCRIPTS_KEPT: Final = 256

_EXACT: Final = 10**17
"""Lua's whole numbers below it are written without an exponent."""

_PRELUDE: Final = resources.files(__package__).joinpath("_memory_prelude.lua")


_making = threading.Lock()
"""Held while Lua is made: two threads must not make two of it, whose scripts cannot call each other."""

_forks = 0
"""The number of forks that led to this process: each makes a new Lua."""


def _lua() -> Any:
    """Return what is shared by all masters: Lua, and the functions of its prelude."""
    with _making:
        return _made()


@cache
def _made() -> Any:
    try:
        from lupa.lua51 import LuaRuntime, lua_type
    except ImportError as error:
        raise ImportError(
            "masters in memory run this package's Lua scripts, by lupa: pip install 'aioredlock_ng[testing]'",
            name="lupa",
        ) from error
    lua = LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    return (lua, lua_type, *lua.execute(_PRELUDE.read_bytes()))


@lru_cache(maxsize=_SCRIPTS_KEPT)
def compiled(source: bytes) -> Any:
    """Compile a script to a function of Lua; one that is none is refused as a server refuses it."""
    _, _, compile_, *_ = _lua()
    made = compile_(source)
    if isinstance(made, tuple):
        raise CommandError(f"ERR Error compiling script (new function): {made[1].decode()}")
    return made


def _begin_again() -> None:
    """Have a forked child make a Lua of its own: a thread of the parent may be inside the one that it has."""
    global _making, _forks
    _making, _forks = threading.Lock(), _forks + 1
    _made.cache_clear()
    compiled.cache_clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_again)


class Commands:
    """The commands of one master, which its scripts call by ``redis``.

    Raises:
        ImportError: lupa is not installed.
    """

    __slots__ = ("_forks", "_lua_type", "_process", "_redis", "_run")

    def __init__(self, process: MemoryProcess) -> None:
        # Lua must not own the process that owns this: nothing would find that circle.
        self._process = weakref.ref(process)
        self._bind()

    def _bind(self) -> None:
        lua, self._lua_type, _, bind, self._run = _lua()
        self._redis = bind(_executing(self._process, lua.table_from))
        self._forks = _forks

    def run(self, script: Any, keys: int, words: tuple[bytes, ...]) -> Any:
        """Run a script, of which the first `keys` words are the keys; return its reply.

        Raises:
            CommandError: the reply is an error.
        """
        if self._forks != _forks:  # a master that was made before the fork
            self._bind()
        error, status, is_array, *values = self._run(script, self._redis, keys, *words)
        if error is not None:
            raise CommandError(error.decode())
        if status is not None:
            return status.decode()
        return self._array(values) if is_array else self._reply(values[0])

    def _reply(self, value: Any) -> Any:
        """Convert what a script returned, or a part of it."""
        kind = type(value)
        if kind is bytes or kind is int:
            return value
        if kind is float:
            return int(value)
        if value is None or value is False:
            return None
        if value is True:
            return 1
        assert self._lua_type(value) == "table", "scripts return data"
        return self._array(value[place] for place in range(1, len(value) + 1))

    def _array(self, values: Any) -> list[Any]:
        """Convert the parts of an array, which ends before the first nil."""
        reply = []
        for value in values:
            if value is None:
                break
            reply.append(value if type(value) is bytes else self._reply(value))
        return reply


def _executing(process: Callable[[], MemoryProcess | None], table: Callable[..., Any]) -> Callable[..., Any]:
    """Return what executes one command of a script; an error is a table, as ``redis.pcall`` returns it."""
    statuses = {"OK": table({b"ok": b"OK"})}

    def executed(verb: bytes, *words: Any) -> Any:
        command = COMMANDS.get(verb)
        if command is None:
            return table({b"err": b"ERR Unknown Redis command called from script"})
        try:
            reply = command(process(), *[word if type(word) is bytes else _text(word) for word in words])
        except CommandError as error:
            return table({b"err": str(error).encode()})
        return converted(reply)

    def converted(reply: Any) -> Any:
        kind = type(reply)
        if kind is bytes or kind is int:
            return reply
        if reply is None:
            return False
        if kind is list:
            return table([part if type(part) is bytes else converted(part) for part in reply])
        return statuses.get(reply) or table({b"ok": reply.encode()})

    return executed


def _text(number: float) -> bytes:
    """Write a number as a server does that gets it from a script."""
    return b"%d" % number if type(number) is int and abs(number) < _EXACT else b"%.17g" % number
