"""Links lead somewhere: to files of the repository, and to headings that are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import DOCS, LINKED, README, name_of, without_blocks
from tests.environments.interpreters import ROOT

_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return what GitHub and the site make of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page.read_text()), re.MULTILINE)
    slugs = [re.sub(r"[^\w -]", "", heading).lower().strip().replace(" ", "-") for heading in headings]
    assert len(slugs) == len(set(slugs)), f"{page.name} has two equal headings"
    return frozenset(slugs)


def leads_nowhere(page: Path, link: str) -> bool:
    """Return whether a link of a page has no file, or its anchor no heading."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return bool(anchor) and (target.suffix != ".md" or anchor not in anchors(target))


def test_every_link_leads_somewhere() -> None:
    """Relative links, which work on GitHub and in a clone, point at what is there."""
    links = ((page, link) for page in LINKED for link in _LINK.findall(without_blocks(page.read_text())))
    local = ((page, link) for page, link in links if "://" not in link)
    assert [(name_of(page), link) for page, link in local if leads_nowhere(page, link)] == []


def test_every_page_is_in_the_navigation() -> None:
    """A page that no other leads to is not read."""
    named = set(re.findall(r"[\w/-]+\.md", (DOCS / "mkdocs.yml").read_text()))
    assert {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} <= named


@pytest.mark.parametrize("folder", ["how-to", "operate", "recipes"])
def test_the_readme_leads_to_every_page_of_a_group(folder: str) -> None:
    """Its list of the documentation is complete, for what one does."""
    there = {page.relative_to(ROOT).as_posix() for page in (DOCS / folder).glob("*.md")}
    assert there - set(_LINK.findall(README.read_text())) == set()


def test_the_site_needs_no_other_host() -> None:
    """No fonts, styles or scripts are fetched from elsewhere."""
    settings = (DOCS / "mkdocs.yml").read_text()
    assert re.search(r"^  font: false\b", settings, re.MULTILINE)
    assert "://" not in settings
