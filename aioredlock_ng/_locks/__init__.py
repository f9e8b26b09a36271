"""Locks, leases, elections and decorators, as users hold them; none of them can be copied."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from types import CodeType, FrameType
from typing import Any, Final, NoReturn, TypeVar, final

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])

_USES: Final = {
    "__await__": "awaited",
    "__enter__": "entered with `with`",
    "__exit__": "entered with `with`",
    "__aenter__": "entered with `async with`",
    "__aexit__": "entered with `async with`",
}

WITH: Final = ("__enter__", "__exit__")

ASYNC_WITH: Final = ("__aenter__", "__aexit__")


def instead(write: str, *uses: str) -> Callable[[type[T]], type[T]]:
    """Have the objects of a class say what to write instead, where they are used in one of these ways.

    The methods are added by a decorator, so that type checkers refuse these uses as they did.
    """

    def refusal(use: str) -> Callable[..., NoReturn]:
        def refuse(self: object, *_: object) -> NoReturn:
            name = type(self).__name__
            article = "an" if name[0] in "AEIOU" else "a"
            raise TypeError(f"{article} {name} cannot be {_USES[use]}: write {write}")

        return refuse

    def add(cls: type[T]) -> type[T]:
        for use in uses:
            setattr(cls, use, refusal(use))
        return cls

    return add


@final
class _Calling(Coroutine[Any, Any, T_co]):
    """The coroutine of a call that is to be awaited, with words for code that enters it instead."""

    __slots__ = ("_coroutine", "_write")

    def __init__(self, coroutine: Coroutine[Any, Any, T_co], write: str) -> None:
        self._coroutine, self._write = coroutine, write

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:  # such as `cr_frame`, which asyncio shows of a task
        return getattr(self._coroutine, name)

    def __enter__(self) -> NoReturn:
        self.close()  # so that Python does not warn, too, that it was never awaited
        raise TypeError(f"{self.__qualname__}() is to be awaited, not entered: write {self._write}")

    __exit__ = __aenter__ = __aexit__ = __enter__


def awaited(write: str) -> Callable[[F], F]:
    """Have the coroutines of an async method say what to write instead of entering them."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> _Calling[Any]:
            return _Calling(method(*args, **kwargs), write)

        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(call)
        else:  # so that `unittest.mock`, say, takes it for what it is
            call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001
        return call  # type: ignore[return-value]  # to type checkers it is the method

    return decorate


class Uncopied:
    """Refuses to be copied or pickled, with a message."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse: `copy`, `deepcopy` and `pickle` come here."""
        raise TypeError(
            f"a {type(self).__name__} depends on the connections of this process and cannot be copied or "
            "pickled: make one in each process that uses it, from the same node URLs and names"
        )


_GENERATORS: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def generator_of(frame: FrameType) -> tuple[int, CodeType] | None:
    """Return what stands for the generator of a frame; None for other code, whose frames tell nothing.

    A helper that enters for its caller has another frame by the time it leaves.  And the frame itself would
    outlive a generator that is dropped.
    """
    code = frame.f_code
    return (id(frame), code) if code.co_flags & _GENERATORS else None
