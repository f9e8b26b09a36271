"""The list of nodes as one text: what stands in ``REDLOCK_URLS`` and behind ``--nodes``."""

from __future__ import annotations

from ._node.urls import is_sentinel


def split_urls(text: str) -> list[str]:
    """Split a list of node URLs at its commas, but for those between the hosts of a Sentinel URL.

    The hosts end where the name of the service begins, behind the next slash; what follows a comma before
    that belongs to them unless it begins with a scheme.
    """
    urls: list[str] = []
    for piece in filter(None, map(str.strip, text.split(","))):
        if urls and "://" not in piece and _goes_on(urls[-1]):
            urls[-1] += f",{piece}"
        else:
            urls.append(piece)
    return urls


def _goes_on(url: str) -> bool:
    return is_sentinel(url) and "/" not in url.partition("://")[2]
