"""What the site has beside the pages of this folder: files of the repository that they link to.

Links are written as GitHub follows them, relative to the file in the repository.  Here each leads to the
page of its target: one of this folder, one of `ELSEWHERE`, or one made of a file of code, so that the site
is whole without the repository.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent.parent

ELSEWHERE: Final = {
    "README.md": "index.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/SECURITY.md": "explanation/security.md",
    "CHANGELOG.md": "changelog.md",
    "aioredlock_ng/_core/RULES.md": "explanation/rules.md",
    "benchmarks/README.md": "explanation/benchmarks.md",
    "tests/README.md": "explanation/tests.md",
}
"""Pages that stand where they are worked with, and what they are called here."""

LANGUAGES: Final = {".c": "c", ".lua": "lua", ".py": "python", ".toml": "toml", ".yaml": "yaml"}
"""What is shown with colours."""

_NOT_SEARCHED: Final = "---\nsearch:\n  exclude: true\n---\n"
"""A search is for pages, not for the tests that they name."""

_LINK: Final = re.compile(r"(?<=\]\()([^)#\s:]+)((?:#[^)\s]*)?)(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the pages from this folder, which is also that of mkdocs.yml."""
    config.docs_dir = str(ROOT / "docs")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere, and all that pages link to."""
    for file, name in ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / file).read_text()))
    found = {_place(file.src_uri): file for file in files}
    left = [file for file in files if file.is_documentation_page()]
    while left:
        for target in _targets(left.pop()):
            if target not in found:
                found[target] = added = _made_of(target, config)
                files.append(added)
                if added.is_documentation_page():
                    left.append(added)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Let each link lead to the page of its target."""
    here = page.file.src_uri

    def there(link: re.Match[str]) -> str:
        target = _target(here, link[1])
        return posixpath.relpath(_name(target), posixpath.dirname(here)) + link[2] if target else link[0]

    return _LINK.sub(there, markdown)


def _place(name: str) -> str:
    """Return where in the repository a file of the site stands."""
    for file, known in ELSEWHERE.items():
        if known == name:
            return file
    if name.startswith("source/"):
        return name.removeprefix("source/").removesuffix(".md").removesuffix("/index")
    return f"docs/{name}"


def _name(target: str) -> str:
    """Return what a file of the repository is called here."""
    if target in ELSEWHERE:
        return ELSEWHERE[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target.endswith(".svg"):
        return f"source/{target}"
    return f"source/{target}/index.md" if (ROOT / target).is_dir() else f"source/{target}.md"


def _targets(file: File) -> Iterator[str]:
    """Return all that a page links to within the repository."""
    for link, _ in _LINK.findall(file.content_string):
        if target := _target(file.src_uri, link):
            yield target


def _target(here: str, link: str) -> str | None:
    """Return the file or folder that a page's link leads to; a folder's page is its README.md."""
    place = _place(here)
    folder = place if here.startswith("source/") and (ROOT / place).is_dir() else posixpath.dirname(place)
    target = posixpath.normpath(posixpath.join(folder, link))
    if f"{target}/README.md" in ELSEWHERE:
        return f"{target}/README.md"
    return target if (ROOT / target).exists() else None  # mkdocs says what is wrong with the others


def _made_of(target: str, config: MkDocsConfig) -> File:
    """Return a file of code, or a folder, as a page; a picture as it is."""
    path, name = ROOT / target, _name(target)
    if target.endswith(".svg"):
        return File.generated(config, name, abs_src_path=str(path))
    if path.is_dir():
        listed = sorted(each.name for each in path.iterdir() if each.suffix in LANGUAGES)
        text = "\n".join(f"- [{each}]({each})" for each in listed)
    else:
        text = f"``````{LANGUAGES.get(path.suffix, '')}\n{path.read_text()}``````"
    return File.generated(config, name, content=f"{_NOT_SEARCHED}\n# {target}\n\n{text}\n")
