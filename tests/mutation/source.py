"""Python source by its syntax tree: what it defines, where a piece of code stands, and how it is replaced."""

from __future__ import annotations

import ast
import contextlib
import re
import textwrap
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

DEFINING: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_CONTEXT: Final = re.compile(r", ctx=(?:Load|Store|Del)\(\)")


class UnfitError(ValueError):
    """An edit does not fit the code."""


def shape(node: ast.AST) -> str:
    """Return what two pieces of code have in common that differ only in how they are written."""
    return _CONTEXT.sub("", ast.dump(node))


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Return functions, classes, and what is assigned outside of functions, by qualified name."""
    return _defined(tree, "", assigned=True)


def _defined(node: ast.AST, prefix: str, *, assigned: bool) -> Iterator[tuple[str, ast.stmt]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, DEFINING):
            yield prefix + child.name, child
            inside = assigned and isinstance(child, ast.ClassDef)
            yield from _defined(child, f"{prefix}{child.name}.", assigned=inside)
        elif isinstance(child, (ast.Assign, ast.AnnAssign)):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            for target in targets if assigned else ():
                if isinstance(target, ast.Name):
                    yield prefix + target.id, child
        elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _defined(child, prefix, assigned=assigned)


class Source:
    """The text of a module in bytes, since syntax trees count them, and its tree."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def begin(self, node: ast.expr | ast.stmt) -> int:
        """Return where code begins: with decorators, for those are part of what they decorate."""
        if isinstance(node, DEFINING) and node.decorator_list:
            return self.text.rindex(b"@", 0, self.begin(node.decorator_list[0]))
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Return where code ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def text_of(self, node: ast.expr | ast.stmt) -> str:
        """Return the code as it is written."""
        return self.text[self.begin(node) : self.end(node)].decode()

    def lines_of(self, first: ast.stmt, last: ast.stmt) -> tuple[int, int]:
        """Return begin and end of the whole lines of some statements, with the comment behind them."""
        begin = self.text.rfind(b"\n", 0, self.begin(first)) + 1
        stop = self.text.find(b"\n", self.end(last)) + 1 or len(self.text)
        before, behind = self.text[begin : self.begin(first)], self.text[self.end(last) : stop]
        if before.strip() or behind.strip()[:1] not in (b"", b"#"):
            raise UnfitError("this shares a line with other statements")
        return begin, stop


@dataclass(frozen=True, slots=True)
class Site:
    """Where a piece of code stands: some neighbours in a list of the tree, or one node that is no list's."""

    parent: ast.AST
    field: str
    index: int | None
    nodes: list[Any]

    def put(self, nodes: Sequence[ast.AST]) -> None:
        """Change the tree, once."""
        if self.index is None:
            (node,) = nodes
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index : self.index + len(self.nodes)] = nodes


def replaced(text: str, name: str, old: str, new: str) -> str:
    """Return a module's text with another piece of code in place of one that stands once in a definition.

    An expression takes an expression's place, statements that of statements; no new code deletes the old
    one.  All the rest of the text stays as it is.  Of f-strings only the whole is looked at.

    Raises:
        UnfitError: The old code is not there exactly once, or the new code cannot stand in its place.
    """
    source = Source(text.encode())
    within = {node for each, place in definitions(source.tree) if each == name for node in ast.walk(place)}
    olds, news = _wanted(old), _parsed(new)
    before, after = _expression(olds), _expression(news)
    if before is not None and after is not None:
        return _with_expression(source, _one(_expressions(source, within, before)), new.strip(), after)
    return _with_statements(source, _one(_statements(source, within, olds)), new, news)


def holders(text: bytes, code: str) -> list[str]:
    """Return the innermost definitions of a module that an expression or statements stand in."""
    source, olds = Source(text), _wanted(code)
    everywhere, sole = set(ast.walk(source.tree)), _expression(olds)
    found = _statements(source, everywhere, olds) if sole is None else _expressions(source, everywhere, sole)
    nodes = [site.nodes[0] for site in found]
    insides = [(name, set(ast.walk(place))) for name, place in definitions(source.tree)] if nodes else []
    around = ([name for name, inside in insides if node in inside] for node in nodes)
    return list(dict.fromkeys(names[-1] for names in around if names))


def _wanted(old: str) -> list[ast.stmt]:
    if not (statements := _parsed(old)):
        raise UnfitError("there is nothing to look for")
    return statements


def _parsed(code: str) -> list[ast.stmt]:
    """Return statements; an expression may be laid out over lines as in parentheses."""
    code = textwrap.dedent(code).strip()
    try:
        return ast.parse(code).body
    except SyntaxError as error:
        with contextlib.suppress(SyntaxError):
            return ast.parse(f"(\n{code}\n)").body
        raise UnfitError(f"neither an expression nor statements, {error.msg}: {code}") from None


def _expression(statements: list[ast.stmt]) -> ast.expr | None:
    sole = statements[0] if len(statements) == 1 else None
    return sole.value if isinstance(sole, ast.Expr) else None


def _one(found: Iterator[Site]) -> Site:
    sites = list(found)
    if len(sites) != 1:
        raise UnfitError(f"it stands there {len(sites)} times, not once")
    return sites[0]


def _fields(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Return all fields of all nodes, but for what is in f-strings: up to Python 3.11 it has no position."""
    for field, value in ast.iter_fields(node):
        yield node, field, value
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _fields(child)


def _expressions(source: Source, within: AbstractSet[ast.AST], wanted: ast.expr) -> Iterator[Site]:
    expected = shape(wanted)
    for parent, field, value in _fields(source.tree):
        for index, child in enumerate(value if isinstance(value, list) else (value,)):
            if type(child) is type(wanted) and child in within and shape(child) == expected:
                yield Site(parent, field, index if isinstance(value, list) else None, [child])


def _statements(source: Source, within: AbstractSet[ast.AST], wanted: list[ast.stmt]) -> Iterator[Site]:
    kinds, expected = list(map(type, wanted)), list(map(shape, wanted))
    for parent, field, value in _fields(source.tree):
        for index in range(len(value) if isinstance(value, list) else 0):
            found = value[index : index + len(wanted)]
            if (
                list(map(type, found)) == kinds
                and within.issuperset(found)
                and list(map(shape, found)) == expected
            ):
                yield Site(parent, field, index, found)


def _with_expression(source: Source, site: Site, new: str, node: ast.expr) -> str:
    (old,) = site.nodes
    begin, end = source.begin(old), source.end(old)
    site.put([node])
    for code in (new, f"({new})"):
        text = source.text[:begin] + code.encode() + source.text[end:]
        if _is(text, source.tree):
            return text.decode()
    raise UnfitError(f"this cannot stand in its place: {new}")


def _with_statements(source: Source, site: Site, new: str, nodes: list[ast.stmt]) -> str:
    begin, end = source.lines_of(site.nodes[0], site.nodes[-1])
    margin = source.text[begin : source.begin(site.nodes[0])].decode()
    emptied = not nodes and len(getattr(site.parent, site.field)) == len(site.nodes)
    if emptied and not isinstance(site.parent, ast.Module):
        new, nodes = "pass", [ast.Pass()]
    site.put(nodes)
    block = textwrap.indent(f"{textwrap.dedent(new).strip()}\n", margin) if nodes else ""
    text = source.text[:begin] + block.encode() + source.text[end:]
    if not _is(text, source.tree):
        raise UnfitError(f"this cannot stand in its place: {new}")
    return text.decode()


def _is(text: bytes, tree: ast.Module) -> bool:
    try:
        return shape(ast.parse(text)) == shape(tree)
    except SyntaxError:
        return False
