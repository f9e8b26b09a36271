"""Edits name definitions and pieces of syntax, and change only those."""

from __future__ import annotations

import textwrap

import pytest

from tests.mutation.mutation import PACKAGE, Edit, Mutation, TextEdit
from tests.mutation.mutations import read
from tests.mutation.package import Package
from tests.mutation.source import UnfitError, replaced

MODULE = textwrap.dedent(
    '''
    """A module."""

    LIMIT: Final = 10  # as many as fit


    class Box:
        """Holds things."""

        size = 1

        @property
        def room(self) -> int:
            # what is left
            return (
                self.size - len( self.things )
            )

        async def fill(self, things):
            async with self.lock:
                # one by one
                for thing in things:
                    self.put(thing, quiet = True)
                await self.told()  # at last
            if self.full:
                self.close()
            else:
                self.rest(f"{self.size} left")

        @cached
        @bounded(LIMIT)
        def weigh(self): return sum(self.things) * 2
    '''
)


@pytest.fixture
def package(tmp_path):
    """Give a function that writes files into a package of their own."""

    def write(**modules: str) -> Package:
        (tmp_path / PACKAGE).mkdir()
        for name, text in modules.items():
            (tmp_path / PACKAGE / f"{name}.py").write_text(text)
        return Package(tmp_path)

    return write


def change(name: str, old: str, new: str) -> list[str]:
    """Return the lines that an edit takes away from the module, and those it adds, in diff's notation."""
    before = MODULE.splitlines()
    after = replaced(MODULE, name, old, new).splitlines()
    same = next(n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    while before[-1:] == after[-1:] and len(before) > same < len(after):
        before.pop()
        after.pop()
    return [f"- {line}" for line in before[same:]] + [f"+ {line}" for line in after[same:]]


# -- where -------------------------------------------------------------------------------------------


def test_a_definition_is_found_whichever_file_it_is_in(package):
    """An edit does not name a file, so moving code breaks none."""
    files = package(one="def other(): pass\n", two=MODULE)
    assert files.broken([Edit("LIMIT", "10", "11")]) == {"two.py": MODULE.replace("10", "11")}


def test_a_definition_that_is_missing_is_named(package):
    """The message says what is defined instead."""
    with pytest.raises(UnfitError, match=r"does not define Case\.fill; it does define Box\.fill"):
        package(one=MODULE).broken([Edit("Case.fill", "self.full", "True")])


def test_a_name_of_several_modules_needs_the_module(package):
    """The message says how it is told which one is meant; then that one is changed."""
    files = package(one=MODULE, two=MODULE)
    with pytest.raises(UnfitError, match=r"LIMIT is defined in one\.py, two\.py: say which, as in one:LIMIT"):
        files.broken([Edit("LIMIT", "10", "11")])
    assert list(files.broken([Edit("two:LIMIT", "10", "11")])) == ["two.py"]


def test_what_is_missing_is_named_with_its_definition(package):
    """The message has the definition, what was looked for, and where that is, if anywhere."""
    files = package(one=MODULE)
    with pytest.raises(UnfitError, match=r"^Box\.fill: it stands there 0 times, not once:\nself\.empty$"):
        files.broken([Edit("Box.fill", "self.empty", "True")])
    with pytest.raises(UnfitError, match=r"not once; it is in one:Box\.weigh:\nsum\(self\.things\)$"):
        files.broken([Edit("Box.fill", "sum(self.things)", "0")])


def test_several_edits_of_a_file_add_up(package):
    """The second edit is applied to what the first one left."""
    files = package(one=MODULE)
    edits = [Edit("LIMIT", "10", "11"), Edit("LIMIT", "11", "12"), TextEdit("one.py", "things.", "all.")]
    assert files.broken(edits) == {
        "one.py": MODULE.replace("10", "12").replace("Holds things.", "Holds all.")
    }


# -- what --------------------------------------------------------------------------------------------

INDENTED = """
    if self.full:
        self.close()
    else:
        self.rest(f'{self.size} left')
"""

WHOLE = "@cached\n@bounded(LIMIT)\ndef weigh(self): return sum(self.things) * 2"


@pytest.mark.parametrize(
    ("name", "old", "new", "last"),
    [
        ("Box.room", "self.size", "0", "            0 - len( self.things )"),
        ("Box.room", "self.size - len(self.things)", "0", "            0"),
        ("Box.room", "(self.size\n    - len(self.things))", "0", "            0"),
        ("Box.room", "self.size -  # what is left\nlen(self.things)", "0", "            0"),
        ("Box.weigh", "sum(self.things)", "1 + 1", "    def weigh(self): return (1 + 1) * 2"),
        ("Box.fill", INDENTED, "self.close()", "        self.close()"),
        ("Box.fill", "self.close()", "", "            pass"),
        ("Box.weigh", "bounded(LIMIT)", "bounded(0)", "    @bounded(0)"),
        ("Box.weigh", WHOLE, "weigh = None", "    weigh = None"),
        ("Box.size", "1", "2", "    size = 2"),
    ],
)
def test_code_takes_the_place_of_code(name, old, new, last):
    """However it is laid out, and with as much indentation and parentheses as it needs."""
    assert change(name, old, new)[-1] == f"+ {last}"


def test_statements_are_indented_as_their_place_is():
    """Insertion is a replacement that contains the old code; a deletion takes the comment behind it along."""
    old = "await self.told()"
    gone = "-             await self.told()  # at last"
    assert change("Box.fill", old, f"if self.size:\n    {old}\nself.rest()") == [
        gone,
        "+             if self.size:",
        "+                 await self.told()",
        "+             self.rest()",
    ]
    assert change("Box.fill", old, "") == [gone]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Box.room", "self", "other"),
        ("Box.fill", "if self.full:\n    self.close()", "pass"),
        ("Box.weigh", "return sum(self.things) * 2", "return 0"),
        ("Box.fill", "self.full", "return"),
        ("Box.fill", "self.size", "0"),
        ("LIMIT", "if", "1"),
        ("LIMIT", "", "1"),
    ],
)
def test_what_cannot_be_done_is_refused(name, old, new):
    """Nothing is changed into something else than what the edit says."""
    with pytest.raises(UnfitError):
        replaced(MODULE, name, old, new)


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ("one()", "two()", "if it then\n  two() -- once\nend\n"),
        ("one() -- once", "two()\nthree()", "if it then\n  two()\n  three()\nend\n"),
        ("if it then\n  one() -- once\nend", "", ""),
    ],
)
def test_text_takes_the_place_of_text(old, new, result):
    """A part of a line takes the place of one, lines that of lines; what is not there once is refused."""
    script = "if it then\n  one() -- once\nend\n"
    assert TextEdit("one.lua", old, new).apply(script) == result
    with pytest.raises(UnfitError, match="2 times"):
        TextEdit("one.lua", old, new).apply(2 * script)


def test_mutations_are_read_from_text():
    """Rule, name, test and edits are read line by line; a block that is no mutation is refused."""
    text = "# Remark.\n\nR1: a: name\ntest t.py::t[- x]\nin f\n- a\n-\n-   b\nin x.lua\n- c\n+ d\n"
    edits = (Edit("f", "a\n\n  b", ""), TextEdit("x.lua", "c", "d"))
    assert list(read(text)) == [Mutation(rule="R1", name="a: name", edits=edits, test="t.py::t[- x]")]
    with pytest.raises(AssertionError, match="this is no mutation:\nR1: a"):
        list(read(text.replace("+ d", "= d")))
