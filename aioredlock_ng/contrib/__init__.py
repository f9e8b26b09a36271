"""For web frameworks: `fastapi` and `aiohttp`.  For guarded writes: `redis` and `sql`."""
