"""Lock kinds: each is a small value with its scripts, their arguments and the readers of their answers.

kind        the interface of a kind
mutex       one holder, over one name or several; the leader of an election
read_write  readers together, a writer alone
fair        a mutex whose waiters form a queue
semaphore   a number of holders at once, each with a slot of its own
answers     the answers of the scripts of all kinds
primitive   a kind over names: the commands for one owner

A new kind would be a module beside `mutex`; `kind` lists the other changes.
"""

from __future__ import annotations

from typing import Final

from .fair import FAIR
from .kind import Kind
from .mutex import LEADER, MUTEX
from .read_write import READ, WRITE
from .semaphore import SEMAPHORE

KINDS: Final[tuple[Kind, ...]] = (MUTEX, SEMAPHORE, READ, WRITE, LEADER, FAIR)
"""All kinds; the first one that can read the value under a key reads it."""
