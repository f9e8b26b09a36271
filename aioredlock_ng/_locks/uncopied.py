"""Objects that cannot be copied: they rest on connections, on a loop, and on locks that are held."""

from __future__ import annotations

from typing import NoReturn


class Uncopied:
    """Refuses to be copied or pickled, with a message."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse: `copy`, `deepcopy` and `pickle` come here."""
        raise TypeError(
            f"a {type(self).__name__} rests on the connections of this process: it can be neither copied nor "
            "pickled; make one where it is used, in each process, from the same node URLs and names"
        )
