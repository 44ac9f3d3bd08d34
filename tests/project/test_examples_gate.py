"""The examples of the gate: a script, FastAPI, Flask, and a Celery task with a real worker on a real Redis."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kit.paths import ROOT
from kit.patience import PATIENCE
from kit.warm_python import warm_python
from starlette.testclient import TestClient

from askfirst import SyncGate

EXAMPLES = ROOT / "examples"
APPROVE = {"decision": "approve"}


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database of the example and of the person who answers."""
    url = f"sqlite:///{tmp_path}/askfirst.db"
    monkeypatch.setenv("ASKFIRST_DATABASE_URL", url)
    return url


def example(name: str) -> Any:
    """An example as a module of its own, made anew."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script(*args: str) -> str:
    command = [*warm_python(), "-W", "error", str(EXAMPLES / "gate_script.py"), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


def test_a_script_asks_ends_and_goes_on_when_it_is_run_again(url: str) -> None:
    for _ in range(2):
        assert script() == "a person has to decide first: refund-A-1042\n"
    with SyncGate(url) as person:
        [asked] = person.pending()
        assert asked.request.payload.sentences == ["Pay back 49.00 EUR for order A-1042"]
        person.answer(asked, APPROVE, by="ada")
    assert script() == "(refund runs: 49.00 EUR for A-1042)\n49.00 EUR were sent\n"
    assert script() == "49.00 EUR were sent\n"
    assert script("A-7") == "a person has to decide first: refund-A-7\n"
    with SyncGate(url) as person:
        person.answer("refund-A-7", {"decision": "deny", "reason": "he has it back already"})
    assert script("A-7") == "not paid: he has it back already\n"


Post = Callable[[str, dict[str, int]], tuple[int, Any]]


@contextmanager
def fastapi_client() -> Iterator[Post]:
    with TestClient(example("gate_fastapi").app) as client:

        def post(path: str, body: dict[str, int]) -> tuple[int, Any]:
            answered = client.post(path, json=body)
            return answered.status_code, answered.json()

        yield post


@contextmanager
def flask_client() -> Iterator[Post]:
    module = example("gate_flask")
    client = module.app.test_client()

    def post(path: str, body: dict[str, int]) -> tuple[int, Any]:
        answered = client.post(path, json=body)
        return answered.status_code, answered.get_json()

    with module.gate:
        yield post


@pytest.mark.parametrize("opened", [fastapi_client, flask_client])
def test_an_endpoint_answers_202_and_the_result_later(url: str, opened: Any) -> None:
    with opened() as post:
        for _ in range(2):
            status, told = post("/orders/A-1042/refund", {"cents": 4900})
            assert status == 202
            assert told["status"] == "pending"
            assert told["case"].startswith("review_")
        post("/orders/A-7/refund", {"cents": 1})
        with SyncGate(url) as person:
            edited = {"order": "A-1042", "cents": 100}
            person.answer("refund-A-1042", {"decision": "edit", "edited_args": edited}, by="ada")
            person.answer("refund-A-7", {"decision": "deny", "reason": "no"}, by="ada")
        for _ in range(2):
            assert post("/orders/A-1042/refund", {"cents": 4900}) == (200, edited)
        assert post("/orders/A-7/refund", {"cents": 1}) == (403, {"status": "denied", "reason": "no"})


# Celery.


def _redis() -> str:
    """A Redis of which nobody uses database 13, or the name of what is missing."""
    address = os.environ.get("ASKFIRST_TEST_REDIS", "127.0.0.1:6379")
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        pytest.skip(f"no Redis at {address}")
    return f"redis://{address}/13"


@contextmanager
def worker(broker: str, queue: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "--app", "gate_celery", "worker", "--pool", "prefork"]
    command += ["--concurrency", "1", "--queues", queue, "--without-gossip", "--without-mingle"]
    environ = {
        **os.environ,
        "CELERY_BROKER_URL": broker,
        "RETRY_SECONDS": "0.1",
        "PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(ROOT)]),
    }
    with (folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603
            command, cwd=folder, env=environ, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_celery_task_waits_for_a_person_and_pays_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = _redis()
    queue = f"gate-{uuid.uuid4().hex}"  # none that a run which was killed has left tasks in
    monkeypatch.setenv("CELERY_BROKER_URL", broker)
    module = example("gate_celery")
    with module.gate, SyncGate(url) as person, worker(broker, queue, tmp_path):
        tasks = [module.refund.apply_async((order, 4900), queue=queue) for order in ("A-1", "A-2")]
        waiting = asked(person, 2)
        assert {it.thread_id for it in waiting} == {f"gate:celery-{task.id}" for task in tasks}
        person.answer(f"celery-{tasks[0].id}", APPROVE, by="ada")
        person.answer(f"celery-{tasks[1].id}", {"decision": "deny", "reason": "no"}, by="ada")
        results = [task.get(timeout=PATIENCE) for task in tasks]
    assert results == ["49.00 EUR were sent for A-1", "not paid: no"]
    for task in tasks:
        task.forget()
    module.app.close()


def asked(person: SyncGate, count: int) -> list[Any]:
    deadline = time.monotonic() + PATIENCE
    while len(waiting := person.pending()) < count:
        assert time.monotonic() < deadline, f"only {len(waiting)} of {count} tasks ask"
        time.sleep(0.05)
    return waiting
