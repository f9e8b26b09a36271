"""Integrations with web frameworks: `contrib.fastapi` and `contrib.aiohttp`."""
