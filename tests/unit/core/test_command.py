"""The shared vocabulary: milliseconds, scripts, commands."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Command, Purpose, Script, milliseconds

OWNER = b"0123456789abcdef0123456789abcdef01234567:me"
SCRIPT = Script("double", b"return 2 * ARGV[1]")


def command(purpose: Purpose, **what: Any) -> Command:
    """Build a command over two keys."""
    what = {"keys": (b"a", b"b"), "args": (OWNER, b"7"), **what}
    return Command(purpose, owner=OWNER, fits=lambda _: True, **what)


PLAIN = command(Purpose.ACQUIRE, verb=b"SET")
SCRIPTED = command(Purpose.EXTEND, script=SCRIPT)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(10.0, 10_000), (0.001, 1), (0.0001, 1), (0.0, 1), (1.0001, 1001), (0.1, 100), (0.3, 300),
     (86_400, 86_400_000)],
)  # fmt: skip
def test_seconds_become_whole_milliseconds(seconds: float, expected: int) -> None:
    """Rounded up, and never 0, which would delete the key."""
    assert milliseconds(seconds) == expected


@given(st.floats(1e-6, 86_400))
def test_a_key_never_ends_before_its_lock(seconds: float) -> None:
    """The wire's milliseconds are at least the seconds asked for, and less than two more."""
    exact = Fraction(seconds) * 1000
    assert exact * (1 - Fraction(1, 10**15)) <= milliseconds(seconds) < exact + 2


@pytest.mark.parametrize(
    "one", [PLAIN, SCRIPTED, command(Purpose.OTHER, keys=(b"a\n\x1b[2J\xff",), verb=b"GET")]
)
def test_a_command_shows_no_owner(one: Command) -> None:
    """`repr` may end up in a log line: it has the purpose and the keys, escaped, never the owner value
    (A5).
    """
    text = repr(one)
    assert OWNER[:40].decode() not in text
    assert one.purpose.value in text
    assert "b'a" in text
    assert text.isascii()
    assert text.isprintable()


def test_every_script_opens_with_its_contract() -> None:
    """Each .lua file begins with what it is for, its KEYS, ARGV and what it returns, and has no shebang; no
    two are one.
    """
    assert len({script.digest for script in _scripts.ALL}) == len(_scripts.ALL)
    for script in _scripts.ALL:
        lines = script.source.decode().splitlines()
        text = "\n".join(line for line in lines if line.startswith("--"))
        assert script.source.startswith(b"--"), script
        assert "KEYS" in text, script
        assert "returns" in text, script
        code = "\n".join(line for line in lines if not line.startswith("--"))
        assert ("ARGV" in text) is ("ARGV" in code), script
