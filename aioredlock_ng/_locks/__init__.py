"""What users hold: locks, leases, elections, decorators; none of them can be copied."""

from __future__ import annotations

from typing import NoReturn


class Uncopied:
    """Refuses to be copied or pickled, with a message."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse: `copy`, `deepcopy` and `pickle` come here."""
        raise TypeError(
            f"a {type(self).__name__} depends on the connections of this process and cannot be copied or "
            "pickled: make one in each process that uses it, from the same node URLs and names"
        )
