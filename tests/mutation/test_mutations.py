"""The suite notices when a rule of the protocol is broken, and the check that shows it can be trusted."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.mutation.check import Copy, Outcome, check
from tests.mutation.mutation import PACKAGE, ROOT, Edit, Mutation, TextEdit, UnfitError
from tests.mutation.mutations import MUTATIONS
from tests.mutation.package import Package
from tests.references import is_defined, rules

QUICK = "unit/core/test_quorum.py::test_no_nodes_are_no_quorum"
"""A test that takes no time."""


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """Give a private copy of the project; one per worker process, one mutation at a time."""
    with contextlib.closing(Copy(tmp_path_factory.mktemp("mutation"))) as copy:
        yield copy


def harmful(edit: Edit | TextEdit, test: str = QUICK) -> Mutation:
    """Return a mutation for a test of the check itself."""
    return Mutation(rule="R0", name="a try", edits=(edit,), test=test)


# -- the list ----------------------------------------------------------------------------------------


def misfit(package: Package, mutation: Mutation) -> str:
    """Return why a mutation does not fit the code or the tests of today."""
    file, _, test = mutation.test.partition("::")
    try:
        assert is_defined(file, test.partition("[")[0]), mutation.test
        for file, text in package.broken(mutation.edits).items():
            assert text != package.path(file).read_text(), file
            if file.endswith(".py"):
                compile(text, file, "exec")
    except (AssertionError, SyntaxError, UnfitError) as error:
        return f"{mutation}: {error}"
    return ""


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_every_mutation_fits_the_code_of_today():
    """The code that it replaces stands there once, the result is Python, and the test it names exists."""
    package = Package(ROOT)
    assert [why for mutation in MUTATIONS if (why := misfit(package, mutation))] == []


@pytest.mark.heavy
def test_every_case_that_is_named_is_there():
    """The case in brackets behind a test exists, too: a case of another name would prove nothing."""
    named = sorted({mutation.test for mutation in MUTATIONS})
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "", "--collect-only", *named]
    found = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_every_rule_is_broken_at_least_once():
    """There is a mutation for every rule, and no two have one name."""
    assert {mutation.rule for mutation in MUTATIONS} >= {rule for rule in rules() if rule.startswith("R")}
    assert len({str(mutation) for mutation in MUTATIONS}) == len(MUTATIONS)


# -- the check ---------------------------------------------------------------------------------------


@pytest.mark.mutation
def test_a_harmless_change_survives(copy):
    """Where no rule is broken nothing is caught; afterwards the copy is what it was."""
    path = copy.root / PACKAGE / "_core/quorum.py"
    before = path.read_text()
    edit = Edit("majority", "size // 2 + 1", "1 + size // 2")
    assert check(copy, harmful(edit)).outcome is Outcome.SURVIVED
    assert path.read_text() == before


# -- the suite ---------------------------------------------------------------------------------------


@pytest.mark.mutation
@pytest.mark.timeout(300)
def test_without_a_mutation_all_tests_pass(copy):
    """The tests that notice mutations find nothing in a copy without any."""
    result = copy.run(tuple(dict.fromkeys(mutation.test for mutation in MUTATIONS)))
    assert result.outcome is Outcome.SURVIVED, result


@pytest.mark.mutation
@pytest.mark.timeout(180)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_broken_rule_is_noticed(copy, mutation):
    """The test that is named fails by what it finds when the rule is broken."""
    result = check(copy, mutation)
    if result.outcome is Outcome.SKIPPED:
        pytest.skip(f"its test cannot run here: {result.line}")
    assert result.outcome is Outcome.CAUGHT, result
