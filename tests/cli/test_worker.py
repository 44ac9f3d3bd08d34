"""``askfirst worker`` and ``askfirst continuations``: what was answered goes on, and what does not is seen."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from kit.cli_rig import Shell
from kit.patience import PATIENCE
from kit.throwaway_servers import free_port

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.gate.action import Action
from askfirst.gate.gate import Gate

APP = """
from pathlib import Path


async def resume(continuation):
    with Path("resumed").open("a") as file:
        file.write(f"{continuation.thread_id}\\n")


async def fail(continuation):
    raise RuntimeError("the model is down")


resumers = {"graph": resume}
failing = {"graph": fail}
nothing = {}
wrong = {"graph": 7}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "app_of_worker.py").write_text(APP)
    return Shell(tmp_path)


def answered(shell: Shell, thread_id: str) -> None:
    async def work(checkpointer: SqlCheckpointer) -> None:
        async with Gate(checkpointer) as gate:
            await gate.open(thread_id, Action(tool="pay", args={}, resumer="graph", resumes=thread_id))
            await gate.answer(thread_id, {"decision": "approve"})

    shell.on_database(work)


def test_a_worker_does_what_is_due_and_ends(shell: Shell, tmp_path: Path) -> None:
    assert shell("continuations") == "No thread has to be resumed.\n"
    answered(shell, "t1")
    assert "t1  graph  answered" in shell("continuations")
    assert shell("worker", "app_of_worker:resumers", "--once") == "1 thread was resumed.\n"
    assert (tmp_path / "resumed").read_text() == "t1\n"
    assert shell("continuations") == "No thread has to be resumed.\n"
    assert "gone on" in shell("continuations", "--all")


def test_what_cannot_go_on_is_seen_and_tried_again(shell: Shell) -> None:
    answered(shell, "t1")
    shell.run("worker", "app_of_worker:failing", "--once")
    said = shell("continuations")
    assert "could not go on: RuntimeError: the model is down; tried once, next in" in said
    [known] = [json.loads(line) for line in shell("continuations", "--json").splitlines()]
    assert (known["state"], known["attempts"], known["error"]) == (
        "failed",
        1,
        "RuntimeError: the model is down",
    )
    assert shell("continuations", "retry", "t1") == "t1 is due now, by graph.\n"
    assert shell("worker", "app_of_worker:resumers", "--once") == "1 thread was resumed.\n"
    assert "no continuation" in shell.fails(1, "continuations", "retry", "unknown")


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("app_of_worker", "module:name"),
        ("no_such_module:resumers", "no module"),
        ("app_of_worker:unknown", "not a mapping"),
        ("app_of_worker:nothing", "not a mapping"),
        ("app_of_worker:wrong", "not the name of a resumer"),
    ],
)
def test_what_are_no_resumers_is_said_in_a_sentence(shell: Shell, named: str, problem: str) -> None:
    refused = shell.run("worker", named)
    assert refused.returncode == 2
    assert problem in refused.stderr


def test_a_service_may_have_a_worker_with_it(shell: Shell, tmp_path: Path) -> None:
    port = str(free_port())
    service = shell.start("serve", "--port", port, "--with-worker", "app_of_worker:resumers")
    try:
        answered(shell, "t1")
        deadline = time.monotonic() + PATIENCE
        while not (tmp_path / "resumed").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (tmp_path / "resumed").read_text() == "t1\n"
    finally:
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=PATIENCE)
    assert shell.run("serve", "--with-worker", "nothing").returncode == 2


def test_a_worker_ends_when_it_is_told_to(shell: Shell, tmp_path: Path) -> None:
    worker = shell.start("worker", "app_of_worker:resumers")
    assert worker.stderr is not None
    assert "Resuming answered threads of graph." in worker.stderr.readline()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    worker.stderr.close()
    if worker.stdout is not None:
        worker.stdout.close()
