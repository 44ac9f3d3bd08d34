"""The process from which `warm_python` forks programs. When its input ends, it ends with all its programs.

With a script as its second argument it loads what that script imports, in place of the whole project.
"""

from __future__ import annotations

import ast
import asyncio
import fcntl
import gc
import io
import marshal
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import termios
import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import askfirst
from askfirst.errors import MissingExtra

LIBRARIES = (
    "alembic.command",
    "anyio._backends._asyncio",
    "asyncmy",
    "asyncpg",
    "httpcore2",
    "prompt_toolkit.shortcuts",
    "rich.live",
    "segno",
    "truststore",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.websockets.auto",
    "yaml",
)
"""Modules that programs load late: at the first connection, or for the first page."""


@dataclass(frozen=True)
class Order:
    """A program to be run."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    streams: list[int]


@dataclass(frozen=True)
class Running:
    """A program, and the stand-in that waits for its end."""

    pid: int
    stand_in: socket.socket
    watch: int


def load() -> None:
    """Import what a program may need, and do once what is slow the first time."""
    ours = [each.name for each in pkgutil.walk_packages(askfirst.__path__, "askfirst.")]
    for name in [*ours, *LIBRARIES]:
        if not name.endswith((".__main__", ".env")):  # these do something
            with suppress(ImportError, MissingExtra):  # of what is not installed here
                import_module(name)
    from askfirst.service.app import create_app
    from askfirst.service.pages import load_pages
    from kit import shared_tls

    open_database()
    create_app("sqlite://", base_url="https://a.example").openapi()
    load_pages()
    shared_tls.begin()


def load_for(script: Path) -> None:
    """Import what a script imports, and no more: it may run where the rest of the project cannot be loaded."""
    for statement in ast.parse(script.read_text("utf-8")).body:
        if (
            isinstance(statement, ast.Import | ast.ImportFrom)
            and getattr(statement, "module", "") != "__future__"
        ):
            exec(compile(ast.Module([statement], []), str(script), "exec"), {})  # noqa: S102
    for name in ("alembic.command", "asyncpg"):
        import_module(name)
    open_database()


def open_database() -> None:
    """Make a database, which is slow the first time."""
    from askfirst.checkpointer.sqlite import SQLiteCheckpointer

    async def open_new(path: str) -> None:
        async with SQLiteCheckpointer(path):
            pass

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(open_new(f"{folder}/new.db"))


def serve(listener: socket.socket) -> Order:
    """Fork a program for each order; in that process, return the order."""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    for running in _all(selector):
                        signal.pidfd_send_signal(running.watch, signal.SIGKILL)
                    sys.exit()
                elif key.data is None:
                    stand_in, _ = listener.accept()
                    order = _order(stand_in)
                    pid = os.fork()
                    if pid == 0:
                        for running in _all(selector):
                            running.stand_in.close()
                            os.close(running.watch)
                        stand_in.close()
                        return order
                    _watch(selector, order, Running(pid, stand_in, os.pidfd_open(pid)))
                elif key.fileobj is key.data.stand_in:  # it was killed
                    signal.pidfd_send_signal(key.data.watch, signal.SIGKILL)
                    selector.unregister(key.data.stand_in)
                else:
                    _end(selector, key.data)


def _order(stand_in: socket.socket) -> Order:
    size, streams, _, _ = socket.recv_fds(stand_in, 4, 3)
    with stand_in.makefile("rb") as pipe:
        return Order(*marshal.loads(pipe.read(int.from_bytes(size, "big"))), streams)  # noqa: S302


def _watch(selector: selectors.BaseSelector, order: Order, running: Running) -> None:
    for stream in order.streams:
        os.close(stream)
    with suppress(OSError):  # of a stand-in that was killed
        running.stand_in.sendall(running.pid.to_bytes(4, "big"))
    selector.register(running.stand_in, selectors.EVENT_READ, running)
    selector.register(running.watch, selectors.EVENT_READ, running)


def _end(selector: selectors.BaseSelector, running: Running) -> None:
    _, status = os.waitpid(running.pid, 0)
    selector.unregister(running.watch)
    os.close(running.watch)
    with suppress(KeyError):
        selector.unregister(running.stand_in)
    with suppress(OSError):
        running.stand_in.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    running.stand_in.close()


def _all(selector: selectors.BaseSelector) -> list[Running]:
    known = selector.get_map().values()
    return [key.data for key in known if key.data is not None and key.fileobj == key.data.watch]


def become(order: Order) -> None:
    """Set this process up as the order says: streams, folder, environment, and Python's options from arguments."""
    os.setsid()
    for place, stream in enumerate(order.streams):
        os.dup2(stream, place)
        os.close(stream)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order.arguments[0] == "--terminal":
        order.arguments.pop(0)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if order.arguments[:2] == ["-W", "error"]:
        del order.arguments[:2]
        warnings.simplefilter("error")
    encoding = os.environ.get("PYTHONIOENCODING")
    errors = "strict" if encoding else "surrogateescape"
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding or "utf-8", errors=errors)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _output(1, encoding or "utf-8", errors)
    sys.stderr = sys.__stderr__ = _output(2, encoding or "utf-8", "backslashreplace")


def _output(descriptor: int, encoding: str, errors: str) -> Any:
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw: Any = open(descriptor, "wb", buffering=0 if unbuffered else -1)  # noqa: SIM115
    by_line = descriptor == 2 or os.isatty(descriptor)
    return io.TextIOWrapper(raw, encoding, errors, line_buffering=by_line, write_through=unbuffered)


def run(arguments: list[str]) -> None:
    """Run the program as the interpreter would."""
    match arguments:
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            sys.path[0] = ""
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
        case [script, *rest]:
            sys.argv = [script, *rest]
            sys.path[0] = str(Path(script).parent)  # a folder's own place is put before it
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        load_for(Path(sys.argv[2]))
    else:
        load()
    gc.collect()
    gc.freeze()
    order = serve(socket.socket(fileno=int(sys.argv[1])))
    become(order)
    run(order.arguments)
