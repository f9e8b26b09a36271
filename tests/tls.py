"""Certificates for tests, and real servers that show them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.servers import skip_unless_available

KEY_PASSWORD: Final = "key-pa55-of-the-tests"
EC: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
EXTENSIONS: Final = """\
subjectAltName={}
basicConstraints=CA:FALSE
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""

# For which host they are, and how many days they are good.
CERTIFICATES: Final = {
    "right": ("IP:127.0.0.1,DNS:localhost", "2"),
    "elsewhere": ("DNS:elsewhere.example", "2"),
    "expired": ("IP:127.0.0.1", "-1"),
}


def make_certificates(folder: Path) -> None:
    """Make an authority and its certificates, and a client's own, whose key has a password."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make certificates with")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=30)

    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    authority = ("-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", "-x509", *EC, *usage, *authority)
    for name, (whose, days) in CERTIFICATES.items():
        (folder / "extensions").write_text(EXTENSIONS.format(whose))
        openssl("req", *EC, "-nodes", "-subj", "/CN=node", "-keyout", f"{name}.key", "-out", "request")
        issuer = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions")
        openssl("x509", "-req", "-in", "request", *issuer, "-days", days, "-out", f"{name}.crt")
    client = ("-passout", f"pass:{KEY_PASSWORD}", "-keyout", "client.key", "-out", "client.crt")
    openssl("req", "-x509", *EC, "-days", "2", "-subj", "/CN=client", *client)


def serve_tls(
    make_nodes: Callable[..., LocalNodes],
    folder: Path,
    n: int = 1,
    certificate: str = "right",
    password: str = "",
) -> LocalNodes:
    """Start servers that speak TLS only, and show one of the certificates; their URLs ask for no proof."""
    skip_unless_available("path")  # Debian's and Homebrew's redis-server have TLS built in
    options = {"port": 0, "tls-port": "{port}", "tls-auth-clients": "no"}
    options |= {"tls-ca-cert-file": str(folder / "ca.crt"), **({"requirepass": password} if password else {})}
    options |= {
        f"tls-{what}-file": str(folder / f"{certificate}.{end}")
        for what, end in (("cert", "crt"), ("key", "key"))
    }
    login = f":{password}@" if password else ""
    url = f"rediss://{login}127.0.0.1:{{port}}?ssl_cert_reqs=none"  # what starts and stops them need not mind
    return make_nodes(n, server="path", options=options, url=url)


def proven(url: str, folder: Path) -> str:
    """Return the URL for a client that asks for the authority's proof."""
    return url.replace("ssl_cert_reqs=none", f"ssl_ca_certs={folder / 'ca.crt'}")
