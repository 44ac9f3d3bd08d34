"""Budgets as values: what they may be, how they are given, and what counts in a database from before them."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.cli.commands import askfirst
from askfirst.errors import OverBudget, ServiceError
from askfirst.service.budgets import Budgets, read_budgets
from askfirst.service.case import Case, row_of
from askfirst.service.cases import Cases
from askfirst.service.new_review import ReviewRequest
from askfirst.store import case_queues
from askfirst.store.budgets import PARTS, Window, read_used, write_used
from askfirst.store.rows import fresh_write_id
from askfirst.store.schema import alembic_config

pytestmark = pytest.mark.anyio
REVIEW = ReviewRequest(type="approval", prompt="Please decide.")


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "5"])
def test_a_budget_is_a_whole_number_from_one_up(value: Any) -> None:
    with pytest.raises(ServiceError, match="the budget open_cases must be a whole number of at least 1"):
        Budgets(open_cases=value)


def test_budgets_are_given_by_name() -> None:
    assert read_budgets([]) == Budgets()
    assert read_budgets(["open_cases=5", "codes_per_key=7"]) == Budgets(open_cases=5, codes_per_key=7)
    for wrong in (
        "open_cases",
        "open_cases=",
        "open_cases=-5",
        "open_cases=0",
        "open_cases=٥",
        "open_cases=5e3",
    ):
        with pytest.raises(ServiceError, match="the budget open_cases must be a whole number"):
            read_budgets([wrong])
    with pytest.raises(ServiceError, match="there is no budget 'open'; there are open_cases, cases_per_hour"):
        read_budgets(["open=5"])


def test_serve_says_what_is_no_budget(tmp_path: Path) -> None:
    environ = {"ASKFIRST_DATABASE_URL": f"sqlite:///{tmp_path}/askfirst.db"}
    done = CliRunner().invoke(askfirst, ["serve", "--budget", "open=5"], env=environ)
    assert done.exit_code == 1
    assert "there is no budget 'open'" in done.output


@given(st.integers(1, 50), st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 5)), max_size=200))
def test_a_window_never_lets_more_through_but_for_a_part_of_it(
    most: int, steps: list[tuple[int, int]]
) -> None:
    window, used, now = Window(most, 6000), [], 0
    taken: list[tuple[int, int]] = []
    for pause, amount in steps:
        now += pause
        wait = window.wait(used, now, amount)
        if wait is None:
            used = window.after(read_used(write_used(used)), now, amount)
            taken.append((now, amount))
        elif amount <= most:
            assert window.wait(used, now + wait, amount) is None or wait <= window.milliseconds
    assert len(used) <= PARTS + 1
    part = window.milliseconds // PARTS
    for at, _ in taken:
        assert sum(n for t, n in taken if at <= t < at + window.milliseconds - part) <= most


@pytest.fixture
def before(tmp_path: Path) -> tuple[Path, list[Case]]:
    """A database of the revision before, with three open cases and a callback that is due."""
    path, now = tmp_path / "cases.db", time.time()
    config = alembic_config()
    config.set_main_option("sqlalchemy.url", f"sqlite:///{path}")
    command.upgrade(config, "0007")
    kept: Any = {"key_id": "key", "created_at": now, "expires_at": now + 86_400, "timeout": "PT24H"}
    cases = [Case(f"review_{n}", "approval", "pending", 1, prompt="Please decide.", **kept) for n in range(3)]
    with closing(sqlite3.connect(path)) as connection, connection:
        for case in cases:
            values = row_of(case, fresh_write_id())._asdict()
            del values["size"], values["planned"], values["held_until"]
            names, marks = ", ".join(values), ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO askfirst_cases ({names}) VALUES ({marks})", [*values.values()])  # noqa: S608
        connection.execute(
            "INSERT INTO askfirst_callbacks (callback_id, case_id, key_id, url, body, attempts, due_at, write_id)"
            " VALUES ('cb', 'gone', 'key', 'https://a.example/hook', '{}', 1, 5, 0)"
        )
    return path, cases


async def test_what_was_there_before_counts_after_the_upgrade(before: tuple[Path, list[Case]]) -> None:
    path, made = before
    async with SQLiteCheckpointer(path) as store:
        cases = Cases(store, budgets=Budgets(open_cases=3))
        with pytest.raises(OverBudget) as refused:
            await cases.create("key", REVIEW)
        assert (refused.value.budget, refused.value.retry_after) == ("open_cases", 60)
        take = partial(case_queues.take_callbacks, 10, 20, 5, {}, fresh_write_id())
        [callback] = await cases.engine.write(take)
        assert (callback.callback_id, callback.since) == ("cb", 5)
        await cases.cancel(await cases.get(made[0].case_id), "enough", "test")
        await cases.create("key", REVIEW)
    async with SQLiteCheckpointer(path) as store:
        small = Cases(store, budgets=Budgets(stored_bytes=4 * len(row_of(made[0], 1).body)))
        with pytest.raises(OverBudget) as refused:
            await small.create("key", REVIEW)
        assert (refused.value.budget, refused.value.retry_after) == ("stored_bytes", None)
