"""Start the guard: ``python -I -S`` runs this folder, as a package of its own, without what is above it."""

import importlib
import sys
from pathlib import Path

sys.path.pop(0)
sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: nothing there hides anything
importlib.import_module("_guard.guard").main(sys.argv[1:])
