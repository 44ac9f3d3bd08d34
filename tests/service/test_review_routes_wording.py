"""Words in several languages on a running service: each reader's page has theirs, and messages have the service's."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.running_service import BROWSER, Served, serving, until
from kit.stores import asked

from askfirst.agent.inbox import grounds
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.delivery.base import Ended, Notice, Sent
from askfirst.display import Display
from askfirst.errors import ServiceError
from askfirst.messages import call_digest
from askfirst.permissions import PendingAction, StaticPermissionPolicy
from askfirst.permissions.rules import Rule
from askfirst.requests import ApproveRequest, HitlRequest
from askfirst.service.adoption import case_id_of
from askfirst.service.app import create_app
from askfirst.service.embedding import review_link
from askfirst.service.pages import languages
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio
ARGS = {"cents": 4900, "day": "2026-11-17", "urgent": True}
PAY = Display(
    sentence={"en": "Pay {cents:money:EUR} on {day:date}", "zh-Hans": "{day:date}退款 {cents:money:EUR}"},
    approve={"en": "Pay {cents:money:EUR}", "zh-Hans": "退款 {cents:money:EUR}"},
    labels={"cents": {"en": "Amount", "zh-Hans": "金额"}},
    formats={"cents": "money:EUR", "day": "date"},
    consequences=["irreversible", {"en": "custom:leaves the country", "zh-Hans": "custom:汇往境外"}],
)
RULE = Rule(
    id="refunds",
    effect="require_approval",
    reason={"en": "Refunds need a person.", "zh-Hans": "退款须由人批准。"},
)
ENGLISH = ["Pay 49.00 EUR on 17 Nov 2026", "Amount", "leaves the country", "Refunds need a person."]
CHINESE = ["2026年11月17日退款 49.00 EUR", "金额", "汇往境外", "退款须由人批准。"]


class Board:
    """A delivery that keeps what it is given."""

    name = "board"
    shows_buttons = True

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    async def send(self, notice: Notice) -> Sent:
        self.notices.append(notice)
        return Sent("board", {})

    async def update(self, sent: Sent, ended: Ended) -> None:
        raise AssertionError("nothing ends here")


@pytest.fixture(autouse=True)
def catalogues() -> None:
    """The catalogues are read before there is an event loop, as where a module calls `create_app`."""
    languages()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlCheckpointer]:
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/t.db") as opened:
        yield opened


async def link_of(served: Served, store: SqlCheckpointer) -> str:
    decision = StaticPermissionPolicy([RULE]).evaluate(PendingAction(tool="pay", args=ARGS))
    payload = ApproveRequest(
        tool_name="pay",
        tool_call_id="call-1",
        args=ARGS,
        digest=call_digest("pay", ARGS),
        display=PAY.shown(ARGS),
        details=grounds(("refund-desk",), "*", decision),
    )
    now = served.service.cases.now() / 1000
    await asked(store, "t", HitlRequest(question_id="call-1", payload=payload, created_at=now))
    case_id = case_id_of("t", "call-1", 1)

    async def known() -> bool:
        return await served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

    await until(known)
    return await review_link(served.app, case_id)


async def page_in(served: Served, link: str, accepted: str, more: str = "") -> str:
    answer = await served.http.get(link + more, headers={**BROWSER, "Accept-Language": accepted})
    assert answer.status_code == 200, answer.text
    return answer.text


def has_all(html: str, texts: list[str]) -> bool:
    return all(text in html for text in texts)


def has_none(html: str, texts: list[str]) -> bool:
    return not any(text in html for text in texts)


async def test_each_reader_gets_the_tools_and_the_rules_words_in_their_language(
    store: SqlCheckpointer,
) -> None:
    async with serving(store) as served:
        link = await link_of(served, store)
        english, chinese = await page_in(served, link, "en"), await page_in(served, link, "zh-CN,en;q=0.5")
        chosen = await page_in(served, link, "en", "&lang=zh-Hans")
    for html in (chinese, chosen):
        assert has_all(html, CHINESE)
        assert has_none(html, ENGLISH)
        assert re.search(r'<button class="go[^>]*>退款 49.00 EUR…</button>', html)
    assert has_all(english, ENGLISH)
    assert has_none(english, CHINESE)


async def test_the_second_step_and_an_edit_speak_the_readers_language_too(store: SqlCheckpointer) -> None:
    async with serving(store) as served:
        link = await link_of(served, store)
        form = {**BROWSER, "Sec-Fetch-Site": "same-origin", "Accept-Language": "zh"}
        post = link.replace("?", "/respond?")
        second = await served.http.post(post, data={"action": "approve"}, headers=form)
        edited = {"intent": "preview", "arg.0": "40.00", "arg.1": "2026-11-18", "arg.2": "false"}
        check = await served.http.post(post, data=edited, headers=form)
    assert "2026年11月17日退款 49.00 EUR" in second.text
    assert "退款 49.00 EUR？" in second.text
    assert '2026年11月18日退款 <span class="keep">40.00 EUR</span>' in check.text
    assert has_none(second.text + check.text, [*ENGLISH, "18 Nov 2026", ">Yes<", ">No<"])


async def test_a_service_speaks_its_own_language_to_those_who_want_none_that_it_has(
    store: SqlCheckpointer,
) -> None:
    async with serving(store, language="zh-Hans") as served:
        link = await link_of(served, store)
        assert has_all(await page_in(served, link, "fr"), [*CHINESE, '<html lang="zh-Hans"'])
        assert has_all(await page_in(served, link, "en-GB"), [*ENGLISH, '<html lang="en"'])
        nowhere = await served.http.get("/review/nothing", headers={**BROWSER, "Accept": "text/html"})
        assert '<html lang="zh-Hans"' in nowhere.text
    with pytest.raises(ServiceError, match="language must be one of en, zh-Hans, not 'tlh'"):
        create_app("sqlite://", base_url="https://a.example", language="tlh")


@pytest.mark.parametrize(
    ("language", "texts", "button"), [("en", ENGLISH, "Pay"), ("zh-Hans", CHINESE, "退款")]
)
async def test_messages_have_the_services_language(
    store: SqlCheckpointer, language: str, texts: list[str], button: str
) -> None:
    board = Board()
    async with serving(store, language=language, deliver=board, links="service") as served:
        await link_of(served, store)

        async def told() -> bool:
            return bool(board.notices)

        await until(told)
    notice = board.notices[0]
    assert notice.contents is not None
    assert notice.contents.sentence == texts[0]
    assert notice.contents.reason == texts[3]
    assert texts[2] in notice.body
    assert dict(notice.contents.facts)[texts[1]].startswith("49.00 EUR")
    assert not any(each.label.startswith(button) for each in notice.buttons if each.confirm is None)


REVIEW: dict[str, Any] = {
    "type": "approval",
    "prompt": "Ship it?",
    "context": {"build": "1.2.0"},
    "labels": {"build": {"en": "Build", "zh-Hans": "构建版本"}},
    "approve_label": {"en": "Ship it", "zh-Hans": "发布"},
    "reject_label": {"en": "Not now", "zh-Hans": "暂不发布"},
    "consequences": [{"en": "custom:restarts the shop", "zh-Hans": "custom:商店将重启"}],
    "links": [{"title": {"en": "The diff", "zh-Hans": "差异对比"}, "url": "https://ci.example/1"}],
}


async def test_a_caller_names_things_in_several_languages(store: SqlCheckpointer) -> None:
    async with serving(store) as served:
        agent = await served.agent("ci")
        opened = await served.http.post("/v1/reviews", json=REVIEW, headers=agent.headers)
        assert opened.status_code == 202, opened.text
        link = opened.json()["hitl"]["review_url"]
        english, chinese = await page_in(served, link, "en"), await page_in(served, link, "zh")
        theirs, ours = (
            ["构建版本", "发布", "暂不发布", "商店将重启", "差异对比"],
            ["Build", "Ship it<", "Not now", "The diff"],
        )
        assert has_all(chinese, theirs)
        assert has_none(chinese, ["Build", "Ship it<", "restarts the shop", "The diff"])
        assert has_all(english, ours)
        assert has_none(english, theirs)


@pytest.mark.parametrize(
    ("field", "given", "said"),
    [
        ("approve_label", {}, "must be a text, or one for each language"),
        ("approve_label", {"en": "Go", "zh-Hans": "发" * 25}, "must have 1 to 24 characters"),
        ("approve_label", {"english": "Go"}, "has the language 'english'"),
        ("approve_label", {"en": ["Go"]}, "must be a text, and not empty, in the language 'en'"),
        ("approve_label", 5, "must be a text, or one for each language"),
        ("labels", {"build": {"en": ""}}, "must be a text, and not empty, in the language 'en'"),
        ("labels", {"build": "x" * 101}, "must have 1 to 100 characters"),
        ("consequences", [{"en": "money", "zh-Hans": "钱"}], "must be some of money"),
    ],
)
async def test_what_cannot_be_shown_in_some_language_is_refused(
    store: SqlCheckpointer, field: str, given: Any, said: str
) -> None:
    async with serving(store) as served:
        agent = await served.agent("ci")
        body = {**REVIEW, field: given}
        refused = await served.http.post("/v1/reviews", json=body, headers=agent.headers)
    assert refused.status_code == 422
    assert said in refused.text
