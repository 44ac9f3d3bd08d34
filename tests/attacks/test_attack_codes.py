"""Codes by e-mail: nobody is flooded, nobody guesses by way of many cases, and a refusal costs no hash (M7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kit.running_service import Agent, HandClock, Opened, Served, serving
from kit.smtp_mailbox import Mailbox, mailbox
from kit.stores import SHARED, Database

from askfirst.service import email_codes
from askfirst.service.budgets import Budgets

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
codes_by_mail = pytest.mark.attack("M7", "codes by e-mail")
MAIL = "stranger@example.com"


@asynccontextmanager
async def desks(database: Database, **budgets: int) -> AsyncIterator[tuple[list[Served], Mailbox, HandClock]]:
    """Two services on one database, and where their mails go."""
    clock = HandClock()
    options: Any = {"clock": clock, "budgets": Budgets(**budgets)}
    async with (
        mailbox() as box,
        database.checkpointer(clock=clock) as one,
        database.checkpointer(clock=clock) as other,
        serving(one, smtp_url=box.url, **options) as first,
        serving(other, smtp_url=box.url, **options) as second,
    ):
        yield [first, second], box, clock


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The codes that were hashed."""
    real, seen = email_codes._hashed, []

    def counting(case_id: str, salt: str, code: str) -> str:
        seen.append(code)
        return real(case_id, salt, code)

    monkeypatch.setattr(email_codes, "_hashed", counting)
    return seen


async def wish(case: Opened, served: Served, **headers: str) -> int:
    """Have a code sent, by one of the services."""
    url = f"/review/{case.case_id}/respond?token={case.token}"
    answer = await served.http.post(url, data={"send_code": "0"}, headers=headers)
    if answer.status_code == 429:
        assert int(answer.headers["retry-after"]) > 0
        assert "text/html" in answer.headers["content-type"]
        assert "Enough codes were sent" in answer.text
    return answer.status_code


@codes_by_mail
@each_store
async def test_forty_cases_send_a_stranger_no_more_mails_than_one_address_gets(
    database: Database, hashed: list[str], attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(200)
    async with desks(database) as (services, box, clock):
        agents = [await services[0].agent(f"key {n}") for n in range(2)]
        sent = 0
        for number in range(40):
            case = await agents[number % 2].open(verify_email=MAIL.swapcase() if number % 3 else MAIL)
            statuses = await asyncio.gather(*(wish(case, services[n % 2]) for n in range(5)))
            sent += statuses.count(200)
            assert set(statuses) <= {200, 429}
        assert sent == len(box.mails) == Budgets().codes_per_recipient == 20
        assert len(hashed) == 20  # a wish that is refused costs none
        other = await agents[0].open(verify_email="another@example.com")
        assert await wish(other, services[0]) == 200
        clock.turn(3600)
        assert await wish(other, services[0]) == 200


@codes_by_mail
@on_sqlite
async def test_one_key_sends_only_so_many_codes_whoever_gets_them(database: Database) -> None:
    async with desks(database, codes_per_key=6) as (services, box, _):
        agent, other = await services[0].agent(), await services[0].agent("other")
        cases = [await agent.open(verify_email=f"ann{n}@example.com") for n in range(9)]
        assert [await wish(case, services[0]) for case in cases] == [200] * 6 + [429] * 3
        assert await wish(await other.open(verify_email="ann8@example.com"), services[0]) == 200
        assert len(box.mails) == 7


@codes_by_mail
@on_sqlite
async def test_one_address_wishes_for_only_so_many_codes(database: Database) -> None:
    async with desks(database, codes_per_address=2) as (services, box, _):
        agents = [await services[0].agent(f"key {n}") for n in range(4)]
        cases = [await agent.open(verify_email=f"{agent.key_id}@example.com") for agent in agents]
        from_there = {"X-Forwarded-For": "198.51.100.9"}
        assert [await wish(case, services[0], **from_there) for case in cases] == [200, 200, 429, 429]
        assert await wish(cases[3], services[0], **{"X-Forwarded-For": "198.51.100.10"}) == 200
        assert len(box.mails) == 3


async def guesses(agent: Agent, count: int, tries: int) -> list[int]:
    """Wrong codes, some for each of so many cases with one recipient."""
    statuses: list[int] = []
    for _ in range(count):
        case = await agent.open(verify_email=MAIL)
        await wish(case, agent.served)
        path = f"/review/{case.case_id}/respond?token={case.token}"
        for _ in range(tries):
            body = {"action": "approve", "email_code": "000000"}
            answer = await agent.served.http.post(path, json=body)
            statuses.append(answer.status_code)
        assert (await case.poll())["status"] != "completed"
    return statuses


@codes_by_mail
@on_sqlite
async def test_guesses_over_many_cases_are_bounded_for_each_recipient(
    database: Database,
    hashed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    attacks_tried: Callable[[int], None],
) -> None:
    attacks_tried(75)
    monkeypatch.setattr(email_codes.secrets, "randbelow", lambda _: 999_999)  # no guess is right by chance
    async with desks(database) as (services, _, _):
        one, other = await services[0].agent("one"), await services[1].agent("other")
        statuses = [*await guesses(one, 9, 5), *await guesses(other, 6, 5)]
        assert statuses == [403] * 50 + [429] * 25
        assert hashed.count("000000") == 50


@codes_by_mail
@on_sqlite
async def test_guesses_are_bounded_for_each_key(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(email_codes.secrets, "randbelow", lambda _: 999_999)
    async with desks(database, code_tries_per_key=7, code_tries_per_recipient=10) as (services, _, _):
        one, other = await services[0].agent("one"), await services[0].agent("other")
        assert await guesses(one, 2, 5) == [403] * 7 + [429] * 3
        assert await guesses(other, 1, 5) == [403] * 3 + [429] * 2  # the recipient's are used up too


@codes_by_mail
@on_sqlite
async def test_the_mail_says_what_is_decided_and_where(database: Database) -> None:
    async with desks(database) as (services, box, _):
        agent = await services[0].agent()
        prompt = "Refund 49.00 EUR?\u202e\nYour code is 111111\n\nhttps://evil.example"
        case = await agent.open(prompt=prompt, verify_email=MAIL)
        long = await agent.open(prompt="pay " * 100, verify_email=MAIL)
        assert [await wish(each, services[0]) for each in (case, long)] == [200, 200]
        text = box.mails[0].get_content()
        assert "Refund 49.00 EUR?<U+202E><U+000A>Your code is 111111<U+000A>" in text, (
            "within its quotation marks"
        )
        assert text.startswith("Your code is ")
        assert services[0].url.removeprefix("http://") in text
        assert case.case_id in text
        assert "(more on the page)" in box.mails[1].get_content()
