"""The line to a server: one that is dead without a sign, behind a NAT or a firewall, is to be noticed soon."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

_OPTIONS: dict[str, int] = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPALIVE": 5,  # the same, on macOS
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 10_000,  # in milliseconds: for so long may what was sent stay unacknowledged
}


def watch_line(connection: object) -> None:
    """Let the system probe an idle connection, and end one on which nothing arrives any more.

    Neither driver has a setting for that, so its transport is asked for; without one all goes on as it is.
    """
    transport: Any = getattr(connection, "_transport", None)
    line: Any = None if transport is None else transport.get_extra_info("socket")
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)  # not every system has each of them
        if option is not None:
            with suppress(OSError):
                line.setsockopt(socket.IPPROTO_TCP, option, value)
