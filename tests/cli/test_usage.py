"""Wrong usage of every command: exit code 2 before any node is asked, and the message says what is wrong."""

from __future__ import annotations

import pytest

from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from tests.cli.runs import Cli, Runs
from tests.servers import Nodes, ask

NOWHERE = "redis://127.0.0.1:1"
"""Where no server listens."""

LESS = "less than half"
ALONE = "--at-least cannot be combined with"
IN_LINE = "--fair is for a lock with one holder: it cannot be combined with"
OPEN = "other machines can reach"
INTERVAL = "between 0.05 and 60 seconds"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        *(
            (f"run {line}", says)
            for line, says in (
                ("job", "no command"),
                ("job --", "no command"),
                ("job -- ''", "no command"),
                ("-- true", "NAME"),
                ("job true", "unrecognized arguments (a command goes after --): true"),
                ("'' -- true", "name"),
                ("fence:{{x}} -- true", "reserved"),
                ("-n -w 1 job -- true", "not allowed with"),
                ("-w -1 job -- true", "-w"),
                ("-w nan job -- true", "seconds"),
                ("-w soon job -- true", "seconds"),
                ("-E 256 job -- true", "0 to 255"),
                ("-E x job -- true", "0 to 255"),
                ("--kill-after 5 job -- true", LESS),
                ("--ttl 4 --kill-after 2 job -- true", LESS),
                ("--ttl 1m30s --kill-after 1m job -- true", f"{LESS} of the ttl (90 s), got 60 s"),
                ("--ttl 0 job -- true", "ttl"),
                ("--ttl 1e9 job -- true", "ttl"),
                ("--node-timeout 20 job -- true", "node_timeout"),
                ("--node-timeout 1m job -- true", "node_timeout=60.0 and ttl=10.0"),
                ("--nodes http://user:secret@host job -- true", "scheme"),
                ("--nodes '' job -- true", "node"),
                ("--shared -x job -- true", "not allowed with"),
                ("--permits 2 -s job -- true", "not allowed with"),
                ("--permits 0 job -- true", "permits are a number from 1 to 256, got '0'"),
                ("--permits 257 job -- true", "permits are a number from 1 to 256, got '257'"),
                *((f"{kind} --at-least 60 job -- true", ALONE) for kind in ("-s", "-x", "--permits 2")),
                *(
                    (f"--fair {kind} job -- true", IN_LINE)
                    for kind in ("-s", "--exclusive", "--permits 2", "--at-least 5")
                ),
            )
        ),
        *(
            (line, "such as 90s, 5m or 1h30m")
            for line in (
                "run -w {} job -- true",
                "run --ttl {} job -- true",
                "run --kill-after {} job -- true",
                "status --node-timeout {}",
                "watch --interval {}",
                "trace job --for {}",
                "dashboard --interval {}",
                "doctor --restart-quarantine {}",
                "init --restart-quarantine {}",
                "release job --node-timeout {}",
            )
        ),
        ("status --nodes ''", "aioredlock-ng: "),
        ("status --nodes nonsense", "aioredlock-ng: "),
        ("status ''", "aioredlock-ng: "),
        ("status --nope", "usage: "),
        ("init --restart-quarantine -1", "usage: "),
        ("init a", "usage: "),
        (f"doctor --nodes {NOWHERE},{NOWHERE}", "given twice"),
        *((f"watch --interval={time}", "interval") for time in ("0", "-1", "0.01", "nan", "inf")),
        ("watch --interval 50ms", "at least 0.1 seconds, got 0.05"),
        *((f"trace a --interval {time}", INTERVAL) for time in ("0", "49ms", "61")),
        ("dashboard --bind 0.0.0.0:8377", f"{OPEN} 0.0.0.0: give --token-file"),
        ("dashboard --bind [::]:8377", f"{OPEN} ::: give --token-file"),
        ("dashboard --bind locks.example:80", f"{OPEN} locks.example"),
        ("dashboard --allow-release", "--allow-release needs a token: give --token-file"),
        ("dashboard --bind 8377", "expected HOST:PORT, such as 127.0.0.1:8377, got '8377'"),
        ("dashboard --bind 127.0.0.1:99999", "expected HOST:PORT"),
        ("dashboard --interval 0.1", "interval must be 0.2 to 3600 seconds, got 0.1"),
        ("dashboard --token-file /nowhere", "cannot read /nowhere: No such file or directory"),
    ],
)
def test_wrong_usage_is_2(line: str, says: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what would be right, without a traceback and without a password."""
    monkeypatch.setenv("REDLOCK_URLS", NOWHERE)
    words = ["" if word == "''" else word.format("parsecs") for word in line.split()]
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert "{}" not in line or "'parsecs'" in err
    assert not [word for word in ("secret", "Traceback") if word in err]


@pytest.mark.parametrize("words", [("run", "job", "--", "true"), ("status",)])
def test_without_nodes_it_says_how_to_name_them(
    words: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither option nor variable."""
    monkeypatch.delenv("REDLOCK_URLS", raising=False)
    code, _, err = cli(*words)
    assert (code, "REDLOCK_URLS" in err) == (2, True)


def test_a_ttl_that_a_given_quarantine_does_not_outlast_is_2(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock may be held for longer than a node that forgot it keeps still; the message names both."""
    monkeypatch.setenv(QUARANTINE_VARIABLE, "60")
    code, _, err = cli("run", "--nodes", NOWHERE, "--ttl", "100", "job", "--", "true")
    assert code == 2
    assert not [word for word in ("ttl=100", "=60", "restart_quarantine") if word not in err.lower()]


@pytest.mark.parametrize("line", ["run job -- true", "status", "release stuck --yes", "init"])
def test_one_server_given_twice_is_2(
    line: str, shared_nodes: Nodes, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration error that only the servers' answers show: two of its votes would be a majority."""
    url, other = shared_nodes.urls[:2]
    before = [ask(one, "GET", "redlock:{meta}") for one in (url, other)]
    monkeypatch.setenv("REDLOCK_URLS", f"{url},{url.replace('127.0.0.1', 'localhost')},{other}")
    code, out, err = cli(*line.split())
    assert (code, out) == (2, "")
    assert "the same server" in err
    assert url in err
    assert [ask(one, "GET", "redlock:{meta}") for one in (url, other)] == before


@pytest.mark.parametrize("name", ["", "fence:{redlock:x}", "{meta}", "x" * 1025])
def test_what_is_no_lock_is_not_released(name: str, shared_nodes: Nodes, cli: Cli) -> None:
    """Counters and incarnation records cannot be deleted by mistake."""
    before = [ask(url, "KEYS", "*") for url in shared_nodes.urls]
    code, out, err = cli("release", name, "--yes", "--nodes", ",".join(shared_nodes.urls))
    assert (code, out, bool(err)) == (2, "", True)
    assert [ask(url, "KEYS", "*") for url in shared_nodes.urls] == before


@pytest.mark.process
def test_a_name_that_is_something_elses_is_2(runs: Runs) -> None:
    """It is not waited for, and the command is not started; the message says what is there."""
    for url in runs.nodes.urls:
        ask(url, "XADD", "redlock:job", "*", "field", "value")
    code, out, err = runs.finish("job", "--", "echo", "started")
    assert (code, out) == (2, "")
    assert "lock 'job' is requested as a mutex" in err
    assert "holds a stream, which is not a lock of this package" in err
