"""The arms that give tests real servers behave alike, and say why when they cannot run."""

from __future__ import annotations

import pytest
import redis

from tests import servers
from tests.servers import Nodes, SharedSets, ask

ON_REAL_TIME = True


def answers(url: str) -> bool:
    """Return whether the server answers, however busy the machine is."""
    return servers.answers(int(url.rpartition(":")[2]), within=30.0)


def is_silent(url: str) -> bool:
    """Return whether nothing answers within a moment."""
    return not servers.answers(int(url.rpartition(":")[2]), within=0.2)


async def test_every_arm_can_kill_pause_resume_and_restart(any_nodes: Nodes) -> None:
    """Each server on its own; a restarted one comes back empty under the same URL."""
    urls = any_nodes.urls
    assert len(set(urls)) == 5
    ask(urls[0], "SET", "key", "value")
    ask(urls[1], "SET", "key", "value")
    any_nodes.kill(0)
    any_nodes.pause(1)
    assert all(map(is_silent, urls[:2]))
    assert all(map(answers, urls[2:]))
    any_nodes.resume(1)
    await any_nodes.restart(0)
    assert any_nodes.urls == urls
    assert all(map(answers, urls))
    assert (ask(urls[0], "GET", "key"), ask(urls[1], "GET", "key")) == (None, b"value")


def test_shared_servers_are_whole_and_empty_again(shared_sets: SharedSets) -> None:
    """Whatever an earlier test did: killed, paused, filled."""
    nodes = shared_sets(arm := servers.fastest_arm())
    for url in nodes.urls[2:]:
        ask(url, "SET", "key", "value")
    nodes.kill(0)
    nodes.pause(1)
    assert shared_sets(arm) is nodes
    assert [ask(url, "KEYS", "*") for url in nodes.urls] == [[b"redlock:{meta}"]] * 5


@pytest.mark.parametrize(
    "words",
    [
        ("CONFIG SET", "maxmemory", "2mb"),
        ("ACL SETUSER", "another", "on"),
        pytest.param(("CLIENT PAUSE", 3_600_000), marks=pytest.mark.heavy),
    ],
    ids=str,
)
def test_servers_that_were_configured_are_replaced(
    shared_sets: SharedSets, words: tuple[str | int, ...]
) -> None:
    """The next test gets others."""
    nodes = shared_sets(arm := servers.fastest_arm())
    ask(nodes.urls[0], *words)
    assert set(shared_sets(arm).urls).isdisjoint(nodes.urls)


def test_servers_that_are_still_in_use_are_replaced(shared_sets: SharedSets) -> None:
    """A client that is left may come back and write, whatever is done to its connection."""
    nodes = shared_sets(arm := servers.fastest_arm())
    with redis.Redis.from_url(nodes.urls[4]) as client:
        client.ping()
        assert set(shared_sets(arm).urls).isdisjoint(nodes.urls)


@pytest.mark.parametrize(
    ("required", "outcome"), [("", pytest.skip.Exception), ("path, docker", pytest.fail.Exception)]
)
@pytest.mark.parametrize("arm", ["path", "docker"])
def test_an_arm_that_cannot_run_says_why(
    monkeypatch: pytest.MonkeyPatch, arm: str, required: str, outcome: type[BaseException]
) -> None:
    """It is a skip with its reason, and a failure when REDLOCK_REQUIRE names it."""
    monkeypatch.setattr(servers, "unavailable", lambda arm: f"no {arm} today")
    monkeypatch.setenv("REDLOCK_REQUIRE", required)
    with pytest.raises(outcome, match=f"^{arm}: no {arm} today"):
        servers.skip_unless_available(arm)


def test_no_docker_engine_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is installed but not started does not hang the tests."""
    pytest.importorskip("docker", reason="docker: testcontainers is not installed")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert servers.unavailable.__wrapped__("docker") == "no engine answers"
