"""A key in its last millisecond is still another's: `PTTL` says 0 then, which must not be read as "free".

Time stands still while a script runs, so a script that first lets the key end now shows that millisecond at
will.  Real servers only: masters in memory have no such state, and Valkey deletes such a key at once.
"""

from __future__ import annotations

from typing import Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._node.pipe import without_request_id
from tests.conformance.rules import TAG, one_of
from tests.conformance.stage import EXPECTED, KEEP_MS, SENTINEL, TTL_MS, fenced, locks
from tests.conformance.tools import OTHERS, OURS

ENDING_NOW: Final = b"""
do
  local time = redis.call('TIME')
  local now = string.format('%%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  redis.call('SET', KEYS[%d], '%b', 'PXAT', now)
  assert(redis.call('GET', KEYS[%d]) and redis.call('PTTL', KEYS[%d]) == 0, 'not the last millisecond')
end
"""
"""Puts a key of another's where it ends with this very millisecond."""

VOTE: Final = (EXPECTED, b"0")
ARGUMENTS: Final = {
    _scripts.ACQUIRE: (OURS, TTL_MS, 1, 1, KEEP_MS, *VOTE),
    _scripts.SET_ALL: (OURS, TTL_MS, 0, 1, 1),
    _scripts.RELEASE: (OURS, 0, KEEP_MS, b""),
}


@pytest.mark.parametrize(
    ("script", "keys", "number"),
    [
        (_scripts.ACQUIRE, [*fenced("a"), SENTINEL], 1),
        *((_scripts.ACQUIRE, [*fenced("ab"), SENTINEL], number) for number in (1, 2)),
        *(
            (script, locks("ab"), number)
            for script in (_scripts.SET_ALL, _scripts.RELEASE)
            for number in (1, 2)
        ),
    ],
)
def test_it_is_not_free(shared_sets, script, keys, number):
    """The wait is the shortest there is, not none, and the key stays another's (R5, R13).

    One name without a fence is no case: that is a plain SET NX, which the server itself refuses.
    """
    with one_of("path", shared_sets) as master:
        if "valkey_version" in master.client.info("server"):
            pytest.skip("the server on PATH is a Valkey, which deletes a key that is put to end now")
        master.put([(SENTINEL, EXPECTED, None)])
        source = ENDING_NOW % (number, OTHERS, number, number) + script.source
        words = ("EVAL", source, len(keys), *keys, *ARGUMENTS[script], TAG)
        answer = without_request_id(master.client.execute_command(*words), TAG)
        assert answer[:2] == [0, 1] if isinstance(answer, list) else answer == 1
        assert OURS not in master.client.mget(locks("ab"))
