"""A service's database from before the migration 0004: its open, settled and deleted requests are found after the
upgrade."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from kit.stores import approval

from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.ids import case_id_of
from askfirst.service.adoption import adopted_case
from askfirst.service.case import row_of
from askfirst.service.cases import Cases
from askfirst.store import deliveries
from askfirst.store.rows import RequestRow, encode_request, fresh_write_id
from askfirst.store.schema import alembic_config

pytestmark = pytest.mark.anyio
NEW_COLUMNS = {"tell_at", "size", "planned", "held_until"}
LATER = {"nonce", "resumer", "resumes"}
NOW = 1_790_000_000_000


def _request(thread_id: str, **fields: Any) -> RequestRow:
    payload = encode_request(approval())
    row = RequestRow(thread_id, "call-1", 1, None, "approve", payload, "d" * 64, "pending", NOW, *[None] * 7)
    return row._replace(**fields)


def _insert(connection: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    values = {name: value for name, value in values.items() if name not in LATER}
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*values.values()])  # noqa: S608


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A database of the previous revision, with three cases, and a request that has no case yet."""
    path = tmp_path / "cases.db"
    config = alembic_config()
    config.set_main_option("sqlalchemy.url", f"sqlite:///{path}")
    command.upgrade(config, "0003")
    answered = {"status": "answered", "answer": '{"decision":"approve"}', "settled_at": NOW}
    shown = [_request("open"), _request("settled", **answered), _request("deleted")]
    with closing(sqlite3.connect(path)) as connection, connection:
        for row in (*shown[:2], _request("new")):
            _insert(connection, "askfirst_requests", row._asdict())
        for row in shown:
            case = adopted_case(row)
            columns = {"question_id": "call-1", "round": 1, "idempotency": case.case_id}
            values = row_of(case, fresh_write_id(), **columns)._asdict()
            _insert(
                connection,
                "askfirst_cases",
                {name: values[name] for name in values if name not in NEW_COLUMNS},
            )
    return path


async def test_what_a_service_left_is_found_after_the_upgrade(before: Path) -> None:
    async with SQLiteCheckpointer(before) as store:
        cases = Cases(store)
        assert [case.case_id for case in await cases.adopt()] == [case_id_of("new", "call-1", 1)]
        assert await cases.adopt() == []
        await cases.sweep()
        ends = [
            (await cases.get(case_id_of(thread_id, "call-1", 1))).status
            for thread_id in ("open", "settled", "deleted", "new")
        ]
        assert ends == ["pending", "completed", "cancelled", "pending"]
        told = await cases.take_on_case_call()  # for the old cases, `on_case` was called at that time
        assert told is not None
        assert told.case.case_id == case_id_of("new", "call-1", 1)
        assert await cases.take_on_case_call() is None
        unplanned = await cases.engine.read(
            partial(deliveries.unplanned, 10)
        )  # deliveries still send every open case
        assert sorted(unplanned) == sorted(
            case_id_of(thread_id, "call-1", 1) for thread_id in ("open", "new")
        )
