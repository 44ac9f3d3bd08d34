"""askfirst config, notify and deliveries: mistakes with their lines, a test message, what was not sent."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from pathlib import Path

import pytest
from kit.post_office import post_office
from kit.stores import approval, asked

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.cli.main import main
from askfirst.service.cases import Cases
from askfirst.service.deliveries import DeliveryWorker, Sender
from askfirst.service.places import Places, given_places
from askfirst.service.schedule import Schedule
from askfirst.store import deliveries

CONFIGURATION = """\
[notify]
warn = "30m"

[delivery.mail]
kind = "email"
to = "ann@a.example"
smtp_url_env = "SMTP"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ASKFIRST_CONFIG", "ASKFIRST_SMTP_URL", "TELEGRAM_BOT_TOKEN", "ASKFIRST_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ASKFIRST_DATABASE_URL", f"sqlite:///{tmp_path / 'askfirst.db'}")
    monkeypatch.setenv("SMTP", "smtp://desk%40a.example:hidden@127.0.0.1:9")
    return tmp_path


class Shell:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = self._capsys.readouterr()
        assert ended.value.code == code, (out, err)
        assert "hidden" not in out + err
        return out if code == 0 else out + err


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_the_configuration_is_read_or_every_mistake_told(shell: Shell, folder: Path) -> None:
    assert "askfirst serve tells nobody" in shell("config", "check")
    file = folder / "askfirst.toml"
    file.write_text(CONFIGURATION)
    said = shell("config", "check")
    assert "Read askfirst.toml." in said
    assert "mail: a link, and no buttons" in said
    file.write_text(CONFIGURATION.replace("30m", "soon").replace("to =", "too ="))
    said = shell("config", "check", code=1)
    assert "askfirst.toml: line 2: 'soon' is not a duration" in said
    assert "askfirst.toml: line 6: there is no setting 'too' here; is to meant?" in said
    assert "line 2" in shell("serve", code=1)
    assert "WRONG  askfirst.toml: line 2: 'soon' is not a duration" in shell("doctor", code=1)


def test_a_test_message_is_sent_or_why_not(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "askfirst.toml").write_text(CONFIGURATION)
    assert "email: the server 127.0.0.1 did not take the mail" in shell("notify", "test", "mail", code=1)
    assert "there is no delivery of this name; there are: mail" in shell("notify", "test", "phone", code=1)

    async def received() -> str:
        async with post_office() as office:
            monkeypatch.setenv("SMTP", office.url())
            said = await asyncio.to_thread(shell, "notify", "test", "mail:bob@a.example")
            assert office.recipients == [["bob@a.example"]]
            body = office.mails[0].get_body(("plain",))
            assert body is not None
            assert "This is a test of Askfirst" in body.get_content()
            return said

    assert asyncio.run(received()) == "Sent to mail:bob@a.example.\n"


class Broken:
    """A delivery that never gets through."""

    name = "board"
    shows_buttons = False

    async def send(self, notice: object) -> None:
        raise ConnectionError

    async def update(self, sent: object, ended: object) -> None:
        raise ConnectionError


async def _fail(folder: Path) -> None:
    async with checkpointer_from_url(f"sqlite:///{folder / 'askfirst.db'}") as store:
        await asked(store, "t", approval())
        cases = Cases(store)
        await cases.adopt()
        places = Places(given_places(Broken()))
        worker = DeliveryWorker(cases, places, Schedule(), Sender("Desk", "https://a.example"))
        while not any(row.error for row in await store.engine.read(partial(deliveries.page, 10))):
            await worker.work()
            await asyncio.sleep(0.01)


def test_what_was_not_sent_is_shown_and_tried_again(shell: Shell, folder: Path) -> None:
    assert shell("deliveries") == "Every message was sent.\n"
    asyncio.run(_fail(folder))
    said = shell("deliveries")
    found = re.match(
        r"(dlv_\w+)  (review_\w+)  board  review  to be sent: board: ConnectionError; tried 1", said
    )
    assert found, said
    [line] = shell("deliveries", "--json", "--case", found[2]).splitlines()
    row = json.loads(line)
    assert (row["state"], row["attempts"], row["error"]) == ("due", 1, "board: ConnectionError")
    assert f"the review message of {found[2]} to board" in shell("doctor", code=1)
    assert shell("deliveries", "retry", found[1]) == f"{found[1]} is due now, to board.\n"
    assert json.loads(shell("deliveries", "--json"))["due_at"] < row["due_at"]
    assert "there is no message dlv_0 that waits" in shell("deliveries", "retry", "dlv_0", code=1)
