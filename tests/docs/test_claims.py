"""Claims of the README and of ``docs/`` are looked up, or tried."""

from __future__ import annotations

import itertools
import re
import tomllib

import aioredlock_ng
from tests.docs.pages import DOCS, PAGES, README
from tests.environments.interpreters import ROOT


def test_every_error_is_in_the_table() -> None:
    """The table of errors names the classes that the package exports, and misses none."""
    page = (DOCS / "how-to" / "locks.md").read_text()
    rows = set(re.findall(r"^\| `(\w+Error)` \|", page, re.MULTILINE))
    exported = {name for name in aioredlock_ng.__all__ if name.endswith("Error")}
    assert rows == exported - {"LockError", "LockNotAcquiredError"}


def test_every_reason_of_a_loss_is_told() -> None:
    """The row of `LockLostError` has them all."""
    page = (DOCS / "how-to" / "locks.md").read_text()
    (row,) = re.findall(r"^\| `LockLostError` \|.*`reason`: ([\w, ]+) \|$", page, re.MULTILINE)
    assert set(row.split(", ")) == {str(reason) for reason in aioredlock_ng.LossReason}


def test_every_hook_is_named() -> None:
    """The page about metrics names all hooks, and no other."""
    hooks = {name for name in vars(aioredlock_ng.Hooks) if name.startswith("on_")}
    page = (DOCS / "operate" / "metrics.md").read_text()
    assert set(re.findall(r"\bon_\w+", page)) == hooks


def test_every_fault_of_the_table_has_a_test() -> None:
    """Each row says whether exclusion holds, and links to what shows it."""
    page = (DOCS / "reference" / "faults.md").read_text()
    rows = re.findall(r"^\| (.*) \|$", page.partition("|---|---|---|---|\n")[2], re.MULTILINE)
    assert len(rows) >= 20
    for row in rows:
        _, exclusion, *_, seen = row.split(" | ")
        assert exclusion.startswith(("kept", "**broken**")), row
        assert "[test](../../tests/" in seen, row


def test_the_supported_versions_are_those_of_the_package() -> None:
    """The page has the lowest version of each dependency, and the Pythons of the classifiers."""
    page = (DOCS / "reference" / "versions.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    found = (re.match(r"(\w+).*>=([\d.]+)", line) for line in allowed)
    lowest = [each.groups() for each in found if each]
    assert len(lowest) > 8
    for name, version in lowest:
        assert re.search(rf"{name}[-\w| ]* {version}\b", page, re.IGNORECASE), name
    pythons = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: 3." in line]
    assert f"{pythons[0]} to {pythons[-1]}" in page


def test_the_readme_is_short() -> None:
    """A newcomer reads it to the end."""
    assert README.read_text().count("\n") <= 200


def test_sentences_name_who_acts() -> None:
    """Pages say which client, program or reader does something; the README's first screen is older."""
    vague = re.compile(r"\b(nobody|somebody|whoever|anybody|everybody)\b", re.IGNORECASE)
    found = {}
    for page in PAGES:
        text = page.read_text()
        text = text.partition("## Using the fence")[2] if page == README else text
        if words := vague.findall(text):
            found[page.name] = words
    assert found == {}
