"""The service on a port of this machine, within this process."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI

HOST = "127.0.0.1"


class _Server(uvicorn.Server):
    """A server that leaves Ctrl-C to the agent, and sets ``ready`` when it is started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def listener(port: int) -> Generator[socket.socket]:
    """A socket bound to a port; to any free port for 0."""
    # With the protocol named as TCP, asyncio switches Nagle's algorithm off, so that writes are sent at once.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise OSError(
                    f"port {port} cannot be had: {error.strerror}; choose another with --port"
                ) from None
            raise OSError(f"port {port} is in use: choose another with --port, or none") from None
        yield listening


def address_of(listening: socket.socket) -> str:
    """The URL of a socket, for this machine."""
    return f"http://{HOST}:{listening.getsockname()[1]}"


@asynccontextmanager
async def serving(app: FastAPI, listening: socket.socket) -> AsyncGenerator[None]:
    """Serve the application within this context."""
    config = uvicorn.Config(
        app, lifespan="on", log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve([listening]))
    await server.ready.wait()
    if not server.started:
        await task
        raise OSError("the service did not start; the log says why")
    try:
        yield
    finally:
        server.should_exit = True
        await task
