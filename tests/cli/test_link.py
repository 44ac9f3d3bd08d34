"""askfirst link: a way to the page of what waits, made anew each time, and on the record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kit.cli_rig import Shell
from kit.stores import SHARED, Database

from askfirst.account import os_account
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.requests import ConfirmRequest
from askfirst.service.case import Case
from askfirst.service.cases import Cases

on_each_store = pytest.mark.parametrize("database", SHARED, indirect=True)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def case_behind(shell: Shell, link: str) -> Case:
    """The case that a link opens."""
    at = urlsplit(link)
    (token,) = parse_qs(at.query)["token"]
    case_id = at.path.rpartition("/")[2]

    async def work(checkpointer: SqlCheckpointer) -> Case:
        return await Cases(checkpointer).with_token(case_id, token, "review")

    return shell.on_database(work)


def trail(shell: Shell) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell.here("audit", "export").splitlines()]


@on_each_store
def test_a_link_opens_the_page_of_a_request_that_was_no_case_yet(database: Database, tmp_path: Path) -> None:
    shell = Shell.on(database, tmp_path)
    shell.ask(ConfirmRequest(prompt="Really?"))
    (listed,) = shell.lines("pending", "--json")
    link = shell("link", shell.printed()).rstrip("\n")
    assert re.fullmatch(rf"http://127\.0\.0\.1:8000/review/{listed['id']}\?token=\S{{20,}}", link)
    case = case_behind(shell, link)
    assert (case.case_id, case.prompt, case.status) == (listed["id"], "Really?", "pending")
    assert shell.adopt() == []


def test_each_link_is_new_and_none_ends_another(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="Really?"))
    shell.adopt()
    links = [shell.here("link", shell.printed()).rstrip("\n") for _ in range(3)]
    assert len(set(links)) == 3
    assert {case_behind(shell, link).prompt for link in links} == {"Really?"}
    assert len(shell.here("pending", "--json").splitlines()) == 1


def test_a_case_of_a_service_has_one_too_at_the_address_that_is_named(shell: Shell) -> None:
    case_id = shell.open_case(type="approval", prompt="Ship it?")
    link = shell.here("link", case_id, "--base-url", "https://desk.example/hitl/").rstrip("\n")
    assert link.startswith(f"https://desk.example/hitl/review/{case_id}?token=")
    assert case_behind(shell, link).prompt == "Ship it?"
    shell.environment["ASKFIRST_BASE_URL"] = "https://other.example"
    assert shell.here("link", case_id).startswith("https://other.example/review/")


def test_the_record_says_who_made_a_link_and_does_not_have_it(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="Really?"))
    token = shell.here("link", shell.printed()).rstrip("\n").partition("token=")[2]
    rows = trail(shell)
    (made,) = [row for row in rows if row["act"] == "case.delivered"]
    assert made["actor"] == os_account()
    assert token not in json.dumps(rows)


def test_there_is_no_link_to_what_is_not_open(shell: Shell) -> None:
    case_id = shell.open_case(type="approval", prompt="Ship it?")
    shell.here("cancel", case_id)
    assert "is cancelled already" in shell.here("link", case_id, code=4)
    assert "nothing that is open has the id" in shell.here("link", "nothing", code=4)


def test_an_address_at_which_nobody_could_reach_it_is_refused(shell: Shell) -> None:
    case_id = shell.open_case(type="approval", prompt="Ship it?")
    done = shell.run("link", case_id, "--base-url", "ftp://desk.example")
    assert done.returncode == 2
    assert "--base-url must be the address at which people reach the service" in done.stderr
    assert [row["act"] for row in trail(shell)].count("case.delivered") == 1, "the caller's own"


def test_show_says_that_there_is_a_page(shell: Shell) -> None:
    shell.ask(ConfirmRequest(prompt="Really?"))
    assert re.search(
        r"page │ askfirst link [0-9a-f]{8} prints a link to it\n", shell.here("show", shell.printed())
    )


def test_without_an_id_it_is_the_only_one_that_waits(shell: Shell) -> None:
    assert "Nothing waits for a person." in shell.fails(4, "link")
    shell.ask(ConfirmRequest(prompt="Really?"))
    link = shell.here("link").rstrip("\n")
    assert case_behind(shell, link).prompt == "Really?"
    misused = shell.run("link", "--revoke")
    assert misused.returncode == 2
    assert "--revoke needs the ID" in misused.stderr
    shell.open_case(type="approval", prompt="Ship it?")
    assert "name one of those that askfirst pending prints" in shell.fails(1, "link")
