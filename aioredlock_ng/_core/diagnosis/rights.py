"""What a client's ACL user must be allowed to do, and the line that grants it."""

from __future__ import annotations

import re
from typing import Final

ACL_RIGHTS: Final = (
    "-@all +evalsha +eval +script|load +get +set +del +pttl +pexpire +time +info +ping +hello +auth"
    " +client|setname"
)
"""What locking needs, found by leaving out one command after the other."""

ADMIN_RIGHTS: Final = "+scan +config|get +acl|getuser"
"""What listing all locks (``+scan``) and the diagnosis (the others) need beside it."""


def acl_line(prefix: bytes, rights: str = ACL_RIGHTS) -> str:
    """Return the command that makes a user with these rights on the keys under `prefix`."""
    # A key pattern cannot hold a space; "?" stands for any one byte.
    pattern = glob_escaped(prefix).replace(b" ", b"?").decode(errors="replace")
    return f"ACL SETUSER locks on >secret resetkeys ~{pattern}* {rights}"


def glob_escaped(text: bytes) -> bytes:
    """Return the pattern of SCAN and of ACL rules that matches `text` alone."""
    return re.sub(rb"[\\*?\[\]]", rb"\\\g<0>", text)
