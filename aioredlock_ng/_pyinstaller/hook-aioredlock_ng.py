"""Adds the Lua scripts, and the modules that are imported by name at the first use of what they define."""

from importlib import import_module

from PyInstaller.utils.hooks import collect_data_files

package = import_module("aioredlock_ng")  # PyInstaller runs this file by its path: there are no dots to it
modules = sorted({*package._HOMES.values(), *package._MODULES})  # noqa: SLF001 (our own)

datas = collect_data_files("aioredlock_ng")
hiddenimports = ["anyio._backends._asyncio", *(f"aioredlock_ng.{module}" for module in modules)]
