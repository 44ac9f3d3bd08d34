"""The askfirst command as a user runs it, and what it finds in the database."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, cast
from unittest.mock import patch

import pytest

from askfirst.checkpointer.base import RunRecord, Step
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.find import AgentRequest, pending_items, short
from askfirst.cli.main import main
from askfirst.messages import UserMessage, call_digest
from askfirst.requests import ApproveRequest, HitlPayload, HitlRequest, StoredRequest
from askfirst.service.cases import Cases
from askfirst.service.keys import Keys
from askfirst.service.new_review import ReviewRequest
from kit.patience import PATIENCE
from kit.stores import Database
from kit.throwaway_servers import run_coroutine
from kit.warm_python import warm_python

T = TypeVar("T")
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("ASKFIRST_", "TELEGRAM_", "SSH_"))
    and name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
}


def command() -> list[str]:
    """The command in a warm process. What a cold one loads is tested in cli/test_commands.py and
    project/test_exports.py."""
    return [*warm_python(), "-m", "askfirst.cli"]


class Shell:
    """Runs the command on one database: in another process, in an empty folder, or in this process.

    Another process is what a user has; this process is quicker, for tests that run many commands.
    """

    def __init__(self, folder: Path, url: str | None = None, *, in_process: bool = False) -> None:
        self.folder = folder
        self.url = url or f"sqlite:///{folder / 'askfirst.db'}"
        self.environment = {**CLEAN, "ASKFIRST_DATABASE_URL": self.url}
        self._in_process = in_process

    @classmethod
    def on(cls, database: Database, folder: Path) -> Self:
        """A shell on a database of the conformance suite; in other processes on SQLite and PostgreSQL."""
        url = f"sqlite:///{database.address}" if database.kind == "sqlite" else database.address
        return cls(folder, url, in_process=database.kind == "mysql")

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command; returns its output and exit code, also if it fails."""
        if self._in_process:
            return self._run_here(arguments, stdin)
        done = subprocess.run(  # noqa: S603
            [*command(), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=self.environment,
            timeout=PATIENCE,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def _run_here(self, arguments: Sequence[str], stdin: str) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        typed = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        streams = patch.multiple(sys, stdin=typed, stdout=out, stderr=err)
        with (
            streams,
            patch.dict(os.environ, self.environment, clear=True),
            pytest.raises(SystemExit) as ended,
        ):
            main(arguments)
        return subprocess.CompletedProcess(
            arguments, cast(int, ended.value.code), out.getvalue(), err.getvalue()
        )

    def here(self, *arguments: str, code: int = 0) -> str:
        """The output of the command in this process, or its error text if it fails."""
        done = self._run_here(arguments, "")
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        if code:
            assert done.stdout == ""
            assert re.fullmatch(r"Error: [^\n]+\n", done.stderr), done.stderr
        return done.stderr if code else done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command without waiting for its end."""
        return subprocess.Popen(  # noqa: S603
            [*command(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """The output of the command, which has to succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, ""), (done.stdout, done.stderr)
        return done.stdout

    def fails(self, code: int, *arguments: str, stdin: str = "") -> str:
        """The error text of the command, which has to fail with this exit code."""
        done = self.run(*arguments, stdin=stdin)
        assert (done.returncode, done.stdout) == (code, ""), (done.returncode, done.stdout, done.stderr)
        assert re.fullmatch(r"Error: [^\n]+\n", done.stderr), done.stderr
        return done.stderr

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """The lines of JSON that the command prints."""
        return [json.loads(line) for line in self(*arguments).splitlines()]

    def on_database(self, work: Callable[[SqlCheckpointer], Awaitable[T]]) -> T:
        """Run a function on the database, from this process."""

        async def run() -> T:
            async with checkpointer_from_url(self.url) as checkpointer:
                return await work(checkpointer)

        return run_coroutine(run())

    # What the command finds in the database.

    def ask(
        self,
        payload: HitlPayload,
        question_id: str = "q1",
        thread_id: str = "t1",
        *,
        age: float = 0,
        **fields: Any,
    ) -> None:
        """An agent asks something."""
        request = HitlRequest(
            question_id=question_id, payload=payload, created_at=time.time() - age, **fields
        )
        self.on_database(lambda checkpointer: checkpointer.save_pending_request(thread_id, request))

    def ask_in_run(self, payload: HitlPayload, question_id: str, thread_id: str, agent_id: str) -> None:
        """An agent asks something in a run."""
        request = HitlRequest(question_id=question_id, payload=payload, created_at=time.time())

        async def work(checkpointer: SqlCheckpointer) -> None:
            begin = Step("run-1", [UserMessage("Go")], run=RunRecord(agent_id))
            fence = await checkpointer.commit(thread_id, begin, fence=0, acquire=True)
            await checkpointer.commit(thread_id, Step("run-1", opened=[request], release=True), fence=fence)

        self.on_database(work)

    def adopt(self) -> list[str]:
        """The service makes cases of what agents ask."""

        async def work(checkpointer: SqlCheckpointer) -> list[str]:
            return [case.case_id for case in await Cases(checkpointer).adopt()]

        return self.on_database(work)

    def open_case(self, **review: Any) -> str:
        """A service opens a case with a key named billing; returns its id."""

        async def work(checkpointer: SqlCheckpointer) -> str:
            known = await Keys(checkpointer.engine).listing()
            key_id = (
                known[0].key_id
                if known
                else (await Keys(checkpointer.engine).issue("billing", by="t")).key_id
            )
            return (await Cases(checkpointer).create(key_id, ReviewRequest(**review))).case.case_id

        return self.on_database(work)

    def printed(self, question_id: str = "q1", thread_id: str = "t1") -> str:
        """The short id that the command prints for an agent's request."""

        async def work(checkpointer: SqlCheckpointer) -> str:
            key = (thread_id, question_id)
            found = [it async for it in pending_items(checkpointer) if isinstance(it, AgentRequest)]
            return next(short(it) for it in found if (it.row.thread_id, it.row.question_id) == key)

        return self.on_database(work)

    def request(self, question_id: str = "q1", thread_id: str = "t1") -> StoredRequest:
        """The current state of a request."""

        async def work(checkpointer: SqlCheckpointer) -> StoredRequest:
            found = await checkpointer.request(thread_id, question_id)
            assert found is not None
            return found

        return self.on_database(work)

    def case(self, case_id: str) -> Any:
        """The current state of a case."""
        return self.on_database(lambda checkpointer: Cases(checkpointer).get(case_id))


def call(tool_name: str = "send", tool_call_id: str = "q1", **args: Any) -> ApproveRequest:
    """A call to be approved."""
    digest = call_digest(tool_name, args)
    return ApproveRequest(tool_name=tool_name, tool_call_id=tool_call_id, args=args, digest=digest)


async def run_command(shell: Shell, *arguments: str) -> tuple[int | None, str, str]:
    """Run the command without blocking the event loop of this process."""
    process = await asyncio.create_subprocess_exec(
        *command(),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=shell.folder,
        env=shell.environment,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()
