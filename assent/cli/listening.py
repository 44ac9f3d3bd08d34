"""The server of ``assent serve``: where it listens, and what is said if it cannot."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING

import click
import uvicorn

from assent import limits
from assent.cli.doorkeeper import Doorkeeper, OncePerSecond, guarded
from assent.service.heavy import SWITCH_SECONDS

if TYPE_CHECKING:
    from fastapi import FastAPI

FAILED = 1
_BACKLOG = 128
"""So many are taken at once before any of them is looked at."""
_OTHER_FILES = 3 * _BACKLOG + 64
"""Files that are open besides connections: the database, the log, and connections not yet looked at."""


def check_free(host: str, port: int) -> None:
    """Raise a ``ClickException`` in one sentence if nothing can listen there; the server would log it instead."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            _try(family, kind, protocol, address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise click.ClickException(
                f"port {port} of {host} is taken: end what listens there, or choose another with --port."
            ) from None
        raise click.ClickException(f"nothing can listen on {host}, port {port}: {error.strerror}.") from None


def _try(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> None:
    with socket.socket(family, kind, protocol) as trial:
        if os.name == "posix":  # as the server does; elsewhere it means that two may listen
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        trial.bind(address)


def listen(
    app: FastAPI,
    host: str,
    port: int,
    *,
    connections: int = limits.CONNECTIONS,
    per_address: int | None = None,
) -> None:
    """Serve until the process is stopped; where the server does not start, the process ends with 1.

    ``connections`` is how many there may be at a time, and ``per_address`` from one address; see `Doorkeeper`.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    connections = _within_open_files(connections)
    keeper = Doorkeeper(most=connections, per_address=per_address)
    quiet = OncePerSecond()
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(quiet)
    try:
        # The server's own access log would show whole addresses, tokens and all.
        uvicorn.run(
            app,
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            http=guarded(keeper),
            ws="none",
            h11_max_incomplete_event_size=limits.HEADER_BYTES,
            limit_concurrency=connections + 1,  # it counts the one that asks, too
            backlog=_BACKLOG,
        )
    except SystemExit as ended:  # uvicorn's 3 means something else here
        raise SystemExit(FAILED if ended.code else 0) from None


def _within_open_files(connections: int) -> int:
    """So many connections as the process may have open files for, after asking for more of those."""
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(16, min(connections, soft - _OTHER_FILES))
