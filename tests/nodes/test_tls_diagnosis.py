"""TLS that verifies nothing, or too little, is a finding of a diagnosis."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from aioredlock_ng import LockManager
from tests.nodes.test_notices import proxied
from tests.tls import make_certificates


@pytest.mark.parametrize(
    ("options", "level", "words"),
    [
        ("ssl_cert_reqs=none", "warning", "its certificate is not verified"),
        ("ssl_ca_certs={}&ssl_check_hostname=false", "warning", "may be for another host name"),
        ("ssl_ca_certs={}", "ok", "is verified"),
    ],
)
async def test_doctor_finds_tls_without_verification(make_nodes, tmp_path: Path, options, level, words):
    """A proxy speaks TLS here, since not every server can."""
    make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "right.crt", tmp_path / "right.key")
    (url,) = make_nodes(1).urls
    async with proxied(url, tls=context) as (_, through):
        node = through.replace("redis:", "rediss:") + "?" + options.format(tmp_path / "ca.crt")
        async with LockManager([node], node_timeout=1.0) as manager:
            (found,) = [finding for finding in await manager.diagnose() if finding.check == "tls"]
    assert found.level == level
    assert words in found.message


async def test_doctor_says_nothing_of_tls_where_there_is_none(make_nodes):
    """Whether that is right is another question."""
    async with LockManager(make_nodes(1).urls) as manager:
        assert not [finding for finding in await manager.diagnose() if finding.check == "tls"]
