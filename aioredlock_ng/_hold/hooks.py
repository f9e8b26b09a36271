"""The hooks of one manager: checked when they are given, called when something happens."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, final

from .._log import report
from ..events import (
    Acquired,
    ClockStepped,
    Downgraded,
    Event,
    Extended,
    ExtensionsLow,
    GaveUp,
    Hooks,
    LoopStalled,
    Lost,
    Misconfigured,
    NodeChanged,
    NotExtended,
    Refused,
    Released,
    Waiting,
)

METHODS: Final[dict[type[Event], str]] = {
    Acquired: "on_acquired",
    Refused: "on_refused",
    Waiting: "on_waiting",
    GaveUp: "on_gave_up",
    Extended: "on_extended",
    NotExtended: "on_not_extended",
    Downgraded: "on_downgraded",
    ExtensionsLow: "on_extensions_low",
    Lost: "on_lost",
    Released: "on_released",
    NodeChanged: "on_node_changed",
    Misconfigured: "on_misconfigured",
    ClockStepped: "on_clock_stepped",
    LoopStalled: "on_loop_stalled",
}
"""Which method of a hook hears of which event."""

_NAMES: Final = frozenset(METHODS.values())


@final
class HookList:
    """The hooks of one manager.  A hook that raises is logged once and never affects a lock."""

    __slots__ = ("_attach", "_listeners", "_reported", "votes", "wanted")

    def __init__(self, hooks: Iterable[object]) -> None:
        self._listeners: dict[type[Event], list[tuple[object, Callable[[Any], object]]]] = {
            event: [] for event in METHODS
        }
        self._attach: list[tuple[object, Callable[[Any], object]]] = []
        for hook in _listed(hooks):
            _check_names(hook)
            if (attach := _method(hook, "attach")) is not None:
                self._attach.append((hook, attach))
            for event, name in METHODS.items():
                if (method := _method(hook, name)) is not None:
                    self._listeners[event].append((hook, method))
        self._reported: set[int] = set()
        self.wanted = frozenset(event for event, methods in self._listeners.items() if methods)
        """The events that hooks listen for; others need not be made."""

        self.votes = any(getattr(hook, "wants_votes", True) for hook, _ in self._listeners[Acquired])
        """Whether a hook wants to know what the nodes said to an acquire."""

    def attach(self, statistics: Callable[[], object]) -> None:
        """Tell the hooks that want to know of the manager that has them (`Hooks.attach`)."""
        self._call(self._attach, statistics)

    def tell(self, event: Event) -> None:
        """Call the hooks that listen for this event."""
        self._call(self._listeners[type(event)], event)

    def _call(self, methods: list[tuple[object, Callable[[Any], object]]], what: object) -> None:
        for hook, method in methods:
            try:
                method(what)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 (nothing else can end a hook that matters to a lock)
                if id(hook) not in self._reported:
                    self._reported.add(id(hook))
                    name = type(hook).__name__
                    report(
                        logging.ERROR, "hook %s failed; it will not be reported again", name, exc_info=error
                    )


def _listed(hooks: Iterable[object]) -> Iterable[object]:
    """Return `hooks`, or say that it is one object where several are expected."""
    if isinstance(hooks, Iterable) and not isinstance(hooks, Hooks):
        return hooks
    if hooks is None:
        raise TypeError("hooks is a list of hook objects, got None: leave it out, or write hooks=[]")
    what = f"the class {hooks.__name__}" if isinstance(hooks, type) else f"one {type(hooks).__name__}"
    raise TypeError(f"hooks is a list of hook objects, got {what}: write hooks=[…] around it")


def _check_names(hook: object) -> None:
    """Refuse what would never be called: a class, and a method whose name no event has."""
    if isinstance(hook, type):
        raise TypeError(f"a hook is an object, got the class {hook.__name__}")
    for name in dir(hook):
        if name.startswith("on_") and name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.0)[0]
            raise TypeError(
                f"the hook {type(hook).__name__} has {name!r}, which no event would call: {near!r} is the "
                "nearest of the hooks' methods; those are listed at events.Hooks"
            )


def _method(hook: object, name: str) -> Callable[[Any], object] | None:
    """Return the method of a hook; None when it has none, or only the one of `Hooks` that does nothing."""
    method = getattr(hook, name, None)
    if method is None or getattr(method, "__func__", None) is getattr(Hooks, name):
        return None
    if inspect.iscoroutinefunction(method):
        raise TypeError(f"hooks are called in the loop and not awaited, got the async {method!r}")
    if not callable(method):
        raise TypeError(f"{name} of the hook {type(hook).__name__} must be a method, got {method!r}")
    return method  # type: ignore[no-any-return]  # the event that it takes is its own business
