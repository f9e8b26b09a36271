"""All mutations, in the order of the rules."""

from __future__ import annotations

from typing import Final

from . import (
    of_batches,
    of_deadlines,
    of_elections,
    of_extensions,
    of_fair,
    of_fences,
    of_handoff,
    of_kinds,
    of_nodes,
    of_outbox,
    of_quarantine,
    of_read_write,
    of_reentry,
    of_releases,
    of_rounds,
    of_semaphores,
    of_turns,
    of_waiting,
)

MUTATIONS: Final = (
    *of_rounds.MUTATIONS,
    *of_releases.MUTATIONS,
    *of_deadlines.MUTATIONS,
    *of_extensions.MUTATIONS,
    *of_fences.MUTATIONS,
    *of_quarantine.MUTATIONS,
    *of_waiting.MUTATIONS,
    *of_nodes.MUTATIONS,
    *of_kinds.MUTATIONS,
    *of_read_write.MUTATIONS,
    *of_turns.MUTATIONS,
    *of_semaphores.MUTATIONS,
    *of_fair.MUTATIONS,
    *of_reentry.MUTATIONS,
    *of_elections.MUTATIONS,
    *of_batches.MUTATIONS,
    *of_outbox.MUTATIONS,
    *of_handoff.MUTATIONS,
)
