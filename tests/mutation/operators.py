"""Small mistakes that a mutator makes in any Python module, by its syntax tree: see `sweep`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .source import Source

COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}

ARITHMETIC: Final[dict[type[ast.operator], str]] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.BitOr: "&",
}

EXCHANGED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
"""Names that are called, and what is called in their place."""

QUIET: Final = ("report", "assert_never", "cast", "super")
"""Calls whose absence changes no behaviour that a test should rest on."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small mistake: the text between two offsets of a file is another one."""

    file: str
    """Under the package."""
    line: int
    begin: int
    end: int
    new: str
    what: str
    """The mistake in words: the old text, an arrow, the new one."""
    at_import: bool
    """Whether its line is run once, at import, on behalf of no test."""

    def apply(self, source: bytes) -> bytes:
        """Return the source with the mistake in it."""
        return source[: self.begin] + self.new.encode() + source[self.end :]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


class Mutator(ast.NodeVisitor):
    """Finds all mutants of one module."""

    def __init__(self, file: str, source: Source) -> None:
        self._file = file
        self._source = source
        self._functions = 0  # around the node that is visited
        self.found: list[Mutant] = []

    def _add(self, node: ast.expr | ast.stmt, new: str) -> None:
        old = " ".join(self._source.text_of(node).split())
        what = f"{old} → {' '.join(new.split())}"
        begin, end = self._source.begin(node), self._source.end(node)
        self.found.append(Mutant(self._file, node.lineno, begin, end, new, what, not self._functions))

    # -- what is left alone ----------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        """Negate a condition; blocks for type checkers are not run."""
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave invariants alone."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave messages alone."""

    def visit_arguments(self, node: ast.arguments) -> None:
        """Mutate defaults, not annotations."""
        for default in (*node.defaults, *(d for d in node.kw_defaults if d is not None)):
            self.visit(default)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Mutate the value, not the annotation."""
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts alone."""

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        self.visit(node.args)
        self._functions += 1
        for statement in node.body:
            self.visit(statement)
        self._functions -= 1

    visit_FunctionDef = _visit_function  # noqa: N815 (the visitor's names)
    visit_AsyncFunctionDef = _visit_function  # noqa: N815

    # -- mistakes --------------------------------------------------------------------------------

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.BoolOp, ast.NamedExpr)):
            self._add(test, f"(not ({self._source.text_of(test)}))")

    def visit_While(self, node: ast.While) -> None:
        """Leave the condition alone: most such mutants run for ever."""
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Exchange the arms."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Exchange a comparison for its neighbour."""
        if len(node.ops) == 1:
            left, right = self._source.text_of(node.left), self._source.text_of(node.comparators[0])
            self._add(node, f"({left} {COMPARISONS[type(node.ops[0])]} {right})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Exchange `and` and `or`."""
        word = " or " if isinstance(node.op, ast.And) else " and "
        self._add(node, "(" + word.join(f"({self._source.text_of(value)})" for value in node.values) + ")")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Leave a `not` out."""
        if isinstance(node.op, ast.Not):
            self._add(node, f"({self._source.text_of(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Exchange an operation for its opposite; a format is none."""
        if type(node.op) in ARITHMETIC:
            new = ARITHMETIC[type(node.op)]
            self._add(node, f"({self._source.text_of(node.left)} {new} {self._source.text_of(node.right)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Be off by one, or say the opposite."""
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, str(node.value + 1))
        elif isinstance(node.value, float):
            self._add(node, repr(node.value * 2 if node.value else 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        """Call the opposite."""
        if isinstance(node.func, ast.Name) and node.func.id in EXCHANGED:
            self._add(node.func, EXCHANGED[node.func.id])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Forget a call."""
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            name = value.func.attr if isinstance(value.func, ast.Attribute) else ast.unparse(value.func)
            if name not in QUIET:
                self._add(node, "pass")
                self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Forget to note something."""
        if all(isinstance(target, ast.Attribute) for target in node.targets):
            self._add(node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Forget to count."""
        self._add(node, "pass")
        self.visit(node.value)


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    """Return the mutants of one module that are Python still."""
    parsed = Source(source)
    mutator = Mutator(file, parsed)
    mutator.visit(parsed.tree)
    for mutant in mutator.found:
        try:
            compile(mutant.apply(source), file, "exec")
        except SyntaxError:
            continue
        yield mutant
