"""The server of ``assent serve``: where it listens, and what is said if it cannot."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

import click
import uvicorn

if TYPE_CHECKING:
    from fastapi import FastAPI

FAILED = 1


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


def listen(app: FastAPI, host: str, port: int) -> None:
    """Serve until the process is stopped; where the server does not start, the process ends with 1."""
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
        )
    except SystemExit as ended:  # uvicorn's 3 means something else here
        raise SystemExit(FAILED if ended.code else 0) from None
