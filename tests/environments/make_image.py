"""Make a Redis image for the Docker arm of the tests where no image registry can be reached.

Usage: python3 tests/environments/make_image.py NAME

The image holds this machine's redis-server and redis-cli, a shell, and the libraries that `ldd` names for
them. It takes the same commands as the public `redis` image: with none it serves on port 6379, and
`--option value` or `redis-server --option value` add options.
"""

import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

PROGRAMS = ("redis-server", "redis-cli", "sh")

# As the public image does: protected mode off, because the port is reached from outside the container.
ENTRYPOINT = b"""#!/usr/bin/sh
case "${1:-}" in -*) set -- redis-server "$@" ;; esac
case "${1:-}" in redis-server) set -- "$@" --protected-mode no ;; esac
exec "$@"
"""

CHANGES = (
    "ENV PATH=/usr/bin",
    "WORKDIR /data",
    "EXPOSE 6379",
    'ENTRYPOINT ["entrypoint"]',
    'CMD ["redis-server"]',
)


def libraries(program: str) -> set[str]:
    """Return the absolute paths of the shared libraries, and of the loader, that `program` needs."""
    listing = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    if "not found" in listing:
        sys.exit(f"{program} lacks a library on this machine:\n{listing}")
    return set(re.findall(r"(/\S+) \(0x", listing))


def root_file_system() -> bytes:
    """Return the image's only layer as a tar archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
        needed: set[str] = set()
        for name in PROGRAMS:
            program = shutil.which(name)
            if program is None:
                sys.exit(f"{name} is not on PATH; it is needed to make the image")
            tar.add(Path(program).resolve(), f"usr/bin/{name}")
            needed |= libraries(program)
        for library in sorted(needed):
            tar.add(Path(library).resolve(), library.lstrip("/"))
        script = tarfile.TarInfo("usr/bin/entrypoint")
        script.mode, script.size = 0o755, len(ENTRYPOINT)
        tar.addfile(script, io.BytesIO(ENTRYPOINT))
    return archive.getvalue()


def main(name: str) -> None:
    """Make the image and call it `name`."""
    changes = [word for change in CHANGES for word in ("--change", change)]
    subprocess.run(["docker", "import", *changes, "-", name], check=True, input=root_file_system())


if __name__ == "__main__":
    main(*sys.argv[1:])
