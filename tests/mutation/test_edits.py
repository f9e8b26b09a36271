"""Edits name definitions and pieces of syntax, and change only those."""

from __future__ import annotations

import textwrap

import pytest

from tests.mutation.mutation import PACKAGE, Edit, TextEdit
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


def test_only_the_definition_is_looked_at():
    """What stands elsewhere, too, is no second one."""
    assert change("Box.room", "self.size", "0") == [
        "-             self.size - len( self.things )",
        "+             0 - len( self.things )",
    ]


# -- what --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "old",
    [
        "self.size - len(self.things)",
        "(self.size\n    - len(self.things))",
        "self.size -  # what is left\nlen(self.things)",
    ],
)
def test_layout_makes_no_difference(old):
    """Line breaks, spaces, parentheses and comments are not compared."""
    assert change("Box.room", old, "0")[-1] == "+             0"


def test_what_stands_there_twice_is_refused():
    """An edit that could mean several places means none."""
    with pytest.raises(UnfitError, match="2 times, not once"):
        replaced(MODULE, "Box.room", "self", "other")


def test_an_expression_is_put_in_parentheses_where_it_needs_them():
    """What binds less than its surroundings does not fall apart."""
    assert change("Box.weigh", "sum(self.things)", "1 + 1")[-1].endswith("return (1 + 1) * 2")


def test_statements_are_indented_as_their_place_is():
    """Insertion is a replacement that contains the old code; comments in other lines stay."""
    old = "await self.told()"
    assert change("Box.fill", old, f"if self.size:\n    {old}\nself.rest()") == [
        "-             await self.told()  # at last",
        "+             if self.size:",
        "+                 await self.told()",
        "+             self.rest()",
    ]


def test_a_block_is_replaced_whole():
    """Statements with bodies are compared with them."""
    old = """
        if self.full:
            self.close()
        else:
            self.rest(f'{self.size} left')
    """
    assert change("Box.fill", old, "self.close()")[-1] == "+         self.close()"
    with pytest.raises(UnfitError, match="0 times"):
        replaced(MODULE, "Box.fill", "if self.full:\n    self.close()", "pass")


def test_a_deletion_leaves_the_other_statements():
    """Lines are gone with the comment behind them."""
    assert change("Box.fill", "await self.told()", "") == ["-             await self.told()  # at last"]


def test_a_deletion_leaves_a_body():
    """Where nothing is left there is `pass`."""
    assert change("Box.fill", "self.close()", "") == [
        "-             self.close()",
        "+             pass",
    ]


def test_decorators_belong_to_what_they_decorate():
    """They can be changed, and a definition is replaced together with them."""
    assert change("Box.weigh", "bounded(LIMIT)", "bounded(0)")[-1] == "+     @bounded(0)"
    whole = "@cached\n@bounded(LIMIT)\ndef weigh(self): return sum(self.things) * 2"
    assert change("Box.weigh", whole, "weigh = None")[-1] == "+     weigh = None"


def test_a_constant_of_a_class_is_a_definition():
    """Its value can be changed."""
    assert change("Box.size", "1", "2") == ["-     size = 1", "+     size = 2"]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Box.weigh", "return sum(self.things) * 2", "return 0"),
        ("Box.fill", "self.full", "return"),
        ("Box.fill", "self.size", "0"),
        ("LIMIT", "if", "1"),
        ("LIMIT", "", "1"),
    ],
    ids=["shares its line", "no expression", "in an f-string", "no Python", "nothing to look for"],
)
def test_what_cannot_be_done_is_refused(name, old, new):
    """Nothing is changed into something else than what the edit says."""
    with pytest.raises(UnfitError):
        replaced(MODULE, name, old, new)
