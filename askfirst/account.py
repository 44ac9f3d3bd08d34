"""The operating system's account of this process: the audit trail names it where no person is known."""

from __future__ import annotations

import getpass
import os
from functools import cache


def os_account() -> str:
    """The name of the account that runs this process."""
    return getpass.getuser() if os.name != "posix" else _name_of(os.getuid())


@cache
def _name_of(user_id: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"uid {user_id}"
