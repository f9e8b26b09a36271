"""For web frameworks: `contrib.fastapi` and `contrib.aiohttp`.  For guarded writes: `contrib.redis`."""
