"""What a copy would break: connections, a loop, and what is held over them."""

from __future__ import annotations

from typing import NoReturn


class Uncopied:
    """Refuses to be copied or pickled, in words."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse: `copy`, `deepcopy` and `pickle` come here."""
        raise TypeError(
            f"a {type(self).__name__} rests on the connections of this process: it can be neither copied nor "
            "pickled; make one where it is used, in each process, from the same node URLs and names"
        )
