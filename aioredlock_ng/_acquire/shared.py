"""What the calls of `acquire` of one manager share."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import final

from .._clock import Clock
from .._core.policy import RetryPolicy
from .._hold.ancestors import Ancestors
from .._hold.holding import Holdings
from .._hold.hooks import HookList
from .._local.admission import Admission
from .._local.local_queue import LocalQueue
from .._local.pauses import Pauses
from .._round.availability import Availability
from .._statistics import Counters
from .attempt import Tries
from .long_waits import LongWaits
from .notices import Notices
from .refusals import LocalRefusals
from .telling import EternalKeys


@final
@dataclass(slots=True, eq=False, kw_only=True)
class Shared:
    """What one call uses, and others beside it."""

    clock: Clock
    random: Random
    node_timeout: float
    retry: RetryPolicy
    availability: Availability
    admission: Admission
    queue: LocalQueue
    local: LocalRefusals
    tries: Tries
    holdings: Holdings
    notices: Notices
    pauses: Pauses
    long_waits: LongWaits
    hooks: HookList
    counters: Counters
    eternal: EternalKeys
    ancestors: Ancestors
