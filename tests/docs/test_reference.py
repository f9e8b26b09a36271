"""The reference has every public name."""

from __future__ import annotations

import importlib
import pkgutil
import re
from types import ModuleType
from typing import Any, Final

import pytest
import yaml

import aioredlock_ng
from tests.docs.pages import DOCS

# Modules that users import.
PUBLIC: Final = (
    "aioredlock_ng",
    "aioredlock_ng.contrib.aiohttp",
    "aioredlock_ng.contrib.fastapi",
    "aioredlock_ng.contrib.opentelemetry",
    "aioredlock_ng.contrib.prometheus",
    "aioredlock_ng.contrib.redis",
    "aioredlock_ng.contrib.sql",
    "aioredlock_ng.errors",
    "aioredlock_ng.events",
    "aioredlock_ng.protocols",
    "aioredlock_ng.pytest_plugin",
    "aioredlock_ng.sync",
    "aioredlock_ng.testing",
)

# Modules that they start, or that hold others.
NO_API: Final = {"aioredlock_ng.__main__", "aioredlock_ng.contrib"}

# What is public by its letters alone.
NO_NAMES: Final = {"aioredlock_ng.sync.Losses", "aioredlock_ng.sync.P", "aioredlock_ng.sync.R"}

_DIRECTIVE: Final = re.compile(r"^::: ([\w.]+)\n((?: {4}.*\n)*)", re.MULTILINE)


def names_in(module: ModuleType) -> set[str]:
    """Return a module's public names: those it lists, else those it defines."""
    listed = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return {f"{module.__name__}.{name}" for name in listed} - NO_NAMES


def at(name: str) -> Any:
    """Return what a dotted name means."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (AttributeError, ModuleNotFoundError):
        return importlib.import_module(name)


def documented() -> dict[str, Any]:
    """Return every name that a page of the reference shows, with what it means."""
    found: dict[str, Any] = {}
    for page in (DOCS / "reference").glob("*.md"):
        for name, options in _DIRECTIVE.findall(page.read_text()):
            value = at(name)
            found[name] = value
            if isinstance(value, ModuleType):
                members = (yaml.safe_load(options) or {}).get("options", {}).get("members")
                shown = {f"{name}.{member}" for member in members} if members else names_in(value)
                found |= {member: at(member) for member in shown}
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    """Under the name that users import it by, or another one of the same thing."""
    shown = documented()
    ids = {id(value) for value in shown.values()}
    assert {each for each in names_in(importlib.import_module(name)) if id(at(each)) not in ids} == set()


def test_every_public_module_is_listed() -> None:
    """A new module without an underscore is in the reference, or is no interface."""
    found = {
        module.name
        for folder, prefix in (
            (aioredlock_ng.__path__, "aioredlock_ng."),
            ([f"{aioredlock_ng.__path__[0]}/contrib"], "aioredlock_ng.contrib."),
        )
        for module in pkgutil.iter_modules(folder, prefix)
        if not module.name.rpartition(".")[2].startswith("_") or module.name.endswith("__main__")
    }
    assert found | {"aioredlock_ng"} == set(PUBLIC) | NO_API
