"""`LockTakenError.holder`: what the holder of a taken lock calls itself."""

from __future__ import annotations

import itertools

import pytest

from aioredlock_ng import LockTakenError
from tests.unit.tasks import in_task
from tests.unit.worlds import opened, world

OTHERS = b"0123456789" * 4 + b":1700000000000:"
"""What an owner value of this package begins with: all but the label."""


@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("fencing", [True, False])
async def test_an_error_names_the_holder(fencing, names):
    """The label of the manager that holds the lock, in the error and its message, never its owner value; for
    a task of its own process, too.
    """
    options = {"fencing": fencing}
    async with world(holder="billing-7", **options) as w, opened(w.nodes, seed=2, **options) as other:
        lease = await w.manager.lock(*names).acquire()
        for manager, timeout in itertools.product((other, w.manager), (0, 1)):
            error = (await in_task(manager.lock("a", blocking_timeout=timeout).acquire)).error
            assert isinstance(error, LockTakenError)
            assert error.holder == "billing-7"
            assert manager is w.manager or "is held by billing-7" in str(error)
            owner = lease._holding.owner.decode()
            assert owner.partition(":")[0] not in f"{error!r}{error.__dict__}"
        await lease.release()


@pytest.mark.parametrize(
    ("values", "holder"),
    [
        pytest.param([OTHERS + b"one", OTHERS + b"two", OTHERS + b"three"], None, id="none is known"),
        pytest.param([OTHERS + b"one"] * 2 + [OTHERS + b"three"], None, id="of a minority"),
        pytest.param([b"another program's"] * 5, None, id="another program's"),
        pytest.param([OTHERS + b"x\nroot: fine \xff"] * 5, "x\\nroot: fine \\ufffd", id="a forged line"),
    ],
)
async def test_what_a_majority_says_is_the_holder(values, holder):
    """Without a majority that names the same one it is unknown: such keys may be a try under way; and a label
    that no manager could have is shown escaped.
    """
    async with world(5) as w:
        for node, value in zip(w.nodes, values, strict=False):
            node.set(b"redlock:a", value, 30.0)
        with pytest.raises(LockTakenError) as caught:
            await w.manager.lock("a", blocking=False).acquire()
        assert caught.value.holder == holder
        assert "\n" not in str(caught.value)
        assert holder is not None or "is held by another client" in str(caught.value)
