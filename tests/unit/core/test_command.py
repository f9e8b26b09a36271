"""The shared vocabulary: milliseconds, scripts, commands."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Command, Purpose, Script, Silence, deleted_any, milliseconds
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._node.packing import words

OWNER = b"0123456789abcdef0123456789abcdef01234567:me"
SCRIPT = Script("double", b"return 2 * ARGV[1]")


def any_reply(reply: object) -> bool:
    """Take any reply for one that fits."""
    return True


def scripted() -> Command:
    """Build a command that is a script."""
    return Command(
        Purpose.EXTEND, owner=OWNER, fits=any_reply, keys=(b"a", b"b"), args=(OWNER, b"7"), script=SCRIPT
    )


def plain() -> Command:
    """Build a command that is a verb."""
    return Command(Purpose.ACQUIRE, owner=OWNER, fits=any_reply, keys=(b"a",), args=(OWNER,), verb=b"SET")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (10.0, 10_000),
        (0.001, 1),
        (0.0001, 1),
        (0.0, 1),
        (1.0001, 1001),
        (0.1, 100),
        (0.3, 300),
        (86_400, 86_400_000),
    ],
)
def test_seconds_become_whole_milliseconds(seconds: float, expected: int) -> None:
    """Rounded up, and never 0, which would delete the key."""
    assert milliseconds(seconds) == expected


@given(st.floats(1e-6, 86_400))
def test_a_key_never_ends_before_its_lock(seconds: float) -> None:
    """The wire's milliseconds are at least the seconds asked for, and less than two more."""
    exact = Fraction(seconds) * 1000
    assert exact * (1 - Fraction(1, 10**15)) <= milliseconds(seconds) < exact + 2


@pytest.mark.parametrize(
    ("purpose", "creates"),
    [
        (Purpose.ACQUIRE, True),
        (Purpose.TOP_UP, True),
        (Purpose.EXTEND, False),
        (Purpose.RELEASE, False),
        (Purpose.OTHER, False),
    ],
)
def test_what_creates_a_key_is_known(purpose: Purpose, creates: bool) -> None:
    """Acquire and top-up must be undone when unanswered; nothing else brings a key into being."""
    assert purpose.creates is creates


def test_a_plain_command_is_its_words() -> None:
    """Verb, keys, arguments; nothing more in full."""
    assert words(plain()) == words(plain(), in_full=True) == (b"SET", b"a", OWNER)


def test_a_script_goes_by_its_digest_or_in_full() -> None:
    """EVALSHA and EVAL differ in how the script is named, and in nothing else."""
    digest = hashlib.sha1(SCRIPT.source, usedforsecurity=False).hexdigest().encode()
    assert words(scripted()) == (b"EVALSHA", digest, b"2", b"a", b"b", OWNER, b"7")
    assert words(scripted(), in_full=True) == (b"EVAL", SCRIPT.source, b"2", b"a", b"b", OWNER, b"7")


@pytest.mark.parametrize("what", [{}, {"verb": b"SET", "script": SCRIPT}])
def test_a_command_is_a_verb_or_a_script(what: dict[str, object]) -> None:
    """Neither or both is a mistake that shows before anything is sent."""
    command = Command(Purpose.OTHER, owner=b"", fits=any_reply, keys=(), **what)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="either a verb or a script"):
        assert words(command)


@pytest.mark.parametrize("command", [plain(), scripted()])
def test_a_command_shows_no_owner(command: Command) -> None:
    """`repr` may end up in a log line: it has the purpose and the keys, never the owner value (A5)."""
    text = repr(command)
    assert OWNER.decode() not in text
    assert OWNER[:40].decode() not in text
    assert command.purpose.value in text
    assert "b'a'" in text


def test_keys_are_escaped_where_they_are_shown() -> None:
    """A key with a line break or other control characters cannot break a log line."""
    command = Command(Purpose.OTHER, owner=b"", fits=any_reply, keys=(b"a\n\x1b[2J\xff",), verb=b"GET")
    assert repr(command).isascii()
    assert repr(command).isprintable()


def test_a_script_shows_its_name() -> None:
    """`repr` of a script has its name and the beginning of its digest."""
    assert repr(SCRIPT) == f"<Script double {SCRIPT.digest[:8].decode()}>"


def test_every_script_opens_with_its_contract() -> None:
    """Each .lua file begins with what it is for, its KEYS, ARGV and what it returns, and has no shebang."""
    for script in _scripts.ALL:
        head = [line for line in script.source.decode().splitlines() if line.startswith("--")]
        text = "\n".join(head)
        assert script.source.startswith(b"--"), script
        assert "KEYS" in text, script
        assert "returns" in text, script
        assert ("ARGV[1]" in text) is (b"ARGV[1]" in script.source.split(b"\n", len(head))[-1]), script


def test_digests_are_distinct() -> None:
    """No two scripts are one."""
    assert len({script.digest for script in _scripts.ALL}) == len(_scripts.ALL)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ([1, 0, 0], True),
        ([2, 500, -1], True),
        ([0, 0, 0], False),
        ([0, -1, 0], False),
        (None, False),
        (1, False),
        (b"OK", False),
    ],
)
def test_a_release_that_found_something_is_recognised(reply: object, expected: bool) -> None:
    """Only a list that begins with a positive count says that something of the owner's was deleted."""
    assert deleted_any(reply) is expected  # type: ignore[arg-type]
    assert deleted_any(Silence("no answer")) is False


def test_silence_assumes_that_the_command_left() -> None:
    """A node that is silent may have executed the command, unless the opposite is known."""
    assert Silence("no answer").sent
    assert not Silence("not connected", sent=False).sent


def test_there_are_three_votes() -> None:
    """Granted, refused, silent; no fourth."""
    assert [vote.value for vote in Vote] == ["granted", "refused", "silent"]
