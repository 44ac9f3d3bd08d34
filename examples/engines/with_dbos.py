"""DBOS: the outbox's webhook starts a durable workflow, which resumes the thread."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dbos import DBOS, SetWorkflowID
from desk import DATABASE, resumers
from fastapi import FastAPI, Request, Response

from askfirst.errors import InvalidSignature
from askfirst.workers import read_due_event, run_continuation

SYSTEM_DATABASE = os.environ.get("DBOS_SYSTEM_DATABASE_URL", "sqlite:///dbos.db")


@DBOS.step()
async def go_on(thread_id: str) -> str:
    """Resume a thread; a step that runs again finds nothing to do."""
    known = await run_continuation(DATABASE, thread_id, resumers)
    return "nothing to do" if known is None else known.state


@DBOS.workflow()
async def answered(thread_id: str) -> str:
    """The workflow after an answer; add your own steps here."""
    return await go_on(thread_id)


@asynccontextmanager
async def launched(_: FastAPI) -> AsyncGenerator[None]:
    """Launch DBOS, which also recovers the workflows of an earlier process."""
    DBOS(config={"name": "desk", "system_database_url": SYSTEM_DATABASE})
    DBOS.launch()
    yield
    DBOS.destroy()


receiver = FastAPI(lifespan=launched)


@receiver.post("/due")
async def due(request: Request) -> Response:
    """Receive a webhook: verify its signature, start the workflow under the event's id, and only then answer 202."""
    try:
        event = read_due_event(await request.body(), request.headers, os.environ["ASKFIRST_OUTBOX_SECRET"])
    except InvalidSignature as error:
        return Response(str(error), 401)
    with SetWorkflowID(event.id):
        await DBOS.start_workflow_async(answered, event.thread_id)
    return Response(status_code=202)
