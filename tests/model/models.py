"""The models: what TLC checks of each, how large it is, and its wrong variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .tlc import Outcome, check


@dataclass(frozen=True)
class Variant:
    """A rule that is broken on purpose, by a constant of the model."""

    rule: str
    """The number of the rule in RULES.md."""
    breaks: str
    """The invariant or property that TLC must find violated."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Constants that the counterexample needs beside the constant of the variant: more clients, say."""


@dataclass(frozen=True)
class Model:
    """A specification in this folder, checked exhaustively within bounds."""

    constants: Mapping[str, str]
    """The bounds of the small check, of seconds: CI runs it."""
    large: Mapping[str, str]
    """Constants of the large check, of minutes or hours: it is run by hand."""
    invariants: tuple[str, ...]
    variants: Mapping[str, Variant]
    """By the constant, which is FALSE in what ships."""
    behind: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    """By invariant, for those that no variant breaks first: a variant that breaks it, and what that needs."""
    properties: tuple[str, ...] = ()
    """Temporal properties: checked by themselves, since TLC does not combine them with symmetry."""
    tiny: Mapping[str, str] = field(default_factory=dict)
    """Constants of the check of the properties, which takes longer for each state."""
    large_tiny: Mapping[str, str] = field(default_factory=dict)
    """The same by hand."""
    symmetric: tuple[str, ...] = ("Nodes", "Clients")


NODES: Final = "{n1, n2, n3}"
TWO: Final = "{a, b}"
THREE: Final = "{a, b, c}"

REMEMBERED: Final = {"Losses": "0", "Refuses": "FALSE"}
"""Of Members: nodes forget nothing, and no client is refused."""
BEGUN: Final = {"Linked": "[c |-> {1, 2, 3}, d |-> {2, 4}]", "Faults": "3", "Refuses": "FALSE"}
"""Of Members: one client uses its whole list, the other lacks a node, and more faults follow."""

MODELS: Final[Mapping[str, Model]] = {
    "ReadWrite": Model(
        constants={"Nodes": NODES, "Clients": TWO, "Attempts": "1"},
        large={"Attempts": "2"},
        invariants=("Exclusion", "InOrder", "Unique", "NoLeak"),
        variants={
            "ReadsFromOne": Variant("R20", "Exclusion"),
            "ExtendsTooLong": Variant("R3", "Exclusion"),
            "DowngradeFrees": Variant("R23", "Exclusion"),
            "RaisesNobody": Variant("R21", "InOrder", {"Clients": THREE}),
            "TakesTheLeast": Variant("R21", "InOrder", {"Clients": THREE}),
            "WritersMayBeOdd": Variant("R21", "Unique", {"Clients": THREE}),
            "ReadersKeepFence": Variant("R21", "Unique"),
            "RaisesOthers": Variant("R10", "Unique", {"Attempts": "2"}),
            "UndoesGrantsOnly": Variant("R5", "NoLeak"),
        },
    ),
    "Semaphore": Model(
        constants={
            "Nodes": NODES,
            "Clients": TWO,
            "Permits": "[c \\in Clients |-> IF c = a THEN 1 ELSE 2]",
            "Attempts": "1",
        },
        large={"Clients": THREE, "Permits": "[x \\in Clients |-> 2]"},
        invariants=("Exclusion", "AtMost", "OneSlot", "NoLeak"),
        variants={
            "AnySlotCounts": Variant("R24", "Exclusion"),
            "KeepsOrphans": Variant("R25", "NoLeak"),
            "KeepsBoth": Variant("R25", "OneSlot"),
            "ExtendsTooLong": Variant("R3", "Exclusion"),
        },
        behind={"AtMost": ("ExtendsTooLong", {"Permits": "[c \\in Clients |-> 1]"})},
        symmetric=("Nodes",),  # one client states fewer permits than the other (R26)
    ),
    "Election": Model(
        constants={"Nodes": NODES, "Clients": TWO, "Events": "2"},
        large={"Events": "3"},
        invariants=("Alone", "Won", "Growing", "Over", "Vacant", "Known"),
        variants={
            "FewWin": Variant("R1", "Alone"),
            "AnnouncesEarly": Variant("R31", "Won"),
            "AnnouncesOnce": Variant("R31", "Known"),
            "KeepsLast": Variant("R31", "Known"),
            "BelievesOwners": Variant("R32", "Won"),
            "OneDecides": Variant("R32", "Known"),
            "OneIsFree": Variant("R32", "Vacant"),
            "MuteCount": Variant("R12", "Vacant"),
            "Forgets": Variant("R32", "Growing"),
            "ForgetsEnd": Variant("R32", "Growing"),
            "EndsUnread": Variant("R32", "Over"),
            "ReadsOnce": Variant("R32", "Vacant"),
        },
    ),
    "Redlock": Model(
        constants={
            "Nodes": NODES,
            "Clients": TWO,
            "Attempts": "2",
            "Extensions": "1",
            "Faults": "1",
        },
        large={"Clients": THREE, "Attempts": "3", "Extensions": "0"},
        invariants=("Exclusion", "Undone", "NoLeak"),
        variants={
            "AnswersDecide": Variant("R1", "Exclusion"),
            "ExtendsTooLong": Variant("R3", "Exclusion"),
            "UndoesGrantsOnly": Variant("R5", "Undone"),
            "UndoOvertakes": Variant("R5", "Undone"),
            "LedgerForgets": Variant("R5", "Undone"),
            "LedgerTrusts": Variant("R5", "Undone"),
            "DeletionSettles": Variant("R5", "Undone", {"Attempts": "1", "Faults": "2"}),
            "ReleasesAny": Variant("R6", "Exclusion", {"Attempts": "3", "Extensions": "0"}),
            "RepairsReleased": Variant("R6", "Undone"),
            "ExtensionCreates": Variant("R8", "Undone"),
            "FewExtend": Variant("R8", "Exclusion"),
            "NoQuarantine": Variant("R12", "Exclusion"),
            "ShortQuarantine": Variant("R12", "Exclusion"),
        },
        behind={"NoLeak": ("LedgerForgets", {})},
        properties=("Settles",),
        tiny={"Attempts": "1"},
        large_tiny={"Attempts": "2", "Extensions": "0"},
    ),
    "Fence": Model(
        constants={
            "Nodes": NODES,
            "Clients": TWO,
            "Sizes": "{1, 2}",
            "Attempts": "2",
            "Losses": "1",
            "Top": "4",
        },
        large={"Clients": THREE, "Attempts": "3"},
        invariants=("Unique", "Ordered"),
        variants={
            "AnyGreatest": Variant("R10", "Unique"),
            "CountsAbove": Variant("R10", "Unique"),
            "GrantsBelow": Variant("R10", "Unique"),
            "RaisesOthers": Variant("R10", "Unique"),
            "Moves": Variant("R10", "Unique"),
            "SameOwner": Variant("A5", "Unique", {"Sizes": "{1}"}),
            "NoFloor": Variant("R11", "Unique"),
            "AddsOne": Variant("R43", "Unique"),
            "UsesOn": Variant("R43", "Ordered", {"Attempts": "3"}),
        },
    ),
    "Members": Model(
        constants={
            "Lists": "[c |-> {1, 2, 3}, d |-> {1, 2, 4}]",
            "Linked": "[c |-> {}, d |-> {}]",
            "Life": "2",
            "Faults": "2",
            "Losses": "1",
            "Refuses": "TRUE",
        },
        large={"Faults": "4", "Refuses": "FALSE"},
        invariants=("Exclusion", "Few", "Alone", "GoesOn", "Refused"),
        variants={
            "IgnoresUnmet": Variant("R12c", "Exclusion", REMEMBERED),
            "CountsKnownOnce": Variant("R12c", "Exclusion", REMEMBERED),
            "IgnoresWaiting": Variant("R12c", "Exclusion", BEGUN),
            "TellsReached": Variant("R12c", "Exclusion", REMEMBERED),
            "TellsNoAge": Variant("R12c", "Exclusion", REMEMBERED),
            "TellsLater": Variant("R12c", "Exclusion", REMEMBERED),
            "KeepsRank": Variant("R12c", "Few", REMEMBERED | {"Linked": "[c |-> {1, 3}, d |-> {}]"}),
            "ForgetsOwn": Variant("R12c", "Exclusion", REMEMBERED | {"OutOfTouch": "TRUE"}),
            "RefusesNobody": Variant("R12c", "Refused"),
            "RefusesUnmet": Variant("R12c", "Alone"),
            "OutOfTouch": Variant("R12c", "Exclusion", REMEMBERED),
        },
        behind={"GoesOn": ("ForgetsOwn", REMEMBERED | {"OutOfTouch": "TRUE"})},
        symmetric=(),  # the lists differ, and identities are in an order
    ),
}


def run(
    name: str,
    *,
    variant: str | None = None,
    large: bool = False,
    temporal: bool = False,
    invariant: str | None = None,
    constants: Mapping[str, str] | None = None,
    folder: Path,
    workers: int = 1,
) -> Outcome:
    """Check a model, or one of its wrong variants, in a folder for TLC's files.

    The invariants are checked, or a single one, or with `temporal` the properties.  `constants` are others
    than those of the small bounds.
    """
    model = MODELS[name]
    values = dict(model.constants) | dict.fromkeys(model.variants, "FALSE")
    if temporal:
        values |= model.large_tiny if large else model.tiny
    elif large:
        values |= model.large
    if variant is not None:
        values |= {**model.variants[variant].constants, variant: "TRUE"}
    invariants = model.invariants if invariant is None else (invariant,)
    return check(
        name,
        values | dict(constants or {}),
        invariants=() if temporal else invariants,
        properties=model.properties if temporal else (),
        symmetric=() if temporal else model.symmetric,
        folder=folder,
        workers=workers,
        timeout=6 * 3600.0 if large else 900.0,
    )
