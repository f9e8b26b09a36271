"""Nodes as other libraries describe them, and other objects: the error says what to write."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio

from aioredlock_ng import ConfigurationError, LockManager
from aioredlock_ng.testing import MemoryNode

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (("10.0.0.1", 6379), "not a tuple: write redis://10.0.0.1:6379"),
        (["::1", "7000"], "not a list: write redis://[::1]:7000"),
        ({"host": "h"}, "not a dict: write redis://h:6379"),
        (
            {"host": "h", "port": 7, "db": 2, "password": SECRET, "username": "me"},
            "write redis://me:<password>@h:7/2",
        ),
        ({"host": "h", "ssl": True, "password": SECRET}, "write rediss://:<password>@h:6379"),
        ({"unix_socket_path": "/run/s", "password": SECRET}, "write unix://:<password>@/run/s"),
        (
            {"sentinels": [("h1", 26379), ("h2", 26380)], "master": "main", "db": 1, "password": SECRET},
            "write redis+sentinel://:<password>@h1:26379,h2:26380/main/1",
        ),
        ({"host": "h", "master": "main"}, "write redis+sentinel://h:26379/main"),
        ({"colour": SECRET}, "got a dict"),
        ((1, 2, 3), "got a tuple"),
        (7, "got a int"),
        (None, "got a NoneType"),
        (redis.asyncio.Redis, "got the class Redis itself: make one, Redis(…)"),
        (redis.asyncio.RedisCluster, "got the class RedisCluster itself"),
        (MemoryNode, "got the class MemoryNode itself: make one, MemoryNode(…)"),
        (
            redis.Redis(port=1, password=SECRET),
            "use a redis.asyncio.Redis with the same arguments, or its URL",
        ),
    ],
)
def test_what_is_no_node_is_told_what_to_write(node: Any, words: str) -> None:
    """The message has the URL that it would be, if there is one; never its password."""
    with pytest.raises(ConfigurationError) as caught:
        LockManager([node])
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_cluster_client_that_blocks_is_named() -> None:
    """Made without a connection: its constructor wants one."""
    client = redis.RedisCluster.__new__(redis.RedisCluster)
    with pytest.raises(ConfigurationError, match=r"redis\.asyncio\.RedisCluster with the same arguments"):
        LockManager([client])  # type: ignore[list-item]


def test_one_mapping_is_no_list() -> None:
    """The message has a list of one URL."""
    with pytest.raises(ConfigurationError, match=r"not a mapping: \['redis://h:6379'\]"):
        LockManager({"host": "h"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "kind"), [(redis.asyncio.Redis(), "Redis"), (MemoryNode(), "MemoryNode"), (None, "NoneType")]
)
def test_one_node_is_no_list(one: Any, kind: str) -> None:
    """A client answers to `[…]`, and so would be taken apart."""
    with pytest.raises(ConfigurationError, match=f"must be a list of nodes, got one {kind}"):
        LockManager(one)
