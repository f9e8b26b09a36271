"""Names that stay taken after their release, as this process remembers them (R34)."""

from __future__ import annotations

from aioredlock_ng._core.cooldown import KNOWN_FOR, MAX_COOLING, Cooldowns


def test_a_name_cools_down_until_its_time() -> None:
    """Of several names the last counts; what is over is forgotten."""
    cooldowns = Cooldowns()
    assert not cooldowns.until
    cooldowns.begin(["a", "b"], 10.0, 0.0)
    cooldowns.begin(["b"], 12.0, 0.0)
    for names, now, left in (
        ("abc", 9.0, 3.0), ("ba", 9.0, 3.0), ("a", 9.0, 1.0), ("c", 9.0, 0.0), ("a", 10.0, 0.0),
    ):  # fmt: skip
        assert cooldowns.left(list(names), now) == left
    assert cooldowns.until
    assert cooldowns.left(["b"], 20.0) == 0.0
    assert not cooldowns.until, "both are over, and forgotten"


def test_a_name_is_known_for_a_while_only() -> None:
    """Then the nodes have to be asked: another process may have freed it by force."""
    cooldowns = Cooldowns()
    cooldowns.begin(["a"], 5000.0, 1000.0)
    assert cooldowns.left(["a"], 1000.0 + KNOWN_FOR - 1) == 4000.0 - KNOWN_FOR + 1
    assert cooldowns.left(["a"], 1000.0 + KNOWN_FOR) == 0.0
    assert not cooldowns.until


def test_the_names_are_bounded_and_the_oldest_gives_way() -> None:
    """The name that began to cool down last is remembered, however often it did before."""
    cooldowns = Cooldowns()
    cooldowns.begin(map(str, range(MAX_COOLING)), 10.0, 0.0)
    cooldowns.begin(["0"], 11.0, 0.0)
    cooldowns.begin(["one more"], 10.0, 0.0)
    assert cooldowns.left(["0"], 0.0) == 11.0
    assert cooldowns.left(["1"], 0.0) == 0.0
    assert all(cooldowns.left([str(i)], 0.0) == 10.0 for i in range(2, MAX_COOLING))
