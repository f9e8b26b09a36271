"""Lock kinds: each is a small value that says what to send and how to read the answers.

kind        what a kind is
mutex       one holder, over one name or several; the leader of an election
read_write  readers together, a writer alone
fair        a mutex whose waiters stand in line
semaphore   so many holders at once, each with a slot of its own
answers     how the scripts of all kinds answer
primitive   a kind over names: the commands for one owner

Another one would be a module beside `mutex`; `kind` says what else it takes.
"""

from __future__ import annotations

from typing import Final

from .fair import FAIR
from .kind import Kind
from .mutex import LEADER, MUTEX
from .read_write import READ, WRITE
from .semaphore import SEMAPHORE

KINDS: Final[tuple[Kind, ...]] = (MUTEX, SEMAPHORE, READ, WRITE, LEADER, FAIR)
"""Every kind; what is found under a key is read by the first that knows it."""
