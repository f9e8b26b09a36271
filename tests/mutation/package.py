"""The package as edits see it: by the names of what it defines, wherever that stands."""

from __future__ import annotations

import ast
import contextlib
import difflib
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from .mutation import PACKAGE, Edit, TextEdit
from .source import UnfitError, definitions, holders


class Package:
    """The package in one copy of the project; its definitions are looked up once."""

    def __init__(self, root: Path) -> None:
        self._folder = root / PACKAGE

    def path(self, file: str) -> Path:
        """Return the path of a file under the package."""
        return self._folder / file

    def broken(self, edits: Iterable[Edit | TextEdit]) -> Mapping[str, str]:
        """Return the text of each file that edits change, after all of them.

        Raises:
            UnfitError: One of them does not fit the code; the message says which, and why.
        """
        texts: dict[str, str] = {}
        for edit in edits:
            try:
                file = edit.file if isinstance(edit, TextEdit) else self.file_of(edit.where)
                texts[file] = edit.apply(texts.get(file) or self.path(file).read_text())
            except UnfitError as error:
                hint = "" if isinstance(edit, TextEdit) else self._elsewhere(edit)
                raise UnfitError(f"{edit}: {error}{hint}:\n{textwrap.dedent(edit.old).strip()}") from None
        return texts

    def file_of(self, where: str) -> str:
        """Return the one file that defines a name; with "module:" before the name a file of that module."""
        module, _, name = where.rpartition(":")
        files = [file for file in self._files.get(name, ()) if module in ("", module_of(file))]
        if not files:
            raise UnfitError(f"the package does not define {where}{self._meant(name)}")
        if len(files) > 1:
            raise UnfitError(
                f"{where} is defined in {', '.join(files)}: say which, as in {module_of(files[0])}:{name}"
            )
        return files[0]

    def _elsewhere(self, edit: Edit) -> str:
        """Return where the code stands that an edit looks for: it may have moved."""
        found = []
        with contextlib.suppress(UnfitError):
            for file, path in self._modules:
                found += [f"{module_of(file)}:{name}" for name in holders(path.read_bytes(), edit.old)]
        return f"; it is in {', '.join(found[:5])}" if found else ""

    def _meant(self, name: str) -> str:
        last = name.rpartition(".")[2]
        similar = [each for each in self._files if each.rpartition(".")[2] == last]
        similar = similar or difflib.get_close_matches(name, self._files)
        return f"; it does define {', '.join(sorted(similar)[:5])}" if similar else ""

    @property
    def _modules(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(self._folder.rglob("*.py")):
            yield path.relative_to(self._folder).as_posix(), path

    @cached_property
    def _files(self) -> Mapping[str, list[str]]:
        files: dict[str, list[str]] = {}
        for file, path in self._modules:
            for name in dict.fromkeys(name for name, _ in definitions(ast.parse(path.read_bytes()))):
                files.setdefault(name, []).append(file)
        return files


def module_of(file: str) -> str:
    """Return the last part of a module's dotted path."""
    path = Path(PACKAGE, file)
    return path.parent.name if path.stem == "__init__" else path.stem
