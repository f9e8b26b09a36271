"""Show one run: its history, what it broke, and the command that does it again."""

from __future__ import annotations

from typing import Any

from tests.simulation.campaign import DETERMINISM, Failure, judged, silence
from tests.simulation.listing import Span, listed
from tests.simulation.plan import Plan, draw
from tests.simulation.shrink import Cut, shrink, whole
from tests.simulation.world import in_words, run


def report(failure: Failure, **options: Any) -> str:
    """Return what there is to know of a failure, in its smallest form; `options` are those of `plan.draw`."""
    plan = draw(failure.seed, **options)
    cut = whole(plan) if failure.rule == DETERMINISM else shrink(plan, failure.rule)
    return f"{shown(plan, cut, options)}\nfound as: {failure.rule}: {failure.text}"


def smallest(plan: Plan, cut: Cut) -> Cut:
    """Return as little as possible of a run that still breaks what this part of it breaks first."""
    with silence():
        broken = judged(run(cut.of(plan)))
    return shrink(plan, broken[0].rule, cut) if broken else cut


def shown(plan: Plan, cut: Cut, options: dict[str, Any], *, between: Span | None = None) -> str:
    """Return a part of a run as text.

    It shows what was `between` two times, or else what is around the first violation.
    """
    with silence():
        result = run(cut.of(plan))
    broken = judged(result)
    lines = [listed(result.history, broken, between=between), summary(plan, cut)]
    lines += [f"{violation.rule}: {violation.text}" for violation in broken]
    return "\n".join([*lines, f"again: {command(plan, cut, options)}"])


def summary(plan: Plan, cut: Cut) -> str:
    """Return a plan in words."""
    mode = "fenced" if plan.fencing else "plain"
    clocks = "clocks keep time" if plan.timed else "clocks may jump"
    clients = ", ".join(map(str, cut.clients))
    sizes = f"{plan.nodes} nodes, ttl {plan.ttl:g} s, quarantine {plan.quarantine:.3g} s"
    lines = [f"seed {plan.seed}: {sizes}, {mode}, {clocks}, clients {clients}"]
    for number in cut.faults:
        fault = plan.faults[number]
        where = f"node {fault.node}" if hasattr(fault, "node") else f"client {fault.client}"
        lines.append(
            f"  fault {number}: at {fault.at:.3f} s for {fault.lasts:.3f} s, {where}: {in_words(fault)}"
        )
    return "\n".join(lines)


def command(plan: Plan, cut: Cut, options: dict[str, Any]) -> str:
    """Return the command that shows exactly this again."""
    words = [f"python -m tests.simulation --replay {plan.seed}"]
    if (quarantine := options.get("quarantine")) is not None:
        words.append(f"--quarantine {quarantine:g}")
    words += [f"--{word}" for word in ("stubborn", "crowded", "permits", "fair") if options.get(word)]
    if not options.get("mixed", True):
        words.append("--unmixed")
    if cut != whole(plan):
        words.append(f"--clients {','.join(map(str, cut.clients))}")
        words.append(f"--faults '{','.join(map(str, cut.faults))}'")
    return " ".join(words)
