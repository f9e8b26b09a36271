"""Adds the Lua scripts; modules are found without it, also those that are imported at their first use."""

from PyInstaller.utils.hooks import collect_data_files

datas = collect_data_files("aioredlock_ng")
