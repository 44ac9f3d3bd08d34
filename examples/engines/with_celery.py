"""Celery: the outbox's webhook queues a task, and a Celery worker resumes the thread."""

import asyncio
import os

from celery import Celery  # pyright: ignore[reportMissingTypeStubs]
from desk import DATABASE, resumers
from fastapi import FastAPI, Request, Response

from askfirst.errors import InvalidSignature
from askfirst.workers import DueEvent, read_due_event, run_continuation

queue = Celery("desk", broker=os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:6379/0"))
# With late acknowledgement, the task of a worker that died is delivered again.
settings = {"task_acks_late": True, "task_default_queue": os.environ.get("CELERY_QUEUE", "desk")}
queue.conf.update(settings)  # pyright: ignore[reportUnknownMemberType]


@queue.task(name="go_on")  # pyright: ignore[reportUntypedFunctionDecorator, reportUnknownMemberType]
def go_on(thread_id: str) -> str:
    """Resume a thread; a task that is delivered twice finds nothing to do."""
    known = asyncio.run(run_continuation(DATABASE, thread_id, resumers))
    return "nothing to do" if known is None else known.state


def queue_task(event: DueEvent) -> None:
    """Queue the task under the event's id."""
    queue.send_task("go_on", [event.thread_id], task_id=event.id)  # pyright: ignore[reportUnknownMemberType]


receiver = FastAPI()


@receiver.post("/due")
async def due(request: Request) -> Response:
    """Receive a webhook: verify its signature, queue the task, and only then answer 202."""
    try:
        event = read_due_event(await request.body(), request.headers, os.environ["ASKFIRST_OUTBOX_SECRET"])
    except InvalidSignature as error:
        return Response(str(error), 401)
    await asyncio.to_thread(queue_task, event)
    return Response(status_code=202)
