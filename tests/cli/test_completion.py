"""Completion of ``aioredlock-ng`` in shells, by shtab."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS


def test_shells_complete_commands_and_options(tmp_path: Path) -> None:
    """By the script that the page says how to make."""
    (line,) = re.findall(r"^(shtab .*) > ", (DOCS / "how-to" / "cli.md").read_text(), re.MULTILINE)
    script = tmp_path / "completion"
    script.write_text(subprocess.check_output([sys.executable, "-m", *shlex.split(line)], text=True))
    complete = 'source "$0"; COMP_WORDS=(aioredlock-ng "$@"); COMP_CWORD=$#; _shtab_aioredlock_ng'
    complete += '; echo "${COMPREPLY[@]}"'
    for words, expected in ((["re"], ["release"]), (["status", "--ol"], ["--older"])):
        done = subprocess.run(
            ["bash", "-c", complete, script, *words], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == expected
