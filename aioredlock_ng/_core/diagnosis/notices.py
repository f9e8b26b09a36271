"""Whether those who wait are told of releases, or have to ask again and again (R13)."""

from __future__ import annotations

from .facts import BY_CLIENT, NOT_ASKED, NodeFacts
from .findings import Finding, bad, ok
from .reasons import explained
from .rights import COUNT_RIGHT, NOTICE_RIGHTS, channel_rule, denied


def check_notices(node: NodeFacts, prefix: bytes) -> Finding | None:
    """Report what keeps notices away, which costs time and nothing else; None where worse is told."""
    deaf = node.deaf
    why = "" if deaf is None or deaf is BY_CLIENT else deaf.reason
    if deaf is NOT_ASKED or why in (reason for _, reason in node.failures):
        return None
    if not why and not node.mute and not node.uncounted:
        polls = "" if deaf is None else "; a client hears of none, so that its manager's waiters poll"
        return None if node.failures else ok(node, "notices", f"releases are published{polls}")
    faults, advice = [], []
    if why:
        faults.append(f"it does not tell us of releases ({why})")
    if node.mute:
        faults.append("it tells nobody of ours (PUBLISH is refused)")
    if node.uncounted:
        faults.append("it does not say how many wait for a release (PUBSUB NUMSUB is refused)")
    if why and not denied(why):
        advice.append(explained(why, "notices", prefix)[1])
    lacks = (("+publish", node.mute), (COUNT_RIGHT, node.uncounted))
    rights = NOTICE_RIGHTS if denied(why) else " ".join(right for right, lacking in lacks if lacking)
    if rights:
        # Who could subscribe has the channels; a server refuses to add some of them to all.
        has_channels = deaf is None or not (node.mute or denied(why))
        channels = "" if has_channels else f", and {channel_rule(prefix)} unless it has all channels"
        advice.append(f"give its user the rights {rights}{channels}")
    costs = "waiters poll, and get the lock later"
    if not why and not node.mute:
        costs = "of many processes that wait for one lock, all ask whenever it is released"
    return bad(node, "notices", "warning", f"{' and '.join(faults)}: {costs}", "; ".join(advice))
