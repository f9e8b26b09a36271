"""What is published: the sdist has what README and docs lead to, and the README works without its files."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt

from tests.docs.pages import LINKED
from tests.environments.interpreters import ROOT

_LINK: Final = re.compile(r"\]\(([^)\s#]+)[^)\s]*\)")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both kinds of packages."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    """Read what the wheel says of itself."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def test_the_readmes_links_work_where_its_files_are_not(metadata: Message) -> None:
    """As an index of packages renders it, each leads to a heading of the page or a file of the repository."""
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= set(urls)
    text = metadata.get_payload()
    assert isinstance(text, str)
    html = MarkdownIt("commonmark").enable("table").render(text)
    links = re.findall(r'(?:href|src)="([^"]+)"', html)
    files = [link.removeprefix(f"{urls['Repository']}/blob/main/") for link in links if "/blob/" in link]
    assert len(files) > 40
    assert [file for file in files if not (ROOT / file.partition("#")[0]).exists()] == []
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert all((ROOT / url.partition("/blob/main/")[2]).exists() for url in urls.values())


def test_the_sdist_has_what_the_pages_lead_to(built: Path) -> None:
    """README, docs and the other pages: all files that they link to are in it, and these pages themselves."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        there = {Path(name).relative_to(Path(name).parts[0]) for name in archive.getnames()}
    there |= {parent for file in there for parent in file.parents}
    linked = set(LINKED)
    for page in LINKED:
        targets = (page.parent / link for link in _LINK.findall(page.read_text()) if "://" not in link)
        linked |= {target.resolve() for target in targets if target.exists()}
    assert {file.relative_to(ROOT) for file in linked} - there == set()
