"""The README's chapter for people with tests of their own: what it shows is copied and run as they would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.environments.interpreters import ROOT
from tests.plugin.runs import AUTO, run
from tests.servers import fastest_arm

CHAPTER = (ROOT / "README.md").read_text().partition("\n## Testing your own code\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", CHAPTER, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_block_is_a_file_of_tests(number: int, tmp_path: Path) -> None:
    """A reader copies a block into a file of its own, and all tests in it pass, without a warning."""
    if "nodes" in BLOCKS[number]:
        fastest_arm()  # skips where there is no server

    done = run(tmp_path, BLOCKS[number], *AUTO)

    assert done.outcomes == {"passed": BLOCKS[number].count("def test_")}, done.output


def test_there_are_blocks() -> None:
    """The expressions above find the chapter and all of its code."""
    assert len(BLOCKS) == CHAPTER.count("```python") >= 2
