"""``aioredlock-ng acl``: its line makes a user on a real server that may do what it says, and no more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes
from tests.cli.runs import Cli
from tests.docs.pages import DOCS
from tests.servers import ask

KINDS = {
    "mutex": ("+set", {"mutex"}),
    "read-write": ("+zadd +zrem +zscore +zrevrange +zremrangebyscore", {"read lock", "write lock"}),
    "semaphore": ("+hget +hgetall +hset +hdel", {"semaphore"}),
    "fair": ("+zadd +zrem +zscore +zrevrange +zrange +zrank", {"fair mutex"}),
}
"""The rights of each kind, and what its locks are called in a finding."""


async def lacking(url: str, line: str) -> set[str]:
    """Make the user of a line on a server; return the kinds of locks that `doctor` says it cannot have."""
    ask(url, "ACL DELUSER", "locks")
    ask(url, *line.split())
    user = url.replace("redis://", "redis://locks:secret@")
    async with LockManager([user], prefix="a b:", node_timeout=2) as manager:
        findings = await manager.diagnose()
        queue = await manager.queue("a lock without waiters")
    nouns = {noun for _, of_kind in KINDS.values() for noun in of_kind}
    rights = [one for one in findings if one.check in ("rights", "quorum") and one.level != "ok"]
    if any(one.level == "error" for one in rights):
        return nouns
    assert queue.silent == (), "`status` asks for waiters whatever the kind"
    said = [part.split(":")[0].split(", ") for one in rights for part in one.message.split("; ")]
    return nouns & {noun for part in said for noun in part}


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
async def test_the_line_of_a_kind_is_the_least(
    kind: str, make_nodes: Callable[..., LocalNodes], cli: Cli
) -> None:
    """Its locks can be had, of which the diagnosis tries all steps; with one command less they cannot."""
    (url,) = make_nodes(1).urls
    ask(url, "CONFIG SET", "maxmemory-policy", "noeviction")
    code, line, err = await asyncio.to_thread(cli, "acl", "--kinds", kind, "--admin", "--prefix", "a b:")
    assert (code, err, line.startswith("ACL SETUSER locks on >secret ")) == (0, "", True)
    rights, nouns = KINDS[kind]
    assert not nouns & await lacking(url, line)
    for right in rights.split():
        less = " ".join(word for word in line.split() if word != right)
        assert nouns & await lacking(url, less), right


def test_without_options_it_is_the_line_of_the_page(cli: Cli) -> None:
    """The rights for all kinds; a kind that there is not is wrong usage."""
    (line,) = re.findall(r"^ACL SETUSER locks .*$", (DOCS / "operate" / "nodes.md").read_text(), re.MULTILINE)
    assert cli("acl") == (0, f"{line}\n", "")
    assert cli("acl", "--kinds", "mutex,read-write,semaphore,fair") == (0, f"{line}\n", "")
    code, _, err = cli("acl", "--kinds", "mutex,barrier")
    assert (code, "kinds are mutex, read-write, semaphore, fair, got 'barrier'" in err) == (2, True)
