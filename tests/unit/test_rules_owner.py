"""Owner values are unguessable, and fresh for every try (A5)."""

from __future__ import annotations

import secrets

import pytest

from aioredlock_ng import LockManager, LockTakenError
from tests.unit.worlds import sent, virtual, world


def test_owner_values_come_from_the_systems_source():
    """Without a random source of the user's own, nobody can guess an owner value."""
    assert isinstance(LockManager(["redis://localhost"])._random, secrets.SystemRandom)


@virtual
async def test_every_try_has_random_bits_of_its_own():
    """No two tries share the random part of their owner values, whatever time and holder say behind it."""
    async with world() as w:
        w.occupy("a", None)
        with pytest.raises(LockTakenError):
            await w.manager.lock("a", blocking_timeout=20).acquire()
        owners = [one.owner for one in sent(w.nodes[0]) if one.kind == "acquire"]
        assert len(owners) > 20
        assert len({owner.partition(b":")[0] for owner in owners}) == len(owners)
