"""Draw a history: ``as_text`` for a terminal, ``as_svg`` for a browser."""

from tests.simulation.picture_svg import as_svg
from tests.simulation.picture_text import as_text

__all__ = ["as_svg", "as_text"]
