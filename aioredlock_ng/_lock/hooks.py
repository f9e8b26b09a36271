"""Events of one manager: to its hooks, which are checked when they are given, and to the log."""

from __future__ import annotations

import difflib
import inspect
import logging
import re
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final, get_args

from .._log import Once, debugging, report
from ..errors import LossReason, printable
from ..events import (
    Acquired,
    Downgraded,
    Event,
    Extended,
    ExtensionsLow,
    GaveUp,
    Hooks,
    Lost,
    NotExtended,
    Refused,
    Released,
    Waiting,
)

if TYPE_CHECKING:
    from .acquisition import Acquisition
    from .holding import Holding

METHODS: Final[dict[type[Event], str]] = {
    event: "on" + re.sub("[A-Z]", r"_\g<0>", event.__name__).lower() for event in get_args(Event)
}
"""The method of a hook that is called for each event: ``on_not_extended`` for `NotExtended`."""

OF_CALLERS: Final = frozenset({Acquired, Refused, Waiting, GaveUp, Released})
"""The events of a call, whose hooks run in the context of the code that called."""

_NAMES: Final = frozenset(METHODS.values())


class About(NamedTuple):
    """The lock that an event is about."""

    names: tuple[str, ...]
    label: str
    """Its name in metrics."""
    kind: str
    lease: int = 0
    """The number of the lease in its process; 0 of a call that has none."""
    fence: int = 0


class LogLine(NamedTuple):
    """The log line of an event."""

    text: str
    values: Callable[[str, Any, BaseException | None], tuple[object, ...]]
    """Returns the text's values, from the lock's names, the event and the error that it comes with."""
    level: Callable[[Any], int] | None = None
    """None: DEBUG.  Where that is not logged, no event is made for the log."""


def _from(event: Acquired) -> str:
    return f"at attempt {event.attempts}" if event.attempts else "from another task of this process"


def _then(event: Released) -> str:
    if event.handed_off:
        return ", to another task of this process"
    return f", and stays taken for another {event.stays_taken:.3f} s" if event.stays_taken else ""


def _by_loss(event: Lost) -> int:
    return logging.INFO if event.reason is LossReason.MANAGER_CLOSED else logging.WARNING


LINES: Final[dict[type[Event], LogLine]] = {
    Acquired: LogLine(
        "lock %s was acquired in %.3f s, %s", lambda lock, event, _: (lock, event.waited, _from(event))
    ),
    GaveUp: LogLine(
        "lock %s was not acquired in %.3f s: %r", lambda lock, event, error: (lock, event.waited, error)
    ),
    Extended: LogLine(
        "lock %s was extended (extension number %d), valid for %.3f s",
        lambda lock, event, _: (lock, event.extensions, event.remaining),
    ),
    NotExtended: LogLine(
        "an extension of lock %s was %s; it is valid for %.3f s",
        lambda lock, event, _: (
            lock,
            "refused" if event.refused else "not answered by a majority",
            event.remaining,
        ),
    ),
    Downgraded: LogLine("lock %s was downgraded after %.3f s", lambda lock, event, _: (lock, event.held_for)),
    ExtensionsLow: LogLine(
        "lock %s was extended %d of %d times and will be lost in %.1f s, unless it is released by then: "
        "ExtensionPolicy.max_extensions sets the limit, None lifts it",
        lambda lock, event, _: (lock, event.extensions, event.max_extensions, event.remaining),
        lambda _: logging.WARNING,
    ),
    Lost: LogLine("%s; it was held for %.3f s", lambda _, event, error: (error, event.held_for), _by_loss),
    Released: LogLine(
        "lock %s was released after %.3f s%s", lambda lock, event, _: (lock, event.held_for, _then(event))
    ),
}
"""The events that are logged here; the code where they happen logs the others."""


@final
class HookList:
    """The hooks of one manager.  A hook that raises is logged once and never affects a lock."""

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
        self._reported = Once()
        self._deliver: Callable[..., object] | None = None
        self._at_once: object = None
        self.wanted = frozenset(event for event, methods in self._listeners.items() if methods)
        """The events that hooks listen for; others need not be made."""

        self.votes = any(getattr(hook, "wants_votes", True) for hook, _ in self._listeners[Acquired])
        """Whether a hook wants the votes of the nodes on an acquire."""

    def hand_over(self, deliver: Callable[..., object], *, but: object) -> None:
        """Have `deliver` call the hooks, all `but` one, where they may block."""
        self._deliver, self._at_once = deliver, but

    def attach(self, statistics: Callable[[], object]) -> None:
        """Attach the hooks that ask for it to their manager (`Hooks.attach`)."""
        self._call(self._attach, statistics)

    def emit(
        self,
        kind: type[Event],
        subject: Acquisition | Holding,
        *,
        error: BaseException | None = None,
        **fields: Any,
    ) -> None:
        """Log what happened to a lock, and call the hooks that listen for it.

        An event is made only if the log or a hook needs it, and so is a field that is given as a function.
        """
        line = LINES.get(kind)
        logged = line is not None and (line.level is not None or debugging())
        if not (logged or kind in self.wanted):
            return
        # Only now: a field may be a function that collects votes.
        about = subject.about
        fields = {name: value() if callable(value) else value for name, value in fields.items()}
        if about.lease:
            fields["lease"] = about.lease
        make: Callable[..., Event] = kind
        event = make(names=about.names, label=about.label, kind=about.kind, **fields)
        if line is not None and logged:
            report(
                logging.DEBUG if line.level is None else line.level(event),
                line.text,
                *line.values(printable(about.names), event, error),
                lock=about.names,
                fence=about.fence,
                kind=about.kind,
                stacklevel=3,  # the line is the caller's
            )
        self.tell(event)

    def tell(self, event: Event) -> None:
        """Call the hooks that listen for this event."""
        kind = type(event)
        # No call has brought the others about: the current context is that of some request, by chance.
        if kind in OF_CALLERS:
            self._call(self._listeners[kind], event)
        elif kind in self.wanted:
            Context().run(self._call, self._listeners[kind], event)

    def _call(self, methods: list[tuple[object, Callable[[Any], object]]], what: object) -> None:
        for hook, method in methods:
            if self._deliver is None or hook is self._at_once:
                self._call_one(hook, method, what)
            else:
                self._deliver(self._call_one, hook, method, what)

    def _call_one(self, hook: object, method: Callable[[Any], object], what: object) -> None:
        try:
            method(what)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (nothing else can end a hook that matters to a lock)
            # A hook must not affect a lock: the log has its first error, and the lock goes on.
            if self._reported.first(id(hook)):
                name = type(hook).__name__
                report(logging.ERROR, "hook %s failed; it will not be reported again", name, exc_info=error)


def _listed(hooks: Iterable[object]) -> Iterable[object]:
    """Return `hooks`, or say that it is one object where several are expected."""
    if isinstance(hooks, Iterable) and not isinstance(hooks, Hooks):
        return hooks
    if hooks is None:
        raise TypeError("hooks must be a list of hook objects, got None: leave it out, or write hooks=[]")
    what = f"the class {hooks.__name__}" if isinstance(hooks, type) else f"one {type(hooks).__name__}"
    raise TypeError(f"hooks must be a list of hook objects, got {what}: write hooks=[…] around it")


def _check_names(hook: object) -> None:
    """Refuse what would never be called: a class, and a method whose name no event has."""
    if isinstance(hook, type):
        raise TypeError(f"a hook must be an object, got the class {hook.__name__}")
    for name in dir(hook):
        if name.startswith("on_") and name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.0)[0]
            raise TypeError(
                f"the hook {type(hook).__name__} has {name!r}, which no event would call: did you mean "
                f"{near!r}? events.Hooks lists all methods"
            )


def _method(hook: object, name: str) -> Callable[[Any], object] | None:
    """Return the method of a hook; None when it has none, or only the one of `Hooks` that does nothing."""
    # Inherited from `Hooks` and not overridden: no event needs to be made for it.
    method = getattr(hook, name, None)
    if method is None or getattr(method, "__func__", None) is getattr(Hooks, name):
        return None
    if inspect.iscoroutinefunction(method):
        raise TypeError(
            f"hooks are called in the event loop and not awaited, so {method!r} must not be async"
        )
    if not callable(method):
        raise TypeError(f"{name} of the hook {type(hook).__name__} must be a method, got {method!r}")
    return method  # type: ignore[no-any-return]  # the event that it takes is its own business
