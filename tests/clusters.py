"""A real Redis Cluster for tests: masters with a replica each, on this machine."""

from __future__ import annotations

from typing import Final, final

from aioredlock_ng.testing import LocalNodes
from tests.servers import ask, until

SLOTS: Final = 16384

FORM_TIMEOUT: Final = 60.0  # seconds for the servers to become a Cluster, or to agree again

OPTIONS: Final = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "1000",
    "cluster-config-file": "nodes-{port}.conf",
    "repl-diskless-sync-delay": 0,
    "cluster-replica-validity-factor": 0,
}


@final
class Cluster:
    """Servers that form one Cluster: the first `masters` of them, then one replica for each, or none."""

    def __init__(self, nodes: LocalNodes, masters: int) -> None:
        self.nodes = nodes
        self.urls = nodes.urls
        self.masters = masters
        self.ids = [str(_text(ask(url, "CLUSTER MYID"))) for url in self.urls]

    def form(self) -> None:
        """Let them meet, share the slots and replicate."""
        first = self.urls[0]
        for port in self.nodes.ports[1:]:
            ask(first, "CLUSTER MEET", "127.0.0.1", port)
        share = SLOTS // self.masters
        for i in range(self.masters):
            last = SLOTS - 1 if i == self.masters - 1 else (i + 1) * share - 1
            ask(self.urls[i], "CLUSTER ADDSLOTSRANGE", i * share, last)
        known = lambda: all(_known(url) == len(self.urls) for url in self.urls)  # noqa: E731
        until(known, "all know each other", within=FORM_TIMEOUT)
        for i in range(self.masters, len(self.urls)):
            ask(self.urls[i], "CLUSTER REPLICATE", self.ids[i - self.masters])
        self.settle()

    def settle(self) -> None:
        """Wait until all servers that answer agree on the slots and the replicas have caught up."""
        until(lambda: all(map(_is_well, self.urls)), "the Cluster is well", within=FORM_TIMEOUT)

    def primaries(self) -> list[int]:
        """Return which servers are masters now."""
        return [i for i, url in enumerate(self.urls) if ask(url, "INFO", "replication")["role"] == "master"]

    def another(self, i: int) -> int:
        """Return a master beside that one."""
        return next(other for other in self.primaries() if other != i)

    def master_of(self, prefix: str) -> int:
        """Return which server has the slot of a prefix, as all of them that answer say."""
        slot = int(ask(self.urls[0], "CLUSTER KEYSLOT", prefix))
        return next(i for i in range(len(self.urls)) if self.serves(i, slot))

    def serves(self, i: int, slot: int) -> bool:
        """Return whether a server is the master of a slot."""
        for first, last, master, *_ in ask(self.urls[i], "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return bool(_text(master[2]) == self.ids[i])
        return False

    def move(self, prefix: str, target: int) -> None:
        """Move the slot of a prefix with all its keys to another master, as ``redis-cli --cluster`` does."""
        source = self.master_of(prefix)
        slot = int(ask(self.urls[source], "CLUSTER KEYSLOT", prefix))
        ask(self.urls[target], "CLUSTER SETSLOT", slot, "IMPORTING", self.ids[source])
        ask(self.urls[source], "CLUSTER SETSLOT", slot, "MIGRATING", self.ids[target])
        while keys := ask(self.urls[source], "CLUSTER GETKEYSINSLOT", slot, 100):
            ask(
                self.urls[source],
                "MIGRATE", "127.0.0.1", self.nodes.ports[target], "", 0, 5000, "KEYS", *keys,
            )  # fmt: skip
        for i in sorted(self.primaries(), key=(target, source).__contains__, reverse=True):
            ask(self.urls[i], "CLUSTER SETSLOT", slot, "NODE", self.ids[target])


def _text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def _info(url: str) -> dict[str, str]:
    found = ask(url, "CLUSTER INFO")
    return dict(found)


def _known(url: str) -> int:
    return int(_info(url)["cluster_known_nodes"])


def _is_well(url: str) -> bool:
    replication = ask(url, "INFO", "replication")
    caught_up = replication["role"] == "master" or replication["master_link_status"] == "up"
    return caught_up and _info(url)["cluster_state"] == "ok"
