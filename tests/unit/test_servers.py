"""The arms that give tests real servers behave the same, and say why when they cannot run."""

from __future__ import annotations

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
