"""Sign-in, and which requests are the page's own."""

from __future__ import annotations

import pytest

from aioredlock_ng._dashboard.access import (
    ADDRESSES,
    LOOPBACK,
    MAX_SIGNED_OUT,
    MAX_WRONG,
    SESSION_TIME,
    WRONG_TIME,
    Access,
)

TOKEN = "correct horse battery"


class Clock:
    """Seconds that a test counts."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


def make(clock: Clock | None = None, **options: object) -> Access:
    """Make the access to a page."""
    clock = clock or Clock()
    given = {"token": TOKEN, "may_release": True, "hosts": None, "clock": clock, "wall": clock, **options}
    return Access(**given)  # type: ignore[arg-type]


def test_a_session_is_what_the_token_opens():
    """Looking and releasing need it; another secret is none, nor is one that was signed out."""
    page = make()
    secret = page.sign_in(TOKEN, "1.2.3.4")
    assert secret is not None
    assert page.signed_in(secret)
    assert page.may_release_now(secret)
    for other in (None, "", "x", secret[:-1], TOKEN):
        assert not page.signed_in(other)
        assert not page.may_release_now(other)
    page.sign_out(secret)
    assert not page.signed_in(secret)


def test_without_a_token_all_may_look_and_none_may_release():
    """Such a page has nothing to sign in with; and a page that releases must have a token."""
    page = make(token=None, may_release=False)
    assert page.signed_in(None)
    assert not page.may_release_now(None)
    assert page.sign_in("", "a") is None
    with pytest.raises(ValueError, match="needs a token"):
        make(token=None)
    with pytest.raises(ValueError, match="at least 16 characters, got 5"):
        make(token="short")


def test_sessions_end():
    """After some hours, in every process; and those that were signed out, as far as they are remembered."""
    clock = Clock()
    page, other = make(clock), make(clock)
    secret = page.sign_in(TOKEN, "a")
    clock.now += SESSION_TIME - 1
    assert page.signed_in(secret)
    assert other.signed_in(secret)
    clock.now += 1
    assert not page.signed_in(secret)
    assert not other.signed_in(secret)
    for _ in range(2 * MAX_SIGNED_OUT):
        secret = page.sign_in(TOKEN, "a")
        page.sign_out(secret)
        assert not page.signed_in(secret)
    assert len(page._signed_out) == MAX_SIGNED_OUT


def test_any_process_with_the_token_knows_a_session():
    """No store is shared: the secret says until when it is good, and only the token can sign that."""
    clock = Clock()
    page = make(clock)
    secret = page.sign_in(TOKEN, "a")
    assert secret is not None
    assert make(clock).may_release_now(secret)
    assert not make(clock, token=TOKEN + "!").signed_in(secret)
    ends, nonce, signature = secret.split(".")
    assert not page.signed_in(f"{int(ends) + 1}.{nonce}.{signature}")
    assert not page.signed_in(f"{ends}.{nonce}x.{signature}")
    for nonsense in (".", "..", "1", f"{ends}.{nonce}", f"x.{nonce}.{signature}", "é.\udc80.ü", secret[:-1]):
        assert not page.signed_in(nonsense)
    assert secret != page.sign_in(TOKEN, "a")


def test_wrong_tokens_make_an_address_wait():
    """After five in a minute, also for the right one; others do not wait for it."""
    clock = Clock()
    page = make(clock)
    for _ in range(MAX_WRONG):
        assert page.must_wait("bad") == 0
        assert page.sign_in("wrong" * 9, "bad") is None
        clock.now += 1
    assert page.must_wait("bad") == WRONG_TIME - MAX_WRONG
    assert any(page.must_wait(f"other {number}") == 0 for number in range(10))
    clock.now += WRONG_TIME - MAX_WRONG
    assert page.must_wait("bad") == 0


def test_wrong_tokens_take_bounded_room():
    """However many addresses there are."""
    page = make()
    for number in range(2 * ADDRESSES):
        page.sign_in("wrong" * 9, str(number))
    assert len(page._wrong) <= ADDRESSES


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost:8377", True), ("LOCALHOST", True), ("127.0.0.1:1", True), ("[::1]:8377", True),
        ("::1", False), ("localhost.:8377", True), ("evil.example:8377", False), ("", False),
        ("127.0.0.1.evil.example", False), ("127.0.0.1@evil.example", False), ("[", False),
        ("evil.example#127.0.0.1", False),
    ],
)  # fmt: skip
def test_only_its_own_names_are_known(host, known):
    """A foreign name that leads here is one that a site has made its visitors' browsers use."""
    assert make(hosts=LOOPBACK).knows_host({"host": host}) is known
    assert make(hosts=None).knows_host({"host": host})
