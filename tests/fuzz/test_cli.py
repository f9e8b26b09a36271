"""Bad input to ``aioredlock-ng``: a documented exit code, a line or two to say why, never a password."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
from collections.abc import Iterator, Mapping
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioredlock_ng.__main__ import main
from tests.fuzz.profile import no_hurry, profile

pytestmark = no_hurry

SECRET = "s3cretP4ss"
CLOSED = f"redis://user:{SECRET}@127.0.0.1:1"  # where nothing listens

CODES = {0, 1, 2, 69, 75, 126, 127}  # what the help documents; `-E` adds its own

VARIABLES = ("REDLOCK_URLS", "REDLOCK_RESTART_QUARANTINE")

hostile = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["", " ", "-", "--", "---", "fence:{x}", "{meta}", "x" * 1024, "x" * 1025, "é" * 600]),
    st.sampled_from(["a\nb", "a\x1b[31mb", "a\u2028b", "\udcff", "%s", "{0}", "-x", "-1", "@file", "٣"]),
)
NUMBERS = [
    "nan", "inf", "-inf", "-1", "0", "-0", "1e-320", "1e400", "", " ", "٣", "1_0", "0x1", "+1", "9" * 5000,
    "1e308", "256", "-256", "1.5", "soon", "0.1", "3", "5m", "1h30m", "90s", "30m1h", "5m5m", "100ms", "1d",
]  # fmt: skip
numbers = st.one_of(
    st.sampled_from([*NUMBERS, "9" * 500 + "h"]), st.floats().map(str), st.integers().map(str), hostile
)
odd = st.text("/@:%?&=#[] \\é", max_size=5)
URLS = ["", ",", " , ", "redis://", "redis://127.0.0.1:x", "127.0.0.1:6379", "http://h", "unix://"]
URLS += [f"{CLOSED},{CLOSED}", f"redis://:{SECRET}@[::1", f"redis://u:{SECRET}@127.0.0.1:1?db=x"]
# Lists of nodes; where a comma parts them, a password has none.
urls = st.one_of(
    st.just(CLOSED),
    st.sampled_from(URLS),
    odd.map(lambda odd: f"redis://user:{odd}{SECRET}@127.0.0.1:1"),
    odd.map(lambda odd: f"{odd}redis://user:{SECRET}{odd}@127.0.0.1:1"),
    hostile,
)

OPTIONS = {
    "run": {"-n": None, "-w": numbers, "-E": numbers, "--ttl": numbers, "--kill-after": numbers},
    "status": {"--json": None},
    "doctor": {"--json": None, "--quiet": None, "--restart-quarantine": numbers},
    "watch": {"--interval": numbers},
    "trace": {"--json": None, "--interval": numbers, "--for": numbers},
    "dashboard": {"--bind": hostile, "--interval": numbers, "--allow-release": None, "--allow-host": hostile},
    "init": {"--force": None, "--json": None, "--restart-quarantine": numbers},
    "release": {"--yes": None, "--json": None},
    "demo": {},
}
NODES = {"--nodes": urls, "--prefix": hostile, "--node-timeout": numbers}
# Commands that ask nothing of their input: they are only tried with what must be refused.
NEVER_ENDS = ("watch", "trace", "dashboard", "demo")


@st.composite
def argument_vectors(draw: st.DrawFn) -> list[str]:
    """Draw what a user might type, and more."""
    command = draw(st.sampled_from(sorted(OPTIONS)))
    known = OPTIONS[command] | (NODES if command != "demo" else {})
    words = [command]
    for option in draw(st.lists(st.sampled_from([*known, "--nonsense"]), max_size=3)):
        values = known.get(option)
        given = [] if values is None else [draw(values)]
        words += ["=".join([option, *given])] if draw(st.booleans()) else [option, *given]
    words += draw(st.lists(hostile, max_size=2))
    if command == "run" and draw(st.booleans()):
        words += ["-n", "--", *draw(st.sampled_from([[], ["/nonexistent"], ["--"]]))]
    if command in NEVER_ENDS:
        words.append("--refused")
    return words


environments = st.fixed_dictionaries(
    {},
    optional={
        "REDLOCK_URLS": urls,
        "REDLOCK_RESTART_QUARANTINE": st.one_of(numbers, st.just("60")),
        "COLUMNS": st.sampled_from(["", "1", "-5", "x", "80"]),
        "TERM": st.sampled_from(["", "dumb", "\x1b"]),
    },
)


@contextlib.contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Have these variables, and of ours no others."""
    with mock.patch.dict(os.environ):
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(changes)
        yield


def run(words: list[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
    """Run the command line in this process; return the exit code and both outputs."""
    out, err = io.StringIO(), io.StringIO()
    log = logging.getLogger("aioredlock_ng")  # `run` adds a handler, for a process has but one of it
    with (
        environment(variables),
        mock.patch.object(log, "handlers", []),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


def check(words: list[str], code: object, out: str, err: str) -> None:
    """Check what a run said and how it ended."""
    assert isinstance(code, int), code
    own = {int(word) for word in words if word.isascii() and word.isdigit() and len(word) < 4}
    assert code in CODES | own, (code, err)
    assert SECRET not in out + err
    assert "Traceback" not in err
    if code == 2:
        assert not out or ("--json" in words and json.loads(out)["error"])
        *_, message = err.split("aioredlock-ng")
        assert len(message.strip()) > 10, err
    if not any("\n" in word for word in words):
        said = [line for line in err.split("\n") if line and not line.startswith(("usage:", " "))]
        assert len(said) <= 2, err


@profile(250)
@given(argument_vectors(), environments)
@example(["run"], {})
@example(["run", "-n", "job", "--", "/nonexistent"], {"REDLOCK_URLS": CLOSED})
@example(["status", "--json"], {"REDLOCK_URLS": CLOSED})
@example(["doctor"], {"REDLOCK_URLS": CLOSED})
@example(["init"], {"REDLOCK_URLS": CLOSED})
@example(["release", "--yes", "job"], {"REDLOCK_URLS": CLOSED})
@pytest.mark.heavy
def test_no_arguments_are_too_bad(words: list[str], variables: dict[str, str]) -> None:
    """Any command with any options, numbers, names, URLs and variables, over nodes that are not there."""
    check(words, *run(words, variables))
