"""TLC goes through every state of the models, and finds the counterexample of each wrong variant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.models import MODELS, run
from tests.model.tlc import FOLDER, LIVENESS
from tests.references import rules

BEHIND = [(name, invariant) for name, model in MODELS.items() for invariant in model.behind]
VARIANTS = [(name, variant) for name, model in MODELS.items() for variant in model.variants]


SHORT = ("Redlock", "Fence", "Semaphore")
"""Models that every run goes through: they take seconds."""

LONG = pytest.mark.campaign


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in SHORT else LONG) for n in MODELS])
def test_every_state_keeps_the_rules(name: str, folder: Path) -> None:
    """No invariant is violated in any state within the bounds, and each action is taken in some state."""
    found = run(name, folder=folder)
    assert found.broken is None, found.text
    assert found.states > 1_000
    assert found.untaken == frozenset()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.properties])
def test_all_comes_to_its_end(name: str, folder: Path) -> None:
    """The temporal properties hold, within bounds that are smaller still."""
    found = run(name, temporal=True, folder=folder)
    assert found.broken is None, found.text
    assert found.states > 1_000


@pytest.mark.campaign
def test_a_ledger_that_forgets_leaves_keys(folder: Path) -> None:
    """The check of the properties finds what they are for."""
    found = run("Redlock", variant="LedgerForgets", temporal=True, folder=folder)
    assert found.broken == LIVENESS, found.text[-2000:]


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_wrong_variant_is_found(name: str, variant: str, folder: Path) -> None:
    """A rule that is left out, or is another one, breaks what it is for."""
    found = run(name, variant=variant, folder=folder)
    assert found.broken == MODELS[name].variants[variant].breaks, found.text[-2000:]


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "invariant"), BEHIND)
def test_an_invariant_behind_others_can_be_violated(name: str, invariant: str, folder: Path) -> None:
    """TLC stops at the first one that is, which no variant has it be."""
    variant, constants = MODELS[name].behind[invariant]
    found = run(name, variant=variant, invariant=invariant, constants=constants, folder=folder)
    assert found.broken == invariant, found.text[-2000:]


def test_each_invariant_is_violated_by_some_variant() -> None:
    """Else it might say nothing."""
    for model in MODELS.values():
        broken = {variant.breaks for variant in model.variants.values()} | model.behind.keys()
        assert set(model.invariants) == broken


def test_each_model_is_in_the_table() -> None:
    """Modules, table and rules belong together."""
    assert {path.stem for path in FOLDER.glob("*.tla")} == {*MODELS, "History", "RedlockTrace"}
    known = rules()
    for model in MODELS.values():
        assert {variant.rule for variant in model.variants.values()} <= set(known)
