"""``python -m aioredlock_ng`` is the command ``aioredlock-ng``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
