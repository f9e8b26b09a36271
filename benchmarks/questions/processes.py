"""How does one name go round among 1 to 300 processes with one task each?

Hand-offs per second, commands per hand-off, and what the process gets that gets least.  A number in a file,
read at the beginning of a section and written at its end, shows that no two were inside at once.  At the end
of a turn those that wait give up, and the next turn has another name: with some peers a few would wait for
ever.
"""

from __future__ import annotations

from typing import Final

from aioredlock_ng.testing import local_nodes
from benchmarks.bench import NODES, Bench
from benchmarks.cycles import median, new_prefix, rate
from benchmarks.driver import Figures, TroubleError, Turns, Worker, take_turns
from benchmarks.environments import UnavailableError, python_of
from benchmarks.questions.hot_name import PATIENCE, counted, of_each, slowest
from benchmarks.sharing import SECTION, contest

TABLE = "One name, 1 to 300 processes"
ASKED: Final = ("ours-plain", "ours-fenced", "ours-fair", "aioredlock", "redis-py")
ROUNDS: Final = 4
"""How often each process could have its turn in what is measured, at least."""

COLD: Final = 0.5
"""Seconds until all processes have got the order to begin."""


async def ask(bench: Bench) -> None:
    """Ask peer by peer: idle processes of another one would not be idle, with so many heartbeats."""
    stuck: dict[str, str] = {}
    for number in bench.settings.crowds:
        bench.say(f"  {number} processes")
        for peer in bench.peers(lambda spec: spec.excludes and not spec.inside, "processes"):
            if peer not in ASKED:
                continue
            if peer in stuck:  # more of them would not do better
                add_row(bench, peer, number, Turns(trouble=stuck[peer]), None)
                continue
            try:
                turns, commands = await of_crowd(bench, peer, number)
            except UnavailableError as error:
                bench.say(f"!!! {peer.upper()} IS LEFT OUT: {error}")
                continue
            except TroubleError as trouble:
                turns, commands = Turns(trouble=str(trouble)), None
            if turns.trouble:
                stuck[peer] = f"{turns.trouble} ({number} processes)"
            add_row(bench, peer, number, turns, commands)


async def of_crowd(bench: Bench, peer: str, number: int) -> tuple[Turns, float | None]:
    """Start so many processes, and let them have turns; the last one is counted instead of timed.

    Raises:
        UnavailableError: the peer cannot be had.
        TroubleError: its processes cannot be opened, or failed when commands were counted.
    """
    settings = bench.settings
    python = str(await python_of(peer, settings.environments))
    command = ("-m", "benchmarks.crowd", "--loop", bench.loop, "--copies", str(number))
    crowd = Worker(python, *command)
    seconds = max(settings.hot, ROUNDS * number * SECTION)

    async def turn(seconds: float = seconds) -> Figures:
        return await crowd_turn(crowd, seconds, settings.limit)

    async with local_nodes(NODES, server=settings.server) as nodes:
        try:
            await crowd.open(peer, nodes.urls)
            await turn(settings.hot)
            turns = (await take_turns({peer: turn}, seconds=0, at_least=max(1, settings.least // 2)))[peer]
            commands = None
            if turns.trouble is None:
                commands = (await counted(turn, nodes.urls))["commands"]
            await crowd.close(settings.limit)
        finally:
            await crowd.end()
    return turns, commands


async def crowd_turn(crowd: Worker, seconds: float, limit: float) -> Figures:
    """Let all processes of a crowd want the name at once."""

    async def share(order: Figures) -> list[Figures]:
        told = await crowd.do("share", limit=seconds + PATIENCE * limit, **order)
        return list(told["parts"])

    order = {"name": new_prefix("shared"), "pause": 0.0, "give_up": True}
    parts = await contest(share, seconds=seconds, cold=COLD, **order)
    had = [part["had"] for part in parts]
    return {
        "rate": sum(had) / seconds,
        "rates": [number / seconds for number in had],
        "done": sum(part["done"] for part in parts),
    }


def add_row(bench: Bench, peer: str, number: int, turns: Turns, commands: float | None) -> None:
    """Add a row."""
    bench.report.add(
        TABLE,
        loop=bench.loop,
        processes=number,
        peer=peer,
        handoffs_per_s=median(turns, rate),
        commands_per_handoff=commands,
        slowest_process=slowest(turns),
        without_a_turn=sum(not any(rates) for rates in of_each(turns)) if turns.figures else None,
        turns=len(turns.figures),
        trouble=turns.trouble,
    )
