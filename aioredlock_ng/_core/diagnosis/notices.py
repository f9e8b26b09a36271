"""Whether those who wait are told of releases, or have to ask again and again (R13)."""

from __future__ import annotations

from .facts import BY_CLIENT, NOT_ASKED, NodeFacts
from .findings import Finding, bad, ok
from .reasons import explained
from .rights import NOTICE_RIGHTS, channel_rule, denied


def check_notices(node: NodeFacts, prefix: bytes) -> Finding | None:
    """Report what keeps notices away, which costs time and nothing else; None where worse is told."""
    deaf = node.deaf
    why = "" if deaf is None or deaf is BY_CLIENT else deaf.reason
    if deaf is NOT_ASKED or why in (reason for _, reason in node.failures):
        return None
    if not why and not node.mute:
        polls = "" if deaf is None else "; a client hears of none, so that its manager's waiters poll"
        return None if node.failures else ok(node, "notices", f"releases are published{polls}")
    faults, advice = [], []
    if why:
        faults.append(f"it does not tell us of releases ({why})")
    if node.mute:
        faults.append("it tells nobody of ours (PUBLISH is refused)")
    if why and not denied(why):
        advice.append(explained(why, "notices", prefix)[1])
    if node.mute or denied(why):
        # Who could subscribe has the channels; a server refuses to add some of them to all.
        channels = "" if deaf is None else f", and {channel_rule(prefix)} unless it has all channels"
        advice.append(f"give its user the rights {NOTICE_RIGHTS if denied(why) else '+publish'}{channels}")
    message = f"{' and '.join(faults)}: who waits for a lock polls, and gets it later"
    return bad(node, "notices", "warning", message, "; ".join(advice))
