"""The recipes for other engines, run as the guide says: Celery with Redis, and DBOS."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest
from kit.cli_rig import CLEAN
from kit.debian_packages import in_ci
from kit.paths import ROOT
from kit.patience import PATIENCE
from kit.throwaway_servers import free_port

from askfirst import Agent, tool
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.protocol import new_callback_secret, webhook_headers
from askfirst.workers import Continuations
from askfirst.workers.outbox import due_event

pytestmark = pytest.mark.anyio
ENGINES = ROOT / "examples" / "engines"
GUIDE = ROOT / "docs" / "guide" / "engines.md"
REDIS = "redis://127.0.0.1:6379"


def missing(why: str) -> None:
    raise (pytest.fail if in_ci() else pytest.skip).Exception(why)


class Recipe:
    """Processes of a recipe: what receives webhooks, the outbox, and what the engine needs beside them."""

    def __init__(self, folder: Path, module: str, **more: str) -> None:
        self.folder, self.module, self.port = folder, module, free_port()
        self.url = f"sqlite:///{folder / 'askfirst.db'}"
        self.secret = new_callback_secret()
        self.environment = {
            **CLEAN,
            "ASKFIRST_DATABASE_URL": self.url,
            "ASKFIRST_OUTBOX_SECRET": self.secret,
            "PAID": str(folder / "paid.txt"),
            "PYTHONPATH": os.pathsep.join([str(ENGINES), *(each for each in sys.path if each)]),
            **more,
        }

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def receiving(self) -> Iterator[None]:
        receiver = f"{self.module}:receiver"
        with (
            self.running("uvicorn", receiver, "--port", str(self.port)),
            self.running("askfirst.cli", "outbox", "--url", f"http://127.0.0.1:{self.port}/due"),
        ):
            yield

    def log(self) -> str:
        return (self.folder / "log").read_text()[-6000:]

    async def goes_on(self, thread_id: str) -> None:
        """A thread pauses, is answered, and goes on in the engine: once, though its webhook comes again."""

        @tool(requires_approval=True)
        def pay(cents: int) -> str:
            """Pay someone."""
            raise AssertionError("it runs in the engine")

        async with checkpointer_from_url(self.url) as store:
            model = ScriptedModel([ToolCall("c1", "pay", {"cents": 900})])
            agent = Agent(model=model, tools=[pay], checkpointer=store, thread_id=thread_id, resumer="desk")
            assert (await agent.prompt("Pay.")).status == "paused"
            await store.settle(thread_id, "c1", {"decision": "approve"})
            known = Continuations(store)
            ends = time.monotonic() + PATIENCE
            found = await known.of(thread_id)
            while found is None or found.state != "done":
                assert time.monotonic() < ends, f"{found}\n{self.log()}"
                await asyncio.sleep(0.05)
                found = await known.of(thread_id)
            message_id, body = due_event(found)
            headers = webhook_headers(body, self.secret, message_id=message_id, timestamp=int(time.time()))
            async with httpx2.AsyncClient() as http:
                where = f"http://127.0.0.1:{self.port}/due"
                assert (await http.post(where, content=body, headers=headers)).status_code == 202
                assert (await http.post(where, content=body)).status_code == 401
            stored = await store.load(thread_id)
        assert stored is not None
        assert stored.messages[-1].text == "Done."
        assert (self.folder / "paid.txt").read_text() == "900\n"


async def test_celery(tmp_path: Path) -> None:
    if find_spec("celery") is None or find_spec("redis") is None:
        missing("the recipe for Celery: celery or redis is not installed")
    with socket.socket() as tried:
        if tried.connect_ex(("127.0.0.1", 6379)) != 0:
            missing("the recipe for Celery: no Redis at 127.0.0.1:6379")
    queue = f"askfirst-test-{tmp_path.name}-{os.getpid()}"
    more = {"CELERY_BROKER_URL": f"{REDIS}/7", "CELERY_QUEUE": queue}
    recipe = Recipe(tmp_path, "with_celery", **more)
    worker = ("celery", "-A", "with_celery:queue", "worker", "--concurrency", "1", "--loglevel", "INFO")
    try:
        with recipe.running(*worker), recipe.receiving():
            await recipe.goes_on("order-7")
    finally:
        from redis.asyncio import Redis

        async with Redis.from_url(f"{REDIS}/7") as redis:
            await redis.delete(queue, f"_kombu.binding.{queue}")


async def test_dbos(tmp_path: Path) -> None:
    if find_spec("dbos") is None:
        missing("the recipe for DBOS: dbos is not installed")
    with Recipe(tmp_path, "with_dbos").receiving():
        pass  # a process that is killed while it starts leaves nothing that hinders the next one
    recipe = Recipe(tmp_path, "with_dbos")
    with recipe.receiving():
        await recipe.goes_on("order-8")


def test_the_guide_shows_the_recipes_as_they_are() -> None:
    shown = re.findall(r"^```python(?: no-run)?\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    for name in ("desk.py", "with_celery.py", "with_dbos.py"):
        assert (ENGINES / name).read_text() in shown, name
