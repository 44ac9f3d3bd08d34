"""Procrastinate: continuations as jobs of a task queue in the same PostgreSQL database, on any machine."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from askfirst.checkpointer.base import LEASE_SECONDS
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.concurrency import cancel_all
from askfirst.errors import MissingExtra, ResumeLater, StoreError
from askfirst.workers.attempt import MOST_ATTEMPTS, check_worker, go_on, worker_name
from askfirst.workers.continuations import Continuation, Continuations
from askfirst.workers.relay import NotHandedOver, Relay
from askfirst.workers.resumers import Resumer

if TYPE_CHECKING:
    from procrastinate import App, BaseRetryStrategy, JobContext
    from procrastinate.jobs import Job
    from procrastinate.worker import Worker as JobWorker

logger = logging.getLogger("askfirst.workers")
TASK = "askfirst.go_on"
"""The name of the jobs' task."""
_ENGINE = "procrastinate"
_SCHEMA_LOCK = 7286889414
_MOST_CONNECTIONS = 6
_PAUSE = 1.0
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,24}")


def queue_of(resumer: str) -> str:
    """The queue for a resumer: named like it where that fits into a channel of NOTIFY, else by a digest."""
    return f"askfirst-{resumer if _PLAIN.fullmatch(resumer) else hashlib.sha256(resumer.encode()).hexdigest()[:24]}"


class ProcrastinateWorker:
    """Hands due continuations to Procrastinate, and runs its jobs by the resumers that this worker knows.

    Needs the ``procrastinate`` extra and a `PostgresCheckpointer`. A thread has at most one job that waits
    (``queueing_lock``) and one that runs (``lock``), on all machines together. A job takes the continuation under a
    lease, so that a job that is delivered twice does nothing the second time. ``retry`` is a strategy of
    Procrastinate's own (``RetryStrategy``): it says after how long a failed continuation is handed over again, and
    None ends that. Jobs of a worker that died are removed when its heartbeat has been missing for ``lease_seconds``;
    their continuations are then handed over again, because their leases lapse in the same time.
    """

    def __init__(
        self,
        checkpointer: SqlCheckpointer,
        resumers: Mapping[str, Resumer],
        *,
        concurrency: int = 10,
        lease_seconds: float = LEASE_SECONDS,
        retry: BaseRetryStrategy | None = None,
    ) -> None:
        check_worker(resumers, concurrency)
        if not isinstance(checkpointer, PostgresCheckpointer):
            raise StoreError("the engine procrastinate needs PostgreSQL: give it a database at postgresql://")
        self._app, self._retry = _made_app(checkpointer, concurrency, retry)
        self._task = self._app.task(name=TASK, pass_context=True)(self._go_on)
        self._resumers = dict(resumers)
        self._concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._owner = worker_name()
        self._continuations = Continuations(checkpointer)
        self._relay = Relay(
            checkpointer, self._defer, to=_ENGINE, resumers=list(resumers), again_in=lease_seconds
        )
        self._stopping = asyncio.Event()
        self._under_way: set[int] = set()
        self._count = 0

    def stop(self) -> None:
        """Take nothing more; `run` returns when what is under way has ended."""
        self._stopping.set()
        self._relay.stop()

    async def run(self) -> None:
        """Hand over what becomes due and run jobs, until `stop`."""
        async with self._app.open_async():
            await _apply_schema(self._app)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._relay.run())
                group.create_task(self._keep_working())
                sweeping = group.create_task(self._keep_sweeping())
                await self._stopping.wait()
                sweeping.cancel()

    async def run_due(self) -> int:
        """Run what is due now, and what becomes due meanwhile; returns how many continuations this worker ran."""
        async with self._app.open_async():
            await _apply_schema(self._app)
            handed = await self._relay.hand_due()
            before = -1
            while handed or self._count != before:
                before = self._count
                await self._worker(wait=False).run()
                handed = await self._relay.hand_due()
        return self._count

    async def _defer(self, handed: Continuation) -> None:
        from procrastinate.exceptions import AlreadyEnqueued, ConnectorException

        name = f"askfirst:{handed.thread_id}"
        job = self._task.configure(queue=queue_of(handed.resumer), lock=name, queueing_lock=name)
        try:
            with suppress(AlreadyEnqueued):  # the job that waits in the queue resumes the thread
                await job.defer_async(thread_id=handed.thread_id)
        except ConnectorException as error:
            raise NotHandedOver(
                f"Procrastinate could not queue the continuation ({type(error).__name__})"
            ) from error

    async def _go_on(self, context: JobContext, *, thread_id: str) -> None:
        """The job: take the continuation, if it is still to be taken, and go on."""
        job = context.job
        if job.id is not None:
            self._under_way.add(job.id)
        try:
            taken = await self._continuations.take_one(
                thread_id, self._owner, self._lease_seconds, list(self._resumers)
            )
            if taken is None:
                return
            self._count += 1
            error = await go_on(
                self._continuations,
                taken,
                self._resumers[taken.resumer],
                lease_seconds=self._lease_seconds,
                retry=lambda it, error: self._retry_in(job, it, error),
            )
            if error is not None and not isinstance(error, ResumeLater):
                raise error
        finally:
            if job.id is not None:
                self._under_way.discard(job.id)

    def _retry_in(self, job: Job, taken: Continuation, error: Exception) -> float | None:
        """What Procrastinate's strategy says of this continuation's attempts, in seconds.

        The relay hands it over again then. Procrastinate itself is not told to retry the job: if another answer has
        queued the thread once more meanwhile, the retried job would violate the ``queueing_lock``.
        """
        tried = job.evolve(attempts=max(0, taken.attempts - 1))
        decision = self._retry.get_retry_decision(exception=error, job=tried)
        if decision is None:
            return None
        if decision.retry_at is None:
            return 0.0
        return max(0.0, (decision.retry_at - datetime.now(UTC)).total_seconds())

    def _worker(self, *, wait: bool) -> JobWorker:
        from procrastinate.worker import Worker as JobWorker

        return JobWorker(
            app=self._app,
            queues=[queue_of(name) for name in self._resumers],
            name=self._owner,
            concurrency=self._concurrency,
            wait=wait,
            delete_jobs="successful",
            install_signal_handlers=False,
            update_heartbeat_interval=self._lease_seconds / 3,
            stalled_worker_timeout=self._lease_seconds,
        )

    async def _keep_working(self) -> None:
        """Run Procrastinate's worker, and another one when it ends because the database went away."""
        from procrastinate.exceptions import ProcrastinateException

        while not self._stopping.is_set():
            worker = self._worker(wait=True)
            running = asyncio.create_task(worker.run())
            stopping = asyncio.create_task(self._stopping.wait())
            sweeping = asyncio.create_task(self._keep_clearing(worker))
            try:
                await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
                worker.stop()
                await running
            except (ProcrastinateException, OSError) as error:
                logger.warning("Procrastinate's worker ended, and is started again: %s", type(error).__name__)
            finally:
                await cancel_all((stopping, sweeping))
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._stopping.wait()

    async def _keep_clearing(self, worker: JobWorker) -> None:
        """Remove jobs that this worker has ended, but that stand as running: the connection broke at their end."""
        seen: set[int] = set()
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            with _logged():
                mine = await self._app.job_manager.list_jobs_async(
                    status="doing", worker_id=worker.worker_id, task=TASK
                )
                left = {job.id: job for job in mine if job.id is not None and job.id not in self._under_way}
                if worker.worker_id is not None:
                    for job_id in seen & left.keys():
                        await self._remove(left[job_id])
                seen = set(left)

    async def _keep_sweeping(self) -> None:
        """Remove the jobs of dead workers, which else would keep the locks of their threads."""
        while True:
            with _logged():
                stalled = await self._app.job_manager.get_stalled_jobs(
                    task_name=TASK, seconds_since_heartbeat=self._lease_seconds
                )
                for job in stalled:
                    await self._remove(job)
            await asyncio.sleep(self._lease_seconds / 3)

    async def _remove(self, job: Job) -> None:
        from procrastinate.jobs import Status

        with _logged():  # another worker may have been first
            await self._app.job_manager.finish_job(job, Status.ABORTED, delete_job=True)


class _logged:  # noqa: N801  (a context manager, used as a verb)
    """Passes over what the database refuses or cannot do now: the next sweep tries again."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        from procrastinate.exceptions import ConnectorException

        if isinstance(error, ConnectorException):
            logger.debug("jobs of dead workers are looked for again: %s", type(error).__name__)
            return True
        return False


def _made_app(
    checkpointer: PostgresCheckpointer, concurrency: int, retry: BaseRetryStrategy | None
) -> tuple[App, BaseRetryStrategy]:
    try:
        from procrastinate import App, PsycopgConnector, RetryStrategy
    except ModuleNotFoundError as error:
        raise MissingExtra("the engine procrastinate", "procrastinate") from error
    connector = PsycopgConnector(
        conninfo=checkpointer.dsn,
        min_size=1,
        max_size=min(concurrency, _MOST_CONNECTIONS) + 1,
        kwargs={"application_name": "askfirst"},
    )
    return App(connector=connector), retry or RetryStrategy(
        max_attempts=MOST_ATTEMPTS - 1, exponential_wait=2
    )


async def _apply_schema(app: App) -> None:
    """Create Procrastinate's tables if they are missing; workers that start at the same time wait for one another."""
    connector: Any = app.connector
    schema = await asyncio.to_thread(app.schema_manager.get_schema)
    async with connector.pool.connection() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        found = await (await connection.execute("SELECT to_regclass('procrastinate_jobs')")).fetchone()
        if found[0] is None:
            await connection.execute(schema)
