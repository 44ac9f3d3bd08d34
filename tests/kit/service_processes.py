"""Servers in separate processes, forked from a process that has loaded everything, to be killed and restarted.

As a program (``python service_processes.py``) it is that process: it reads a line of JSON, and writes a server's pid.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Self

import uvicorn

from askfirst.delivery.base import Ended, Notice, Sent
from askfirst.service import background, callbacks, cases, deliveries
from askfirst.service.app import create_app
from askfirst.service.background import OnCase
from askfirst.service.callbacks import CallbackSender
from askfirst.service.case import Case
from askfirst.store import case_queues
from askfirst.store import cases as case_store
from askfirst.store import deliveries as delivery_store
from askfirst.store.schema import migration
from askfirst.store.server_engine import ServerEngine
from askfirst.store.sqlite_engine import SQLiteEngine
from kit import warm_zygote
from kit.running_service import SECRET


class Nursery:
    """Starts servers: ``with Nursery() as nursery: pid = nursery.start(url, port)``."""

    def __enter__(self) -> Self:
        path = os.pathsep.join(each for each in sys.path if each)
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def start(
        self,
        url: str,
        port: int,
        *,
        crash: str | None = None,
        log: str | None = None,
        told: str | None = None,
        hold: float = 0,
        board: str | None = None,
    ) -> int:
        """Start a server; returns its pid. ``crash`` is the point at which it kills itself.

        ``log``, ``told`` and ``board`` are files: for the points that it passes, for the ids of the cases for which
        `on_case` is called, and for the messages of a delivery. ``hold`` is how long decisions are held.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {
            "url": url,
            "port": port,
            "crash": crash,
            "log": log,
            "told": told,
            "hold": hold,
            "board": board,
        }
        print(json.dumps(job), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


def is_alive(pid: int) -> bool:
    """Whether a server is still running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


WRITING = (
    *(case_store.create, case_store.change, case_queues.callback_done, case_queues.told),
    *(delivery_store.plan, delivery_store.sent, delivery_store.updated),
)
TAKING = {
    case_queues.take_callbacks: "take",
    case_queues.take_untold: "untold",
    delivery_store.take: "message",
}


class Points:
    """Counts the service's writes to the store, and kills the process at one of these points.

    A point is ``moment:what:number``. The moment is before a write begins, during it, or after it is on disk but
    before the service knows.
    """

    def __init__(self, crash: str | None, log: str | None) -> None:
        self._crash = crash
        self._log = None if log is None else os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._counts: dict[str, int] = {}

    def next(self, what: str) -> str:
        self._counts[what] = self._counts.get(what, 0) + 1
        return f"{what}:{self._counts[what]}"

    def reached(self, point: str) -> None:
        if self._log is not None:
            os.write(self._log, f"{point}\n".encode())
        if point == self._crash:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """An engine's ``write``, with points at some of its transactions.

        Some transactions poll for work; they have points only if they find some.
        """

        def watching(engine: Any, transaction: Any, *args: Any, **named: Any) -> Any:
            function = getattr(transaction, "func", None)  # of a partial
            if function in TAKING:
                job = write(engine, transaction, *args, **named)
                what = TAKING[function]
                job.add_done_callback(lambda done: done.result() and self.reached(f"after:{self.next(what)}"))
                return job
            if function not in WRITING:
                return write(engine, transaction, *args, **named)
            name = self.next(function.__name__)
            self.reached(f"before:{name}")
            job = write(engine, transaction, *args, **named)
            asyncio.get_running_loop().call_soon(self.reached, f"during:{name}")
            job.add_done_callback(lambda _: self.reached(f"after:{name}"))
            return job

        return watching

    def watch(self) -> None:
        """Watch the store's writes and the callbacks of this process."""
        for engine in (SQLiteEngine, ServerEngine):
            engine.write = self.watched(engine.write)  # type: ignore[method-assign]
        send = CallbackSender.send

        async def sending(sender: CallbackSender, *args: Any, **named: Any) -> Any:
            name = self.next("send")
            outcome = await send(sender, *args, **named)
            self.reached(f"after:{name}")
            return outcome

        CallbackSender.send = sending  # type: ignore[method-assign]


def serve(job: dict[str, Any]) -> None:
    """Run a server until it is killed."""
    background.SWEEP_SECONDS = background.HINT_SECONDS = 0.05
    callbacks.TAKEN_MILLISECONDS = cases.ON_CASE_LEASE_MILLISECONDS = 400
    if job["crash"] is not None:  # a living server keeps its claims, also on a busy machine
        deliveries.LEASE_MILLISECONDS = 400
    Points(job["crash"], job["log"]).watch()
    base_url = f"http://127.0.0.1:{job['port']}"
    on_case = None if job["told"] is None else _noting(job["told"])
    app = create_app(
        job["url"],
        base_url=base_url,
        secret=SECRET,
        development=True,
        on_case=on_case,
        hold_seconds=job["hold"],
        deliver=[] if job["board"] is None else [Board(job["board"])],
    )
    uvicorn.run(app, host="127.0.0.1", port=job["port"], log_level="critical", access_log=False)


class Board:
    """A delivery that writes a line into a file for each message, and for each that it updates."""

    name = "board"
    shows_buttons = False

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    async def send(self, notice: Notice) -> Sent:
        assert notice.review_url is not None
        os.write(self._file, f"sent {notice.review_url}\n".encode())
        return Sent("board", notice.case_id, {"line": 1})

    async def update(self, sent: Sent, ended: Ended) -> None:
        os.write(self._file, f"ended {ended.text}\n".encode())


def _noting(path: str) -> OnCase:
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    async def on_case(case: Case) -> None:
        os.write(file, f"{case.case_id}\n".encode())

    return on_case


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for ended children: the kernel removes them
    warm_zygote.load()
    for dialect in ("sqlite", "postgresql", "mysql"):
        migration(dialect, None)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            sys.stdin.close()
            os.close(1)
            os.open(os.devnull, os.O_WRONLY)
            serve(json.loads(line))
            os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
