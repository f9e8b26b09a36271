"""The shared vocabulary: milliseconds, scripts, commands."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Command, Purpose, Script, Silence, deleted_any, milliseconds
from aioredlock_ng._node.pipe import words

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


def test_what_creates_a_key_is_known() -> None:
    """Acquire and repair must be undone when unanswered; nothing else brings a key into being."""
    assert {purpose for purpose in Purpose if purpose.creates} == {Purpose.ACQUIRE, Purpose.REPAIR}


def test_a_command_is_its_words() -> None:
    """Verb, keys, arguments; EVALSHA and EVAL differ in how the script is named, and in nothing else."""
    assert words(PLAIN) == words(PLAIN, in_full=True) == (b"SET", b"a", b"b", OWNER, b"7")
    digest = hashlib.sha1(SCRIPT.source, usedforsecurity=False).hexdigest().encode()
    assert words(SCRIPTED) == (b"EVALSHA", digest, b"2", b"a", b"b", OWNER, b"7")
    assert words(SCRIPTED, in_full=True) == (b"EVAL", SCRIPT.source, b"2", b"a", b"b", OWNER, b"7")
    assert repr(SCRIPT) == f"<Script double {digest[:8].decode()}>"


@pytest.mark.parametrize("what", [{}, {"verb": b"SET", "script": SCRIPT}])
def test_a_command_is_a_verb_or_a_script(what: dict[str, object]) -> None:
    """Neither or both is a mistake that shows before anything is sent."""
    with pytest.raises(AssertionError, match="either a verb or a script"):
        words(command(Purpose.OTHER, **what))


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


@pytest.mark.parametrize(
    ("reply", "expected"),
    [([1, 0, 0], True), ([2, 500, -1], True), ([0, 0, 0], False), ([0, -1, 0], False), (None, False),
     (1, False),
     (b"OK", False), (Silence("no answer"), False)],
)  # fmt: skip
def test_a_release_that_found_something_is_recognised(reply: Any, expected: bool) -> None:
    """Only a list that begins with a positive count says that something of the owner's was deleted."""
    assert deleted_any(reply) is expected


def test_silence_assumes_that_the_command_left() -> None:
    """A node that is silent may have executed the command, unless the opposite is known."""
    assert Silence("no answer").sent
    assert not Silence("not connected", sent=False).sent
