"""What whoever reads the database file, a backup or a server's tables finds there."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kit.running_service import serving
from kit.stores import SHARED, Database, empty, on_server
from kit.warm_python import warm_python

from askfirst import Agent, tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.client.durable import Waits
from askfirst.client.wait_secrets import WaitSecrets
from askfirst.encryption_keys import MasterKeys, new_master_key
from askfirst.errors import StoreError
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.service.cases import purge
from askfirst.store.case_tables import metadata
from askfirst.store.encryption import SealingEngine, add_data_key, reseal
from askfirst.store.encryption import rewrap_data_keys as rewrap

pytestmark = [pytest.mark.anyio, pytest.mark.attack("M10", "reading what is at rest")]

SECRET = "mallory-reads-this"  # noqa: S105
FORM: dict[str, Any] = {
    "session_id": "s1",
    "fields": [
        {"key": "iban", "label": "IBAN", "type": "text", "sensitive": True, "required": True},
        {"key": "note", "label": "Note", "type": "text"},
    ],
}


@tool(requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to} {SECRET}"


async def live(database: Database, **options: Any) -> None:
    """All that can be written: a run that pauses, is answered and ends; cases with drafts, answers and callbacks."""
    async with database.checkpointer(**options) as store:
        model = ScriptedModel([ToolCall("c1", "pay", {"to": SECRET}), f"Done, {SECRET}."])
        agent = Agent(model=model, tools=[pay], checkpointer=store, thread_id="t1")
        assert (await agent.prompt(f"Pay, please: {SECRET}")).status == "paused"
        await store.settle("t1", "c1", {"decision": "approve", "reason": SECRET}, by="ann", via="desk")
        assert (await agent.resume()).status == "completed"
        await store.save_checkpoint("k1", "agent", {"kept": SECRET})
        async with serving(store) as served:
            caller = await served.agent()
            case = await caller.open(
                "input",
                context={"form": FORM, "about": SECRET},
                prompt=SECRET,
                hitl_callback_url="http://127.0.0.1:9/never",
            )
            drafted = {"f.iban": SECRET, "f.note": SECRET}
            await case.form(step="1", intent="draft", shown=["iban", "note"], **drafted)
            assert (await case.say("submit", {"iban": SECRET, "note": SECRET})).status_code == 200
            assert SECRET in str(await case.poll())


async def stored(database: Database) -> str:
    """Everything that the database holds, as text."""
    if database.kind == "sqlite":
        folder = Path(database.address).parent
        return "".join(path.read_bytes().decode("latin-1") for path in sorted(folder.glob("*.db*")))
    name = urlsplit(database.address).path.lstrip("/")
    queries = [f"SELECT * FROM {it}" for it in metadata.tables]  # noqa: S608
    found = [await on_server(database.kind, query, database=name) for query in queries]
    return str([[list(row) for row in rows] for rows in found])


async def delete(database: Database) -> None:
    """Begin anew."""
    if database.kind == "sqlite":
        Path(database.address).unlink()  # noqa: ASYNC240
    else:
        await empty(database.kind, database.address)


@pytest.mark.skipif(os.name != "posix", reason="rights of files are another matter there")
async def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with SQLiteCheckpointer(tmp_path / "threads.db") as store:
            await store.save_checkpoint("k1", "agent", {"kept": SECRET})
            files = list(tmp_path.iterdir())  # noqa: ASYNC240
            modes = {path.name: path.stat().st_mode & 0o777 for path in files}
    finally:
        os.umask(before)
    assert modes == {"threads.db": 0o600, "threads.db-wal": 0o600, "threads.db-shm": 0o600}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_what_was_purged_is_gone_from_the_file(database: Database) -> None:
    async with database.checkpointer() as store, serving(store) as served:
        caller = await served.agent()
        for _ in range(5):
            case = await caller.open("input", context={"form": FORM})
            assert (await case.say("submit", {"iban": SECRET})).status_code == 200
    assert SECRET in await stored(database)
    async with database.checkpointer() as store:
        assert await purge(store, 0) == 5
    assert SECRET not in await stored(database)


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_with_a_key_nothing_is_in_the_clear(database: Database) -> None:
    await live(database)
    assert SECRET in await stored(database)  # the test can find it where it is
    await delete(database)
    await live(database, encryption_key=new_master_key())
    assert SECRET not in await stored(database)


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_database_is_encrypted_later_and_its_keys_are_changed(database: Database) -> None:
    await live(database)
    old, new = new_master_key(), new_master_key()
    async with database.checkpointer(encryption_key=old) as store:
        engine = _sealing(store)
        steps = [step async for step in reseal(engine)]
        assert sum({step.table: step.values for step in steps}.values()) >= 10
    assert SECRET not in await stored(database)
    async with database.checkpointer(encryption_key=f"{new},{old}") as store:
        masters = MasterKeys.read(f"{new},{old}")
        async with database.checkpointer(encryption_key=old) as running:  # it goes on all the while
            assert await rewrap(_sealing(store), masters) == 1
            assert await rewrap(_sealing(store), masters) == 0
            await add_data_key(_sealing(store), masters)
            async for _ in reseal(_sealing(store)):
                pass
            with pytest.raises(StoreError, match="open it anew"):
                await running.load("t1")
    async with database.checkpointer(encryption_key=new) as store:
        thread = await store.load("t1")
        assert thread is not None
        assert SECRET in str(thread.messages)
        kept = await store.get_checkpoint("k1", "agent")
        assert kept is not None
        assert kept.body == {"kept": SECRET}


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_without_the_key_it_is_refused(database: Database) -> None:
    async with database.checkpointer(encryption_key=new_master_key()) as store:
        await store.save_checkpoint("k1", "agent", {"kept": SECRET})
    for options, said in (
        ({}, "is encrypted: set ASKFIRST_ENCRYPTION_KEY"),
        ({"encryption_key": new_master_key()}, "another key"),
    ):
        with pytest.raises(StoreError, match=said):
            async with database.checkpointer(**options):
                pass


@pytest.mark.parametrize("change", ["moved to another column", "altered", "cut"])
async def test_what_is_encrypted_cannot_be_altered_or_moved(tmp_path: Path, change: str) -> None:
    path, key = tmp_path / "threads.db", new_master_key()
    async with SQLiteCheckpointer(path, encryption_key=key) as store:
        await store.save_checkpoint("k1", "agent", {"kept": SECRET})
        model = ScriptedModel([ToolCall("c1", "pay", {"to": "ann"})])
        await Agent(model=model, tools=[pay], checkpointer=store, thread_id="t1").prompt("Pay.")
    with sqlite3.connect(path) as connection:
        sealed = connection.execute("SELECT body FROM askfirst_messages LIMIT 1").fetchone()[0]
        own = connection.execute(
            "SELECT body FROM askfirst_checkpoints WHERE checkpoint_id = 'k1'"
        ).fetchone()[0]
        altered = own[:-6] + ("AAAA" if own[-6:-2] != "AAAA" else "BBBB") + own[-2:]
        value = {"moved to another column": sealed, "altered": altered, "cut": own[:-8]}[change]
        connection.execute("UPDATE askfirst_checkpoints SET body = ? WHERE checkpoint_id = 'k1'", (value,))
    connection.close()
    async with SQLiteCheckpointer(path, encryption_key=key) as store:
        with pytest.raises(StoreError, match=r"checkpoints\.body was altered"):
            await store.get_checkpoint("k1", "agent")


LINK, TOKEN = "https://shop.example/review/r1?token=review-secret", "submit-secret"
WAIT: dict[str, Any] = {
    "hitl": {"review_url": LINK, "submit_token": TOKEN, "poll_url": "https://shop.example/status"},
    "derived": False,
}


async def kept(store: Any) -> dict[str, Any]:
    """The state of the wait, as a process finds it that takes it up."""
    found = await Waits(store).find("order-7")
    assert found is not None
    assert found.state is not None
    return found.state


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_stored_wait_keeps_no_token_in_the_clear(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "ann"))
    async with database.checkpointer() as store:
        await Waits(store).work_on("order-7", lambda wait: wait.waiting(WAIT))
        assert await kept(store) == WAIT  # another process of the same account
        assert await kept(store) == WAIT
    found = await stored(database)
    assert "shop.example/status" in found
    assert "review-secret" not in found
    assert "submit-secret" not in found
    key = tmp_path / "ann" / "askfirst" / "waits.key"
    assert await asyncio.to_thread(lambda: key.stat().st_mode & 0o777) == 0o600
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mallory"))
    async with database.checkpointer() as store:
        unknown = await kept(store)
    assert unknown["hitl"]["submit_token"] is None
    assert "secret" not in str(unknown)
    assert unknown["derived"] is True
    assert "begun with another key" in caplog.text


async def test_where_no_key_can_be_kept_the_wait_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    async with SQLiteCheckpointer(tmp_path / "waits.db") as store:
        waits = Waits(store)
        await waits.work_on("order-7", lambda wait: wait.waiting(WAIT))
        assert "no key can be kept" in caplog.text
        assert (await kept(store))["hitl"]["submit_token"] is None


async def test_processes_that_begin_at_once_make_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with SQLiteCheckpointer(tmp_path / "waits.db") as store:
        sealed = await asyncio.gather(*(WaitSecrets(store).closed({"state": WAIT}) for _ in range(20)))
        assert [await WaitSecrets(store).opened(each) for each in sealed] == [{"state": WAIT}] * 20


@pytest.mark.parametrize("text", ["", "abc", "x" * 44, "é" * 43, "k" * 40])
def test_what_is_no_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(StoreError, match="an encryption key is 32 bytes") as refused:
        MasterKeys.read(text)
    assert not text or text not in str(refused.value)


def test_no_key_is_in_a_repr() -> None:
    key = new_master_key()
    assert key not in repr(MasterKeys.read(key)) + repr(SQLiteCheckpointer("x.db", encryption_key=key))


def test_the_command_line_makes_changes_and_explains(tmp_path: Path) -> None:
    key, other = new_master_key(), new_master_key()

    def run(*arguments: str, **environ: str) -> tuple[int, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ASKFIRST_")}
        done = subprocess.run(  # noqa: S603
            [*warm_python(), "-m", "askfirst.cli", *arguments],
            cwd=tmp_path,
            env={**kept, **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    assert run("keys", "create", "bob")[0] == 0
    (tmp_path / "key.txt").write_text(f"{key}\n")
    assert run("encryption", "rewrite")[0] == 1
    assert run("encryption", "rewrite", ASKFIRST_ENCRYPTION_KEY_FILE="key.txt")[0] == 0
    code, said = run("pending")
    assert code == 1
    assert "is encrypted" in said
    code, said = run("encryption", "rotate", ASKFIRST_ENCRYPTION_KEY=f"{other},{key}")
    assert (code, said) == (0, "1 data key encrypted anew.\n")
    assert run("pending", ASKFIRST_ENCRYPTION_KEY=other)[0] == 0
    assert run("encryption", "rewrite", "--new-data-key", ASKFIRST_ENCRYPTION_KEY=other)[0] == 0
    assert run("encryption", "rotate", ASKFIRST_ENCRYPTION_KEY=f"{key},{other}")[1].startswith("2 data keys")
    assert run("encryption", "rotate", ASKFIRST_ENCRYPTION_KEY=f"{other},{key}")[0] == 0
    assert len(run("encryption", "new-key")[1].strip()) == 44
    (tmp_path / "askfirst.db").chmod(0o644)
    code, said = run("doctor", ASKFIRST_ENCRYPTION_KEY=other)
    assert code == 1
    assert "can be read by other accounts" in said
    (tmp_path / "askfirst.db").chmod(0o600)
    (tmp_path / "key.txt").write_text(f"{other}\n")
    (tmp_path / "key.txt").chmod(0o644)
    code, said = run("doctor", ASKFIRST_ENCRYPTION_KEY_FILE="key.txt")
    assert code == 1
    assert "ASKFIRST_ENCRYPTION_KEY_FILE names can be read by other accounts" in said
    code, said = run("doctor", ASKFIRST_ENCRYPTION_KEY="short-one")
    assert "an encryption key is 32 bytes" in said
    assert "short-one" not in said


def _sealing(store: Any) -> SealingEngine:
    assert isinstance(store.engine, SealingEngine)
    return store.engine
