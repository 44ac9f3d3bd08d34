"""What the engines for database servers share: pool, retries, TCP keep-alive, migration."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Protocol, TypeVar, cast

from askfirst.account import os_account
from askfirst.concurrency import UncancellableFuture
from askfirst.errors import AskfirstError, StoreError
from askfirst.store.engine import Home
from askfirst.store.former_name import FORMER_NAMES, renaming
from askfirst.store.schema import VERSION, is_current, migration
from askfirst.store.statement import WAKE, Foreseen, Params, Statement, Transaction, woken
from askfirst.store.threads import Renewal
from askfirst.store.wakeups import Hub, Key

# TCP keep-alive: a connection that a NAT or a firewall dropped silently is to be noticed soon.


_OPTIONS: dict[str, int] = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPALIVE": 5,  # the same, on macOS
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 10_000,  # milliseconds that sent data may stay unacknowledged
}


def watch_line(connection: object) -> None:
    """Set TCP keep-alive on a connection, so that the system probes it when idle and ends it when it is dead.

    Neither driver has a setting for that, so the options are set on the socket of its transport; without a
    transport nothing is set.
    """
    transport: Any = getattr(connection, "_transport", None)
    line: Any = None if transport is None else transport.get_extra_info("socket")
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)  # not every system has each of them
        if option is not None:
            with suppress(OSError):
                line.setsockopt(socket.IPPROTO_TCP, option, value)


T = TypeVar("T")
POOL_SIZE = 10
RECONNECT_SECONDS = 30.0
"""How long a server may be unreachable, for instance to restart, before `StoreError` is raised."""
LOCK_SECONDS = 10
"""How long a statement waits for a lock; then its transaction is run again."""
CONFLICT_SECONDS = 60.0
"""How long a transaction is retried for conflicts with others: as long as on SQLite."""
STATEMENT_SECONDS = 60.0
READ_SECONDS = 5.0
"""The time-out of a read's first attempt; the next one, on another connection, has `STATEMENT_SECONDS`."""


class Fault(Enum):
    """What a driver's error means for the transaction it hit."""

    LOST = "the connection is gone"
    BUSY = "the server takes no connection just now: it starts, or has too many"
    AGAIN = "it was rolled back because of another one; run again, it may succeed"
    NO_TABLE = "there is no such table"
    OTHER = "it will not succeed"
    FOREIGN = "it is not the database's, and nobody knows what state it leaves the connection in"


class Session(Protocol):
    """One connection, as a server engine uses it."""

    async def begin(self) -> None: ...

    async def run(self, statement: Statement, params: Params) -> Any:
        """The rows that were read, or the number of rows that were changed."""
        ...

    async def commit(self, wakes: Sequence[Key]) -> None:
        """Commit, and notify other processes of settled requests, if the server has notifications."""
        ...

    @property
    def at_once(self) -> Callable[[Foreseen], Awaitable[bool]] | None:
        """Run and commit a transaction's writes, wake-ups included, as one statement.

        False, and nothing is written, if a part does not change exactly one row. The attribute is None if the
        server has no such statement.
        """
        ...

    async def rollback(self) -> None: ...

    async def lock(self) -> None:
        """Wait until no other session has this lock; it protects migrations."""
        ...

    async def unlock(self) -> None: ...

    async def run_all(self, statements: Sequence[str]) -> None:
        """Run the statements of a migration; if interrupted, they can be run again."""
        ...

    async def close(self) -> None:
        """Close the connection in order."""
        ...

    def drop(self) -> None:
        """Close the connection at once, without telling the server."""
        ...


class Server(Protocol):
    """A database server and how to talk to it."""

    name: str
    dialect: str
    where: str
    """The database's address, without the password."""

    async def connect(self) -> Session: ...

    def fault(self, error: BaseException) -> Fault: ...

    def reason(self, error: BaseException) -> str:
        """The error in a line, without the password."""
        ...

    async def watch(self, engine: ServerEngine, hub: Hub) -> None:
        """Wake the hub's waiters when other processes settle what they wait for."""
        ...


class Patience:
    """How often, and after how long, to try again."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._since = asyncio.get_running_loop().time()
        self._conflicts = 0
        self._losses = 0
        self._until: float | None = None

    async def after(self, error: BaseException, fault: Fault) -> None:
        """Back off before the next attempt; raises `StoreError` when the time for attempts is over."""
        now = asyncio.get_running_loop().time()
        if fault is Fault.AGAIN:
            self._conflicts += 1
            if self._conflicts > 50 or now - self._since >= CONFLICT_SECONDS:
                tried = f"given up after {now - self._since:.0f} s and {self._conflicts} attempts: "
                raise self._given_up(error, tried)
            await asyncio.sleep(random.uniform(0, min(0.002 * 2**self._conflicts, 0.2)))  # noqa: S311
        elif fault in (Fault.LOST, Fault.BUSY):
            self._until = self._until or now + RECONNECT_SECONDS
            if now > self._until:
                raise self._given_up(error)
            # The first connection may only have been idle for too long; try another one at once, without back-off.
            await asyncio.sleep(min(0.05 * self._losses, 1.0))
            self._losses += 1
        else:
            raise self._given_up(error)

    @property
    def seconds(self) -> float:
        """The time-out of this attempt."""
        return STATEMENT_SECONDS if self._losses else READ_SECONDS

    def _given_up(self, error: BaseException, tried: str = "") -> StoreError:
        given_up = StoreError(f"{self._server.name}: {tried}{self._server.reason(error)}")
        given_up.__cause__ = error
        return given_up


class ServerEngine:
    """A pool of connections and the rules for running a transaction again."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.hub = Hub(lambda hub: server.watch(self, hub))
        self._idle: list[Session] = []
        self._slots = asyncio.Semaphore(POOL_SIZE)
        self._renewing = asyncio.Semaphore(1)
        self._jobs: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        server, self._home = self._server, Home()
        await asyncio.to_thread(os_account)  # looked up now: the system may ask a directory for it
        try:
            session = await self._first_session()
            self._idle.append(session)
            if not is_current(await self._version(session)):
                await self._migrate(session)
        except BaseException as error:
            await self._disconnect()
            if isinstance(error, AskfirstError) or not isinstance(error, Exception):
                raise
            problem = f"the {server.name} database at {server.where} cannot be opened: {server.reason(error)}"
            raise StoreError(problem) from None  # what the driver says in full may hold the password

    async def close(self) -> None:
        """Finish what is under way and disconnect."""
        await self.hub.close()
        while self._jobs:
            await asyncio.wait(self._jobs)
        await self._disconnect()

    def write(
        self,
        transaction: Callable[[], Transaction[T]],
        landed: Callable[[], Transaction[T | None]] | None = None,
        *,
        behind: bool = False,
        at_once: bool = False,
    ) -> asyncio.Future[T]:
        """Run a transaction and commit it; see `Engine.write`. All of them begin with the loop's next turn."""
        self._home.check()
        decided = UncancellableFuture[T]()
        self._start(self._decide(decided, self._write(transaction, landed, at_once=at_once)))
        return decided

    def read(self, transaction: Callable[[], Transaction[T]]) -> asyncio.Future[T]:
        """Run statements that only read, with no transaction around them."""
        self._home.check()
        return asyncio.shield(self._start(self._read(transaction)))

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a job as a task that is shielded from cancellation.

        Drivers mistake a cancellation for a lost connection, or swallow it.
        """
        job = asyncio.ensure_future(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    async def _decide(self, decided: asyncio.Future[T], work: Coroutine[Any, Any, T]) -> None:
        try:
            decided.set_result(await work)
        except asyncio.CancelledError:  # only with the loop itself
            decided.set_exception(StoreError(f"{self._server.name}: the event loop was shut down"))
            raise
        except BaseException as error:
            decided.set_exception(error)

    async def _write(
        self,
        transaction: Callable[[], Transaction[T]],
        landed: Callable[[], Transaction[T | None]] | None,
        *,
        at_once: bool,
    ) -> T:
        check = None
        async with self._slots_for(transaction):
            patience = Patience(self._server)
            while True:
                session = await self._session(patience)
                committing = at_once and check is None
                wakes: list[Key] = []
                try:
                    foreseen = (
                        await _at_once(session, transaction(), patience.seconds) if committing else None
                    )
                    if foreseen is not None:
                        result, wakes = foreseen.result, foreseen.wakes
                    else:
                        committing = at_once = False
                        async with asyncio.timeout(patience.seconds):
                            await session.begin()
                        result = None if check is None else await _pump(session.run, check(), wakes)
                        if result is None:
                            result = await _pump(session.run, transaction(), wakes)
                        committing = True
                        await session.commit(wakes)
                except BaseException as error:
                    fault = await self._recover(session, error)
                    if committing and fault is Fault.LOST:
                        check = landed  # indeterminate commit: look whether it happened
                    await patience.after(error, fault)
                else:
                    self._idle.append(session)
                    self.hub.wake(wakes)
                    return result

    def _slots_for(self, transaction: object) -> asyncio.Semaphore:
        """The semaphore of connections.

        Lease renewals have one of their own, so that waits for locks do not delay them.
        """
        return self._renewing if isinstance(transaction, Renewal) else self._slots

    async def _read(self, transaction: Callable[[], Transaction[T]]) -> T:
        async with self._slots:
            patience = Patience(self._server)
            while True:
                session = await self._session(patience)
                try:
                    async with asyncio.timeout(patience.seconds):
                        result = await _pump(session.run, transaction(), [])
                except BaseException as error:
                    await patience.after(error, await self._recover(session, error))
                else:
                    self._idle.append(session)
                    return result

    async def _session(self, patience: Patience) -> Session:
        while not self._idle:
            try:
                return await self._server.connect()
            except Exception as error:
                await patience.after(error, self._server.fault(error))
        return self._idle.pop()

    def drop_idle(self) -> None:
        """Drop all idle connections: where one is lost, the others most likely are, too."""
        while self._idle:
            self._idle.pop().drop()

    async def _recover(self, session: Session, error: BaseException) -> Fault:
        """Roll back or drop the connection after an error; raises the error again if it is not the database's."""
        ours = isinstance(error, AskfirstError)  # raised between two statements: the connection is whole
        fault = self._server.fault(error)
        if fault is Fault.LOST or (fault is Fault.FOREIGN and not ours):
            session.drop()
            if fault is Fault.LOST:
                self.drop_idle()
        else:
            try:
                await session.rollback()
            except Exception:
                session.drop()
            else:
                self._idle.append(session)
        if ours or not isinstance(error, Exception):
            raise error
        return fault

    async def _first_session(self) -> Session:
        """Connect; wait only for a server that answers that it is starting up."""
        for _ in range(100):
            try:
                return await self._server.connect()
            except Exception as error:
                if self._server.fault(error) is not Fault.BUSY:
                    raise
                await asyncio.sleep(0.1)
        return await self._server.connect()

    async def _version(self, session: Session) -> str | None:
        try:
            rows = await session.run(VERSION, {})
        except Exception as error:
            if self._server.fault(error) is Fault.NO_TABLE:
                return None
            raise
        return rows[0][0] if rows else None

    async def _migrate(self, session: Session) -> None:
        await session.lock()
        try:
            version = await self._version(session)  # another process may have been faster
            if version is None:
                named = await session.run(FORMER_NAMES, {})
                await session.run_all(renaming(self._server.dialect, named))
                version = await self._version(session)
            if not is_current(version):
                await session.run_all(await asyncio.to_thread(migration, self._server.dialect, version))
        finally:
            with suppress(Exception):
                await session.unlock()

    async def _disconnect(self) -> None:
        while self._idle:
            session = self._idle.pop()
            with suppress(Exception):
                await session.close()
            session.drop()


async def _at_once(session: Session, transaction: Transaction[Any], seconds: float) -> Foreseen | None:
    """Try a transaction as one statement; None, and nothing is written, if that is not possible."""
    if session.at_once is None:
        return None
    async with asyncio.timeout(seconds):
        foreseen = await _foresee(session, transaction)
    if foreseen is None or (foreseen.parts and not await session.at_once(foreseen)):
        return None
    return foreseen


async def _foresee(session: Session, transaction: Transaction[Any]) -> Foreseen | None:
    """Collect a transaction's writes without running them; None if the transaction reads after a write."""
    parts: list[tuple[Statement, Mapping[str, Any]]] = []
    wakes: list[Key] = []

    async def suppose(statement: Statement, params: Params) -> Any:
        if not statement.reads:
            rows = params if isinstance(params, list) else [cast("Mapping[str, Any]", params)]
            parts.extend((statement, row) for row in rows)
            return len(rows)
        if parts:
            raise _Unforeseeable
        return await session.run(statement, params)

    try:
        return Foreseen(parts, wakes, await _pump(suppose, transaction, wakes))
    except _Unforeseeable:
        return None


class _Unforeseeable(Exception):
    """The transaction reads after a write, so its writes cannot be collected in advance."""


async def _pump(
    run: Callable[[Statement, Params], Awaitable[Any]], transaction: Transaction[T], wakes: list[Key]
) -> T:
    """Drive a transaction's generator to its end; returns its value."""
    answer: Any = None
    try:
        while True:
            statement, params = transaction.send(answer)
            if statement is WAKE:
                wakes.append(woken(params))
                answer = 0
            else:
                answer = await run(statement, params)
    except StopIteration as stop:
        return stop.value
