"""Servers in processes of their own, forked from one that has loaded everything, to be killed and started anew.

As a program (``python nursery.py``) it is that process: a line of JSON in, a server's pid out.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Self

import uvicorn
from serving import SECRET

from assent.service import background, callbacks, cases
from assent.service.app import create_app
from assent.service.background import OnCase
from assent.service.case import Case
from assent.service.outbound import CallbackSender
from assent.store.case_store import CaseStore


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
    ) -> int:
        """A server's pid. ``crash`` is the point at which it kills itself; ``log`` gets those it passes.

        ``told`` gets the ids of the cases that `on_case` hears of.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"url": url, "port": port, "crash": crash, "log": log, "told": told}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_alive(pid: int) -> bool:
    """Whether a server lives still."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Points:
    """Counts what the service does to the store, and dies at one of these points.

    A point is ``moment:what:number``: before it is begun, during it, or after it is on disk but nobody knows.
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

    def around(self, what: str, write: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the store that returns a future, with its points."""

        def watched(store: CaseStore, *args: Any) -> Any:
            name = self.next(what)
            self.reached(f"before:{name}")
            job = write(store, *args)
            asyncio.get_running_loop().call_soon(self.reached, f"during:{name}")
            job.add_done_callback(lambda _: self.reached(f"after:{name}"))
            return job

        return watched

    def taking(self, what: str, take: Callable[..., Any]) -> Callable[..., Any]:
        """A method that takes something up, again and again; its points are those at which there is something."""

        def watched(store: CaseStore, *args: Any) -> Any:
            job = take(store, *args)
            job.add_done_callback(lambda done: done.result() and self.reached(f"after:{self.next(what)}"))
            return job

        return watched

    def watch(self) -> None:
        """Watch the store's writes and the callbacks of this process."""
        for what in ("create", "change", "callback_done", "told"):
            setattr(CaseStore, what, self.around(what, getattr(CaseStore, what)))
        for what, name in (("take", "take_callbacks"), ("untold", "take_untold")):
            setattr(CaseStore, name, self.taking(what, getattr(CaseStore, name)))
        send = CallbackSender.send

        async def sending(sender: CallbackSender, *args: Any, **named: Any) -> Any:
            name = self.next("send")
            outcome = await send(sender, *args, **named)
            self.reached(f"after:{name}")
            return outcome

        CallbackSender.send = sending  # type: ignore[method-assign]


def serve(job: dict[str, Any]) -> None:
    """Be a server until killed."""
    background.SWEEP_SECONDS = background.HINT_SECONDS = 0.05
    callbacks.TAKEN_MILLISECONDS = cases.TELL_MILLISECONDS = 400
    Points(job["crash"], job["log"]).watch()
    base_url = f"http://127.0.0.1:{job['port']}"
    on_case = None if job["told"] is None else _noting(job["told"])
    app = create_app(job["url"], base_url=base_url, secret=SECRET, development=True, on_case=on_case)
    uvicorn.run(app, host="127.0.0.1", port=job["port"], log_level="critical", access_log=False)


def _noting(path: str) -> OnCase:
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    async def on_case(case: Case) -> None:
        os.write(file, f"{case.case_id}\n".encode())

    return on_case


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are buried by the kernel
    create_app("sqlite://", base_url="https://a.example").openapi()
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
