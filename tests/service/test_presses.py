"""Decisions that are pressed in a messenger: by whom, for what, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.stores import approval, asked

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.delivery.base import Ended, Notice, Press, Sent
from askfirst.errors import DeliveryError, ServiceError
from askfirst.service.cases import Cases
from askfirst.service.notices import message_digest
from askfirst.service.person import Person
from askfirst.service.places import Decider, Place, Places
from askfirst.service.presses import CHANGED, Presses

pytestmark = pytest.mark.anyio


class Chat:
    """A delivery with buttons."""

    name = "chat"
    shows_buttons = True

    async def send(self, notice: Notice) -> Sent:
        return Sent("chat", notice.case_id)

    async def update(self, sent: Sent, ended: Ended) -> None:
        pass

    def to(self, target: str) -> Chat:
        return Chat()


PLACE = Place("chat", Chat(), {"telegram:7": Decider("Ada Lovelace", "ada@a.example")})


def press(case_id: str, shown: str | None, action: str = "approve", user: str = "7", **more: Any) -> Press:
    return Press(case_id, action, "telegram_inline_button", "telegram", user, "Ada", shown, **more)


async def test_a_press_of_somebody_on_the_list_settles_the_request(checkpointer: SqlCheckpointer) -> None:
    _, [request] = await asked(checkpointer, "t", approval())
    heard: list[Person] = []

    async def authorize(person: Person, *_: Any) -> bool:
        heard.append(person)
        return True

    cases = Cases(checkpointer, authorize=authorize)
    [case] = await cases.adopt()
    answers = await asyncio.gather(
        *(Presses(cases).decide(PLACE, press(case.case_id, message_digest(case))) for _ in range(5))
    )
    assert sorted(answer.kind for answer in answers) == ["closed"] * 4 + ["done"]
    assert next(answer.text for answer in answers if answer.kind == "done") == "Approved by Ada Lovelace."
    assert {(each.surface, each.account, each.name, each.known_by) for each in heard} == {
        ("messenger", "telegram:7", "Ada Lovelace", "telegram")
    }
    settled = await checkpointer.request("t", request.question_id)
    assert settled is not None
    assert (settled.status, settled.answered_by, settled.via) == (
        "answered",
        "ada@a.example",
        "telegram_inline_button",
    )


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_who_is_not_on_the_list_or_not_authorized_decides_nothing(
    checkpointer: SqlCheckpointer, is_allowed: bool
) -> None:
    await asked(checkpointer, "t", approval())

    async def authorize(*_: Any) -> bool:
        return is_allowed

    cases = Cases(checkpointer, authorize=authorize)
    [case] = await cases.adopt()
    user = "8" if is_allowed else "7"  # one whom nobody knows, and one whom `authorize` refuses
    said = await Presses(cases).decide(PLACE, press(case.case_id, message_digest(case), user=user))
    assert said.kind == "refused"
    assert (await cases.get(case.case_id)).status == "pending"
    await cases.link()


@pytest.mark.parametrize("shown", [None, "0" * 64])
async def test_a_press_counts_only_for_what_was_shown(
    checkpointer: SqlCheckpointer, shown: str | None
) -> None:
    await asked(checkpointer, "t", approval())
    cases = Cases(checkpointer)
    [case] = await cases.adopt()
    said = await Presses(cases).decide(PLACE, press(case.case_id, shown))
    assert (said.kind, said.text) == ("to_page", CHANGED)
    assert (await cases.get(case.case_id)).status == "pending"


async def test_a_reason_comes_along(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer, "t", approval())
    cases = Cases(checkpointer)
    [case] = await cases.adopt()
    data = {"feedback": "too much"}
    said = await Presses(cases).decide(PLACE, press(case.case_id, message_digest(case), "reject", data=data))
    assert said.text == "Rejected by Ada Lovelace."
    settled = await checkpointer.request("t", "call-1")
    assert settled is not None
    assert settled.answer.reason == "too much"


def test_places_have_names_and_targets() -> None:
    places = Places([PLACE])
    assert places.at("chat") is PLACE
    assert places.at("chat:#ops") is places.at("chat:#ops")
    assert places.at("chat:#ops").deciders == PLACE.deciders
    with pytest.raises(DeliveryError, match="there is no delivery of this name; there are: chat"):
        places.at("mail")
    with pytest.raises(ServiceError, match="two deliveries have the name 'chat'"):
        Places([PLACE, PLACE])
    with pytest.raises(ServiceError, match="cannot name a delivery"):
        Place("Chat room", Chat())


@pytest.mark.parametrize(
    ("text", "decider"),
    [
        ("Ada", Decider("Ada")),
        ("Ada Lovelace <ada@a.example>", Decider("Ada Lovelace", "ada@a.example")),
        ("<ada@a.example>", Decider("ada@a.example", "ada@a.example")),
    ],
)
def test_deciders_are_named(text: str, decider: Decider) -> None:
    assert Decider.read(text) == decider


@pytest.mark.parametrize("text", ["", "  ", "a\u202eb", "Ada <", "x" * 300])
def test_who_is_no_decider(text: str) -> None:
    with pytest.raises(ServiceError, match="names nobody"):
        Decider.read(text)
