"""``aioredlock-ng demo``: a counter that would lose increments without the lock, and faults meanwhile.

story     what happens, in order
crew      the worker processes, seen from the story
worker    one such process: ``python -m aioredlock_ng._demo.worker``
history   who was inside when, and the verdict; pure
screen    a terminal with a progress bar, or plain lines
"""
