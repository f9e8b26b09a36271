"""What a package says of its repository: the URLs, and a README whose links work where the files are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK: Final = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


class RepositoryHook(MetadataHookInterface):
    """Reads ``repository`` of ``[tool.hatch.metadata.hooks.custom]``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add what depends on it."""
        repository = self.config["repository"]
        files = f"{repository}/blob/main"
        metadata["urls"] = {
            "Repository": repository,
            "Documentation": f"{files}/docs/start.md",
            "Changelog": f"{files}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = _RELATIVE_LINK.sub(rf"]({files}/\1)", readme)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
