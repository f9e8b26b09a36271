"""One key space: whatever a name is, its keys are under the prefix, and its own (R16)."""

from __future__ import annotations

import pytest

from tests.unit.worlds import PREFIX, counter, virtual, world

SENTINEL = PREFIX + b"{meta}"

HOSTILE = (
    "a",
    "A",
    "\n",
    "a\nb",
    "\r\nFLUSHALL\r\n",
    "a\0b",
    " a ",
    "../a",
    "*",
    "a{b}c",
    "}{",
    "redlock:a",
    "redlock:{meta}",
    "ä€😀",
    "\u202ea",
    "%s{0}",
)
"""Names that somebody could take for something else."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_under_the_prefix(name):
    """Lock and counter have the name's bytes as they are, behind the prefix; there is no other key."""

    async def main() -> None:
        async with world() as w, w.manager.lock(name):
            keys = sorted([PREFIX + name.encode(), counter(name), SENTINEL])
            assert [sorted(node.keys) for node in w.nodes] == [keys] * 3

    virtual(main)()


@virtual
async def test_names_that_look_alike_are_different_locks():
    """All hostile names can be held at the same time."""
    async with world() as w:
        leases = [await w.manager.lock(name).try_acquire() for name in HOSTILE]
        assert None not in leases
        for lease in leases:
            await lease.release()
