"""askfirst doctor: what is installed, configured, reachable and overdue, and nothing is changed by looking."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from kit.cli_rig import Shell, call
from kit.stores import SHARED, Database, on_server
from kit.throwaway_servers import run_coroutine

from askfirst.checkpointer.base import RunRecord, Step, StoredEffect
from askfirst.cli import doctor
from askfirst.cli.doctor import Finding, configured, installed
from askfirst.messages import UserMessage
from askfirst.requests import ConfirmRequest, HitlRequest
from askfirst.store import inspect, sqlite_engine
from askfirst.store.inspect import UNRESUMED
from askfirst.store.schema import REVISIONS
from askfirst.store.sqlite_engine import migrate


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def found(shell: Shell, code: int = 0) -> dict[str, dict[str, str]]:
    """The findings by name."""
    done = shell.run("doctor", "--json")
    assert (done.returncode, done.stderr) == (code, ""), (done.stdout, done.stderr)
    whole = json.loads(done.stdout)
    assert whole["is_well"] == (code == 0)
    assert whole["is_well"] == all(finding["state"] != "wrong" for finding in whole["findings"])
    return {finding["name"]: finding for finding in whole["findings"]}


def make(shell: Shell) -> None:
    """A database with all its tables."""
    shell.ask(ConfirmRequest(prompt="Really?"), timeout_seconds=3600)


@pytest.mark.parametrize("database", SHARED, indirect=True)
def test_a_system_that_is_well_and_one_that_is_not(database: Database, tmp_path: Path) -> None:
    shell = Shell.on(database, tmp_path)
    make(shell)
    well = found(shell)
    assert well["database"]["state"] == "ok"
    assert well["schema"] == {
        "group": "reachable",
        "name": "schema",
        "state": "ok",
        "detail": f"{REVISIONS[-1]}, the latest",
    }
    assert ("clock" in well) == (database.kind != "sqlite")
    assert all(well[name]["detail"] == "none" for name in ("requests", "cases", "callbacks", "in_doubt"))
    neglect(shell)
    bad = found(shell, 1)
    assert bad["requests"]["detail"].startswith(
        "1 request (the oldest for 15m) past the deadline and open still"
    )
    assert bad["cases"]["detail"].startswith("1 case (the oldest for ")
    assert bad["callbacks"]["detail"].startswith("1 callback (the oldest for ")
    assert bad["in_doubt"]["detail"].startswith("1 thread (the oldest for ")
    assert [bad[name]["state"] for name in ("stalled", "claims")] == ["note", "note"]
    assert bad["stalled"]["detail"].startswith("2 threads (the oldest for ")


@pytest.mark.parametrize("database", SHARED, indirect=True)
def test_threads_that_were_answered_and_not_resumed_are_told(database: Database, tmp_path: Path) -> None:
    shell = Shell.on(database, tmp_path)
    for thread_id in ("left", "partly", "open", "resumed"):
        shell.ask_in_run(call(n=1), "q1", thread_id, "agent")
    shell.ask_in_run(call(n=1), "q1", "just answered", "agent")

    async def live(checkpointer: Any) -> None:
        for thread_id in ("left", "partly", "resumed", "just answered"):
            await checkpointer.settle(thread_id, "q1", {"decision": "approve"})
        for thread_id in ("resumed", "partly"):
            asks = [HitlRequest(question_id="q2", payload=call(n=2), created_at=time.time())]
            step = Step("run-1", opened=asks if thread_id == "partly" else [], release=True)
            thread = await checkpointer.load(thread_id)
            await checkpointer.commit(thread_id, step, fence=thread.fence, acquire=True)

    shell.on_database(live)
    assert found(shell)["unresumed"]["detail"] == "none", "somebody may be about to"
    past = round(time.time() * 1000) - 7_200_000
    for statement in (
        f"UPDATE askfirst_requests SET settled_at = {past} WHERE answer IS NOT NULL AND thread_id <> 'just answered'",  # noqa: S608
        f"UPDATE askfirst_threads SET updated_at = {past} WHERE thread_id IN ('left', 'partly', 'open')",  # noqa: S608
    ):
        execute(shell, statement)
    told = found(shell, 1)["unresumed"]
    assert told["detail"].startswith("1 thread (the oldest for 2h) answered, and resumed by nobody")
    assert "agent.resume()" in told["detail"]


def test_looking_for_them_scans_nothing_that_is_over() -> None:
    """SQLite's own word: runs that have not ended by their index, their threads and requests by their keys."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    sql = UNRESUMED.form(sqlite_engine._DIALECT).sql
    steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?")).fetchall()
    plan = " / ".join(str(step[3]) for step in steps)
    assert "askfirst_runs_unfinished (ended_at=?)" in plan, plan
    assert plan.count("SCAN") == plan.count("SCAN answered"), plan
    connection.close()


def neglect(shell: Shell) -> None:
    """A request and a case past their deadlines, a callback nobody makes, workers that died."""
    shell.ask(call(n=1), "late", age=1000, timeout_seconds=50.0)
    past = round(time.time() * 1000) - 600_000
    case_id = shell.open_case(type="input", prompt="Name?", hitl_callback_url="https://a.example/hook")
    shell.here("cancel", case_id)
    shell.open_case(type="input", prompt="Late?", timeout="1s")

    async def die(checkpointer: Any) -> None:
        for thread_id, started in (("a", True), ("b", False), ("c", False)):
            begin = Step("run", [UserMessage("Go")], run=RunRecord("agent"))
            fence = await checkpointer.commit(thread_id, begin, fence=0, acquire=True)
            if started:
                effect = StoredEffect("call", "send", "d" * 64, "once", 1)
                await checkpointer.commit(thread_id, Step("run", started=[effect]), fence=fence)
        await checkpointer.save_checkpoint("cp", "agent", {})
        await checkpointer.claim_checkpoint("cp", "agent", by="me", ttl_seconds=0.001)

    shell.on_database(die)
    for statement in (
        f"UPDATE askfirst_cases SET expires_at = {past} WHERE is_open = 1 AND thread_id IS NULL",  # noqa: S608
        f"UPDATE askfirst_callbacks SET due_at = {past}",  # noqa: S608
        f"UPDATE askfirst_threads SET lease_until = {past} WHERE lease_owner IS NOT NULL",  # noqa: S608
        f"UPDATE askfirst_checkpoints SET claimed_until = {past}",  # noqa: S608
    ):
        execute(shell, statement)


def execute(shell: Shell, statement: str) -> None:
    """Change the database behind everybody's back."""
    scheme, _, rest = shell.url.partition("://")
    if scheme == "sqlite":
        connection = sqlite3.connect(rest[1:])
        connection.execute(statement)
        connection.commit()
        connection.close()
    else:
        kind = "mysql" if scheme == "mysql" else "postgres"
        run_coroutine(on_server(kind, statement, database=shell.url.rpartition("/")[2]))


def test_what_fails_again_and_again_is_shown(shell: Shell) -> None:
    make(shell)
    past = round(time.time() * 1000) - 600_000
    for _ in range(2):
        case_id = shell.open_case(type="input", prompt="Name?", hitl_callback_url="https://a.example/hook")
        shell.here("cancel", case_id)
    told = shell.open_case(type="input", prompt="Told?")
    later = f"outcome = 'retry', attempts = 3, due_at = {past + 7_200_000}, since = {past}"
    execute(shell, f"UPDATE askfirst_callbacks SET {later}")  # noqa: S608
    values = f"'{told}', 7, {past}, 'ConnectError'"
    execute(shell, f"INSERT INTO askfirst_failed_notices (case_id, tries, since, error) VALUES ({values})")  # noqa: S608
    seen = found(shell, 1)
    assert seen["failing"]["detail"].startswith("2 callbacks (the oldest for 10m) failed and will be tried")
    assert (seen["failing"]["state"], seen["callbacks"]["state"]) == ("note", "ok")
    assert seen["notices"]["state"] == "wrong"
    assert seen["notices"]["detail"].startswith(
        f"on_case failed for {told} with ConnectError, 7 times in 10m"
    )
    execute(shell, "UPDATE askfirst_callbacks SET outcome = 'gave_up', due_at = NULL")
    shell.here("cancel", told)  # of one that has ended nobody need be told
    seen = found(shell)
    assert seen["gave_up"]["detail"].startswith("2 callbacks (the oldest for 10m) failed for three days")
    assert seen["notices"]["detail"] == "none"


def test_looking_changes_nothing(shell: Shell, tmp_path: Path) -> None:
    nothing = shell.here("doctor")
    assert "has no tables of Askfirst yet" in nothing
    assert list(tmp_path.iterdir()) == []
    make(shell)
    execute(shell, "UPDATE askfirst_alembic_version SET version_num = '0001'")
    before = (tmp_path / "askfirst.db").read_bytes()
    assert f"0001: the next command brings it to {REVISIONS[-1]}" in shell.here("doctor")
    assert (tmp_path / "askfirst.db").read_bytes() == before
    execute(shell, "UPDATE askfirst_alembic_version SET version_num = '9999'")
    assert "made by a newer Askfirst" in Shell(tmp_path, in_process=True).run("doctor").stdout


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mongodb://ann:hunter2@x", "no store is known"),
        ("postgresql://ann:hunter2@127.0.0.1:1/x", "PostgreSQL at 127.0.0.1:1/x cannot be reached"),
        ("mysql://ann:hunter2@127.0.0.1:1/x", "MySQL at 127.0.0.1:1/x cannot be reached"),
        ("sqlite:///{}", "cannot be read"),
    ],
)
def test_a_database_that_cannot_be_reached(tmp_path: Path, url: str, problem: str) -> None:
    (tmp_path / "no.db").write_text("this is no database at all, whatever its name says" * 100)
    shell = Shell(tmp_path, url.format(tmp_path / "no.db"), in_process=True)
    done = shell.run("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    assert problem in done.stdout
    assert "hunter2" not in done.stdout
    assert "overdue" not in done.stdout


def states(environ: dict[str, str]) -> dict[str, str]:
    return {finding.name: finding.state for finding in configured(environ)}


def test_a_base_url_in_the_configuration_is_found(tmp_path: Path) -> None:
    file = tmp_path / "askfirst.toml"
    file.write_text('[service]\nbase_url = "https://a.example"\n')
    [found] = [it for it in configured({"ASKFIRST_CONFIG": str(file)}) if it.name == "ASKFIRST_BASE_URL"]
    assert (found.state, found.detail) == ("ok", f"is not set, and base_url in {file} is")


def test_what_the_environment_says() -> None:
    assert set(states({}).values()) == {"note"}
    right = {
        "ASKFIRST_DATABASE_URL": "postgresql://a@b/c",
        "ASKFIRST_SECRET": "s" * 32,
        "ASKFIRST_ENCRYPTION_KEY": "k" * 43 + "=",
        "ASKFIRST_BASE_URL": "https://a.example",
        "ASKFIRST_SMTP_URL": "smtps://mail.example?from=desk@a.example",
        "ASKFIRST_MAIL_TO": "ann@a.example",
        "ASKFIRST_TEST_POSTGRES": "whatever",
        "TELEGRAM_BOT_TOKEN": "123456:" + "A" * 35,
        "TELEGRAM_CHAT_ID": "7",
        "HOME": "/root",
    }
    assert set(states(right).values()) == {"ok"}
    assert {"telegram", "email"} <= set(states(right))
    wrong = {
        "ASKFIRST_DATABASE_URL": "hunter2://a",
        "ASKFIRST_SECRET": "hunter2",
        "ASKFIRST_ENCRYPTION_KEY": "hunter2",
        "ASKFIRST_BASE_URL": "http://hunter2.example",
        "ASKFIRST_SMTP_URL": "hunter2",
        "ASKFIRST_DATABSE_URL": "hunter2",
        "TELEGRAM_BOT_TOKEN": "hunter2",
        "ASKFIRST_APPRISE_URL": "hunter2",
        "ASKFIRST_MAIL_TO": "hunter2",
    }
    findings = list(configured(wrong))
    assert {finding.state for finding in findings} == {"wrong"}
    told = {finding.name: finding.detail for finding in findings}
    assert told["ASKFIRST_DATABSE_URL"].endswith("is ASKFIRST_DATABASE_URL meant?")
    assert told["telegram"] == "TELEGRAM_CHAT_ID must be set"
    assert [name for name, detail in told.items() if "hunter2" in detail] == [
        "ASKFIRST_DATABASE_URL"
    ]  # its scheme


def test_what_a_file_says_need_not_be_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "askfirst.toml"
    environ = {"ASKFIRST_CONFIG": str(file), "TELEGRAM_BOT_TOKEN": "123456:" + "A" * 35}
    file.write_text("[delivery.telegram]\nchat = -7\n")
    assert "wrong" not in states(environ).values()
    assert states(environ)[str(file)] == "ok"
    file.write_text("[delivery.telegram]\n")
    assert [name for name, state in states(environ).items() if state == "wrong"] == [str(file)]
    file.write_text("[delivery.terminal]\n")
    assert states(environ)["telegram"] == "wrong"


def test_what_is_installed() -> None:
    there = {finding.name: finding for finding in installed()}
    assert there["askfirst"].state == "ok"
    assert there["sqlite"].detail.startswith("alembic ")


@pytest.mark.parametrize(
    ("requirements", "state", "detail"),
    [
        ([("click", "8.2")], "ok", "click "),
        ([("click", "999")], "wrong", "too old: click "),
        (
            [("no-such-thing", "1"), ("click", "1")],
            "note",
            "not there: no-such-thing; pip install 'askfirst[x]'",
        ),
    ],
)
def test_an_extra(requirements: list[tuple[str, str]], state: str, detail: str) -> None:
    finding = doctor._extra("x", requirements)
    assert finding.state == state
    assert finding.detail.startswith(detail)


@pytest.mark.parametrize("database", ["postgres", "mysql"], indirect=True)
def test_a_clock_that_goes_wrong(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    class Behind:
        @staticmethod
        def time() -> float:
            return time.time() - 3600

    monkeypatch.setattr(inspect, "time", Behind)
    names = {it.name: it for it in run_coroutine(doctor.database_findings(database.address))}
    assert names["clock"].state == "wrong"
    assert "60m ahead of this machine's" in names["clock"].detail or "59m" in names["clock"].detail


def test_a_service_that_does_not_answer(shell: Shell) -> None:
    make(shell)
    shell.environment["ASKFIRST_BASE_URL"] = "http://127.0.0.1:1"
    service = found(shell, 1)["service"]
    assert (
        service["detail"] == "nothing answers at ASKFIRST_BASE_URL: ConnectError; is askfirst serve running?"
    )


def test_for_people(shell: Shell) -> None:
    make(shell)
    said = shell.here("doctor")
    assert "\nconfigured\n  ok     ASKFIRST_DATABASE_URL: is set\n" in said
    assert said.endswith("\nNothing is wrong.\n")
    short = Shell(shell.folder, in_process=True)
    short.environment |= {"ASKFIRST_SECRET": "short"}
    done = short.run("doctor")
    assert done.returncode == 1
    assert "  WRONG  ASKFIRST_SECRET: the server's secret needs at least 32 characters" in done.stdout
    assert done.stdout.endswith("\n1 thing is wrong.\n")


def test_a_finding_is_in_one_of_four_groups(shell: Shell) -> None:
    make(shell)
    groups = [finding["group"] for finding in json.loads(shell.here("doctor", "--json"))["findings"]]
    assert groups == sorted(groups, key=["installed", "configured", "reachable", "overdue"].index)
    assert Finding("installed", "x", "ok", "y").group in groups
