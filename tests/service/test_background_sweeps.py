"""What the service does by itself costs what there is to do, not what is open: counted in rows that are looked at."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from kit.running_service import HandClock
from kit.stores import SHARED, Database, approval, asked, on_server
from sqlalchemy import insert

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.service.adoption import adopted_case, case_id_of
from askfirst.service.case import row_of
from askfirst.service.cases import Cases
from askfirst.store import cases as case_statements
from askfirst.store import mysql_engine, postgres_engine, sqlite_engine, tables
from askfirst.store.rows import RequestRow, encode_request, fresh_write_id
from askfirst.store.statement import Params, Statement, Transaction, param

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database", SHARED, indirect=True)]
MANY = 2_000
MOST_ROWS = 40
"""More than the service's few statements look at when there is hardly anything to do, and far below `MANY`."""
STEPS_FOR_A_ROW = 25
REQUEST = Statement(
    insert(tables.requests).values({name: param(name) for name in (*RequestRow._fields, "shown")}).inline()
)


def _opened(rows: list[RequestRow]) -> Transaction[None]:
    """Open requests of threads that have nothing else, as cases already."""
    yield REQUEST, [{**row._asdict(), "shown": 1} for row in rows]
    made = [(row, adopted_case(row)) for row in rows]
    new = [
        row_of(
            case,
            fresh_write_id(),
            question_id=row.question_id,
            round=row.round,
            idempotency=case.case_id,
        )
        for row, case in made
    ]
    yield case_statements.INSERT, [row._asdict() for row in new]


async def populate(store: SqlCheckpointer, now: int) -> None:
    request = approval()
    row = RequestRow(
        "", "call-1", 1, None, "approve", encode_request(request), "d" * 64, "pending", now, *[None] * 7
    )
    rows = [row._replace(thread_id=f"open-{number}") for number in range(MANY)]
    await store.engine.write(partial(_opened, rows))


class Examined:
    """How many rows the statements of some work look at."""

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0.0
        self.statements: list[tuple[str, float]] = []
        getattr(self, f"_on_{kind}")(monkeypatch)

    async def by(self, work: Callable[[], Awaitable[Any]]) -> Any:
        self.rows, self.statements = 0, []
        return await work()

    def _noted(self, sql: str, rows: float) -> None:
        self.rows += rows
        self.statements.append((sql, rows))

    def _on_sqlite(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The steps of its machine, as so many for a row."""
        execute = sqlite_engine._execute

        def counting(connection: sqlite3.Connection, statement: Statement, params: Params) -> Any:
            steps = 0

            def step() -> None:
                nonlocal steps
                steps += 1

            connection.set_progress_handler(step, 1)
            try:
                return execute(connection, statement, params)
            finally:
                connection.set_progress_handler(None, 0)
                self._noted(statement.form(sqlite_engine._DIALECT).sql, steps / STEPS_FOR_A_ROW)

        monkeypatch.setattr(sqlite_engine, "_execute", counting)

    def _on_postgres(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What its plans say that they read, where a statement only reads."""
        run = postgres_engine.PostgresSession.run

        async def counting(session: Any, statement: Statement, params: Any) -> Any:
            sql, arguments, reads = statement.form(postgres_engine._DIALECT)
            if reads:
                explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}"
                [(plan,)] = await session._connection.fetch(explain, *arguments(params))
                self._noted(sql, _read_by(json.loads(plan)[0]["Plan"]))
            return await run(session, statement, params)

        monkeypatch.setattr(postgres_engine.PostgresSession, "run", counting)

    def _on_mysql(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What its tables were asked for."""
        run = mysql_engine.MySQLSession.run

        async def handled(session: Any) -> int:
            cursor = session._connection.cursor()
            await cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'", ())
            return sum(int(count) for _, count in await cursor.fetchall())

        async def counting(session: Any, statement: Statement, params: Any) -> Any:
            before = await handled(session)
            answer = await run(session, statement, params)
            after = await handled(session)
            own = await handled(session) - after  # of asking itself
            self._noted(statement.form(mysql_engine._DIALECT).sql, after - before - own)
            return answer

        monkeypatch.setattr(mysql_engine.MySQLSession, "run", counting)


def _read_by(plan: dict[str, Any]) -> float:
    rows = sum(_read_by(part) for part in plan.get("Plans", ()))
    if "Scan" in plan["Node Type"]:
        rows += (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return rows


async def test_a_sweep_costs_what_there_is_to_do(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    async with database.checkpointer(clock=clock) as store:
        cases = Cases(store, clock=clock)
        await populate(store, cases.now())
        if (
            database.kind == "postgres"
        ):  # plans follow what is known of the rows: of these, not of another test's
            await on_server("postgres", "ANALYZE", database=urlsplit(database.address).path[1:])
        examined = Examined(database.kind, monkeypatch)

        async def all_of_it() -> None:
            await cases.adopt()
            await cases.sweep()
            await cases.take_on_case_call()

        await examined.by(all_of_it)
        assert len(examined.statements) > 5
        assert examined.rows < MOST_ROWS, examined.statements

        await asked(store, "new", approval())
        made = await examined.by(cases.adopt)
        assert [case.case_id for case in made] == [case_id_of("new", "call-1", 1)]
        assert examined.rows < MOST_ROWS, examined.statements

        await store.settle("open-7", "call-1", {"decision": "approve"}, by="ann", via="test")
        await store.delete("open-8")
        await examined.by(cases.sweep)
        assert examined.rows < MOST_ROWS, examined.statements
        for thread_id, status in (("open-7", "completed"), ("open-8", "cancelled")):
            assert (await cases.get(case_id_of(thread_id, "call-1", 1))).status == status
        assert await cases.engine.read(case_statements.open_count) == MANY + 1 - 2
        assert await cases.engine.read(partial(case_statements.settled_elsewhere, 10)) == []
