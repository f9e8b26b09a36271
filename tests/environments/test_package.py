"""Published packages: the sdist has the files that README and docs link to."""

from __future__ import annotations

import importlib.util
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
from tests.environments.interpreters import ROOT, InstallationError, make_environment
from tests.servers import required

_LINK: Final = re.compile(r"\]\(([^)\s#]+)[^)\s]*\)")


def build(folder: Path) -> Path:
    """Build both kinds of packages into a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both kinds of packages."""
    return build(tmp_path_factory.mktemp("dist"))


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


def test_two_builds_are_the_same_to_the_byte(built: Path, tmp_path: Path) -> None:
    """So a package can be compared with these sources: no time and no path is in it."""
    again = {file.name: file.read_bytes() for file in build(tmp_path).iterdir()}
    assert again == {file.name: file.read_bytes() for file in built.iterdir()}


def test_an_index_takes_the_packages(built: Path) -> None:
    """Their metadata is complete, and their description can be rendered."""
    if importlib.util.find_spec("twine") is None:
        give_up = pytest.fail if "release" in required() else pytest.skip
        give_up("twine is not installed: pip install --group release")
    files = sorted(map(str, built.iterdir()))
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == len(files) == 2


_USES: Final = """
import aioredlock_ng, asyncio, sys
from aioredlock_ng import _scripts
assert "site-packages" in aioredlock_ng.__file__, aioredlock_ng.__file__
assert _scripts.ACQUIRE_MANY.source and _scripts.GREET.source
print(aioredlock_ng.__version__)
"""


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_a_package_works_where_the_sources_are_not(built: Path, kind: str, tmp_path: Path) -> None:
    """It brings what it needs: its scripts, its command, and its dependencies."""
    (file,) = built.glob(kind)
    try:
        inside = make_environment(Path(sys.executable), tmp_path / "environment", [], package=str(file))
    except InstallationError as error:
        give_up = pytest.fail if "pythons" in required() else pytest.skip
        give_up(f"{file.name} could not be installed: {error}")
    for command in ((str(inside), "-c", _USES), (str(inside.with_name("aioredlock-ng")), "--version")):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-1] == file.name.split("-")[1].removesuffix(".tar.gz")
