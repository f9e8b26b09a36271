"""``aioredlock-ng demo``: a counter that would lose increments without the lock, and faults meanwhile.

story     what happens, from top to bottom, and the screen that shows it
worker    the processes that count: what each does, and how the story starts and hears them
verdict   what it came to; pure
"""
