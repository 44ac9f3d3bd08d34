"""SQLite: one thread that writes, one that reads, and group commit; its file and its schema."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from sqlalchemy import text
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

from askfirst.concurrency import UncancellableFuture
from askfirst.errors import StoreError
from askfirst.store import requests
from askfirst.store.engine import Home
from askfirst.store.former_name import FORMER_NAMES, renaming
from askfirst.store.schema import VERSION, is_current, migration
from askfirst.store.statement import WAKE, Form, Params, Statement, Transaction, woken
from askfirst.store.thread_signals import Doorbell, Letterbox, letterbox
from askfirst.store.wakeups import Hub, Key, look_after

# The file that an SQLite database was opened from, and whether it is still where it was.


class SQLiteFile:
    """A database file by path and identity (inode): SQLite keeps writing to a file that was deleted."""

    def __init__(self, path: str) -> None:
        self._path = str(Path(path).absolute())  # the working directory may change
        self._found = self._find()

    def check(self) -> None:
        """Raise `StoreError` if the file was deleted or replaced."""
        if self._found is None or self._find() != self._found:
            raise StoreError(
                f"the SQLite database {self._path!r} was removed or replaced while it was open; what is written "
                "to it would be lost: close it, and open what is there now"
            )

    def _find(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116  (for every commit: a third of what a `Path` takes)
        except OSError:
            return None
        return found.st_dev, found.st_ino


def make_private(path: str) -> None:
    """Make an empty file that only its owner may read, unless there is one; SQLite fills it, and gives the files
    beside it the same rights. Where that cannot be, SQLite says why as it opens the file."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def readable_by_others(path: str) -> bool:
    """Whether others than the file's owner may read it; False where there is no such file, or no such rights."""
    try:
        return os.name == "posix" and bool(os.stat(path).st_mode & 0o077)  # noqa: PTH116
    except OSError:
        return False


# Bringing a SQLite file's tables up to date.


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, holding the write lock meanwhile."""
    if is_current(_version(connection)):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # another process may have been faster
        if version is None:
            for sql in renaming(
                "sqlite", connection.execute(FORMER_NAMES.form(sqlite_dialect()).sql).fetchall()
            ):
                connection.execute(sql)
            version = _version(connection)
        if not is_current(version):
            for sql in migration("sqlite", version):
                connection.execute(sql)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> str | None:
    try:
        row = connection.execute(VERSION.form(sqlite_dialect()).sql).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    return None if row is None else row[0]


T = TypeVar("T")
BUSY_SECONDS = 60.0
PROBE_SECONDS = 0.1
MEMORY = ":memory:"
_DIALECT = sqlite_dialect(paramstyle="qmark")
DATA_VERSION = Statement(text("PRAGMA data_version"), reads=True)


@dataclass(slots=True, eq=False)
class _Job:
    """A transaction that a worker thread runs, and its outcome."""

    transaction: Callable[[], Transaction[Any]]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    wakes: list[Key] = field(default_factory=list[Key])

    def run(self, connection: sqlite3.Connection) -> None:
        """Pump the generator; raises what it raises."""
        self.wakes.clear()
        transaction, answer = self.transaction(), None
        try:
            while True:
                statement, params = transaction.send(answer)
                if statement is WAKE:
                    self.wakes.append(woken(params))
                    answer = 0
                else:
                    answer = _execute(connection, statement, params)
        except StopIteration as stop:
            self.result, self.error = stop.value, None


@cache
def _form(statement: Statement) -> Form:
    return statement.form(_DIALECT)


def _execute(connection: sqlite3.Connection, statement: Statement, params: Params) -> Any:
    sql, arguments, reads = _form(statement)
    if isinstance(params, list):
        return connection.executemany(sql, map(arguments, params)).rowcount
    cursor = connection.execute(sql, arguments(params))  # pyright: ignore[reportArgumentType]
    return cursor.fetchall() if reads else cursor.rowcount


_RunBatch = Callable[[sqlite3.Connection, list[_Job]], None]


class _Worker:
    """A worker thread with its own connection; it takes queued jobs and returns them in batches."""

    def __init__(self, name: str, hub: Hub | None = None) -> None:
        self._inbox: Letterbox[_Job | None] = letterbox()
        self._done: deque[list[_Job]] = deque()
        self._bell = Doorbell(self._hand_back)
        self._loop = asyncio.get_running_loop()
        self._hub = hub
        self._name = name
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def start(self, connect: Callable[[], sqlite3.Connection], run_batch: _RunBatch) -> None:
        """Start the thread; raises what connecting raises."""
        opened: asyncio.Future[None] = self._loop.create_future()
        run = partial(self._run, connect, opened, run_batch)
        Thread(target=run, name=self._name, daemon=True).start()
        try:
            await asyncio.shield(opened)
        except asyncio.CancelledError:
            self._inbox.put(None)
            raise
        except BaseException:
            self._bell.take_down()
            raise

    def submit(self, transaction: Callable[[], Transaction[T]], *, behind: bool = False) -> asyncio.Future[T]:
        future: asyncio.Future[T] = UncancellableFuture(loop=self._loop)
        job = _Job(transaction, future)
        if behind:
            self._inbox.leave(job)
            self._loop.call_soon(self._inbox.call)
        else:
            self._inbox.put(job)
        return future

    async def stop(self) -> None:
        """Let the thread finish its queue, close the connection and end, even if the caller is cancelled."""
        self._inbox.put(None)
        await asyncio.shield(self._ended)
        self._hand_back()
        self._bell.take_down()

    def _run(
        self, connect: Callable[[], sqlite3.Connection], opened: asyncio.Future[None], run_batch: _RunBatch
    ) -> None:
        try:
            connection = connect()
        except BaseException as error:
            self._inbox.close()
            self._tell(_fail, opened, error)
            return
        self._tell(_succeed, opened)
        try:
            going = True
            while going:
                taken = self._inbox.take()
                batch = [job for job in taken if job is not None]
                going = len(batch) == len(taken)
                if batch:
                    try:
                        run_batch(connection, batch)
                    except BaseException as error:  # the connection is beyond repair; the thread goes on
                        for job in batch:
                            job.error = job.error or _told(error)
                    self._done.append(batch)
                    self._bell.ring()
        finally:
            connection.close()
            self._inbox.close()
            self._tell(_succeed, self._ended)

    def _tell(self, function: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(function, *args)

    def _hand_back(self) -> None:
        while self._done:
            for job in self._done.popleft():
                if job.future.done():  # cancelled with the loop
                    continue
                if job.error is not None:
                    job.future.set_exception(job.error)
                    continue
                job.future.set_result(job.result)
                if self._hub is not None and job.wakes:
                    self._hub.wake(job.wakes)


def _succeed(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _read_batch(connection: sqlite3.Connection, batch: list[_Job]) -> None:
    for job in batch:
        try:
            job.run(connection)
        except BaseException as error:
            job.error = _told(error)


def _write_batch(connection: sqlite3.Connection, batch: list[_Job]) -> None:
    """Group commit: one COMMIT for all jobs. If that fails, each job gets a transaction of its own."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        for job in batch:
            job.error = _told(error)
        return
    if len(batch) == 1:
        _write_one(connection, batch[0])
        return
    if _write_together(connection, batch):
        return
    for job in batch:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            job.error = _told(error)
        else:
            _write_one(connection, job)


def _write_one(connection: sqlite3.Connection, job: _Job) -> None:
    try:
        job.run(connection)
        connection.execute("COMMIT")
    except BaseException as error:
        _roll_back(connection)
        job.error = _told(error)


def _write_together(connection: sqlite3.Connection, batch: list[_Job]) -> bool:
    """Run all jobs in one transaction; False, and nothing is written, if the transaction itself fails.

    Most batches succeed, so the first attempt has no savepoints. The second has one for each job, so that a job
    that fails undoes nothing else.
    """
    try:
        for job in batch:
            job.run(connection)
        connection.execute("COMMIT")
        return True
    except BaseException:
        _roll_back(connection)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for job in batch:
            if not _write_apart(connection, job):
                return False
        connection.execute("COMMIT")
        return True
    except sqlite3.Error:
        _roll_back(connection)
        return False


def _write_apart(connection: sqlite3.Connection, job: _Job) -> bool:
    """Run a job within a savepoint, so that its failure undoes nothing else; False if SQLite undid everything."""
    connection.execute("SAVEPOINT job")
    try:
        job.run(connection)
    except BaseException as error:
        if not connection.in_transaction:
            return False
        connection.execute("ROLLBACK TO job")
        job.error = _told(error)
    connection.execute("RELEASE job")
    return True


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _told(error: BaseException) -> BaseException:
    if isinstance(error, sqlite3.Error):
        told = StoreError(f"SQLite: {error}")
        told.__cause__ = error
        return told
    return error


def _data_version() -> Transaction[int]:
    rows = yield DATA_VERSION, {}
    return rows[0][0]


def _patiently(connection: sqlite3.Connection, sql: str) -> None:
    """Retry a statement that finds the file locked and for which SQLite's busy time-out does not wait."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute(sql)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


class SQLiteEngine:
    """A database file, or ``":memory:"``, which has but one connection for everything."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.hub = Hub(self._probe)
        self._file: SQLiteFile | None = None

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        self._home = Home()
        self._writer = _Worker("askfirst-sqlite-write", self.hub)
        await self._writer.start(self._connect_writer, self._write_batch)
        if self.path == MEMORY:
            self._reader = self._writer
            return
        self._reader = _Worker("askfirst-sqlite-read")
        try:
            await self._reader.start(self._connect_reader, _read_batch)
        except BaseException:
            await self._writer.stop()
            raise

    async def close(self) -> None:
        """Finish the queue and close the file; no thread is left behind, even if the caller is cancelled.

        The writer is closed last: SQLite then checkpoints the write-ahead log into the file and deletes the
        log. A read-only connection would not.
        """
        try:
            await self.hub.close()
        finally:
            try:
                if self._reader is not self._writer:
                    await self._reader.stop()
            finally:
                await self._writer.stop()

    def write(
        self,
        transaction: Callable[[], Transaction[T]],
        landed: Callable[[], Transaction[T | None]] | None = None,
        *,
        behind: bool = False,
        at_once: bool = False,
    ) -> asyncio.Future[T]:
        """Run a transaction in the writing thread, in the next commit. Its outcome is always known."""
        self._home.check()
        return self._writer.submit(transaction, behind=behind)

    def read(self, transaction: Callable[[], Transaction[T]]) -> asyncio.Future[T]:
        """Run statements that only read, in the reading thread."""
        self._home.check()
        return self._reader.submit(transaction)

    async def _probe(self, hub: Hub) -> None:
        """While somebody waits, poll ``PRAGMA data_version`` for commits of other connections."""
        if self.path == MEMORY:
            return
        seen: int | None = None
        while hub.keys:
            version = await self.read(_data_version)
            if version != seen:
                seen = version
                await look_after(hub, self._still_open, batch=requests.LISTED)
            await asyncio.sleep(PROBE_SECONDS)

    async def _still_open(self, keys: list[Key]) -> dict[Key, int]:
        return await self.read(lambda: requests.listed_still_open(keys))

    def _write_batch(self, connection: sqlite3.Connection, batch: list[_Job]) -> None:
        if self._file is not None:
            self._file.check()
        _write_batch(connection, batch)

    def _connect_writer(self) -> sqlite3.Connection:
        try:
            if self.path != MEMORY:
                make_private(self.path)
            connection = self._connect()
            try:
                # What is deleted or replaced is overwritten, so that it is not in the file any more.
                connection.execute("PRAGMA secure_delete = ON")
                if self.path != MEMORY:
                    _patiently(connection, "PRAGMA journal_mode = WAL")
                    connection.execute("PRAGMA synchronous = FULL")
                    self._file = SQLiteFile(self.path)
                migrate(connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise StoreError(f"the SQLite database {self.path!r} cannot be opened: {error}") from error
        return connection

    def _connect_reader(self) -> sqlite3.Connection:
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _connect(self) -> sqlite3.Connection:
        # `isolation_level=None`: the driver begins no transactions of its own.
        return sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
