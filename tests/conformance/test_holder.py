"""The label of another holder in the answer to a release, and nothing that proves the lock is its."""

from __future__ import annotations

import pytest

from tests.conformance.stage import waits

DIGITS = b"0123456789abcdef"
RANDOM = DIGITS * 2 + DIGITS[:8]
OTHERS = RANDOM + b":1700000000000:"
"""The beginning of an owner value of this package: all but the label."""


VALUES = (
    (OTHERS + b"billing-7", [b"billing-7"]),
    (OTHERS + "Müller:1\n2".encode(), ["Müller:1\n2".encode()]),
    (OTHERS, [b""]),
    (OTHERS[:-1] + b"w:writer:1", [b"writer:1"]),
    (OTHERS[:-1] + b"l:", [b""]),
    (OTHERS[:-1] + b"ww:writer", []),
    (OTHERS[:-1] + b"W:writer", []),
    (OTHERS[:-1], []),
    (RANDOM + b":older", []),
    (b"a" + OTHERS + b"x", []),
    (OTHERS[1:] + b"x", []),
    (RANDOM + b":170000000000:x", []),
    (RANDOM.upper() + b":1700000000000:x", []),
    (b"\n" + OTHERS + b"x", []),
    (b"6f2b1c1e-8a35-4d5e-9d3c-1f0a6f0f2b1c", []),
    (b"", []),
    (OTHERS + b"x" * 100_000, [b"x" * 1024]),
)
"""Values under a lock, and the labels in the answer."""


@pytest.mark.parametrize("fence", [0, 5], ids=["plain", "fenced"])
async def test_a_release_tells_the_label_of_the_holder(stage, fence):
    """Of a value of this package the label alone; of any other nothing."""
    for value, labels in VALUES:
        stage.hold("a", value)
        deleted, wait, listeners, foreign, *found = await stage.release(fence)
        assert (deleted, listeners, found) == (0, 0, labels), value[:80]
        assert foreign == (value.find(b":") != len(RANDOM)), value[:80]
        assert waits(wait, 30)
        assert stage.held() == [value]


async def test_of_several_the_first_that_is_held_by_a_client_of_ours_is_told(stage):
    """Names that are free, ours, or another program's have no holder to tell of."""
    stage.hold("b", b"foreign")
    stage.hold("c", OTHERS + b"c")
    stage.hold("d", OTHERS + b"d")
    assert (await stage.release(0, "abcd"))[3:] == [1, b"c"]
    assert (await stage.release(0, "acd"))[3:] == [0, b"c"]
    assert (await stage.release(0, "ab"))[3:] == [1]
    assert (await stage.release(0, "a"))[3:] == []
