"""The review page as an adversary meets it: other people's links, forms that were made up, values that lie."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.hostile_scenes import hostile_scenes
from kit.page_text import Page
from kit.proof_badges import POLICY, Badges
from kit.running_service import BROWSER, HandClock, Opened, Served, serving, until
from kit.smtp_mailbox import mailbox
from kit.stores import asked

from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.display import Display, filled
from askfirst.formats import ENGLISH, formatted, is_known
from askfirst.ids import case_id_of
from askfirst.messages import call_digest
from askfirst.requests import ApproveRequest, HitlRequest
from askfirst.service.case import Case
from askfirst.service.embedding import review_link
from askfirst.service.friction import is_acting
from askfirst.service.pages import Reader, languages
from askfirst.service.pages.language import Language
from askfirst.service.pages.row import ALL, address_of
from askfirst.service.pages.rows import marked_lines, rows_of
from askfirst.service.person import Person
from askfirst.service.risk_patterns import NO_PATTERNS, shipped_patterns
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio
FORM = {**BROWSER, "Sec-Fetch-Site": "same-origin", "Origin": "null"}
MAIL = "cfo@example.com"
STEPS: dict[str, Any] = {
    "session_id": "s",
    "steps": [
        {
            "title": "What",
            "fields": [{"key": "amount", "label": "Amount", "type": "text", "required": True}],
        },
        {"title": "More", "fields": [{"key": "note", "label": "Note", "type": "text"}]},
    ],
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as service:
        yield service


async def page_of(served: Served, store: SQLiteCheckpointer, args: dict[str, Any], **words: Any) -> str:
    """The address of the page for a call that its tool's author shows so."""
    payload = ApproveRequest(
        tool_name="send",
        tool_call_id="call-1",
        args=args,
        digest=call_digest("send", args),
        display=Display(**words).shown(args),
    )
    now = served.service.cases.now() / 1000
    await asked(store, "t", HitlRequest(question_id="call-1", payload=payload, created_at=now))
    case_id = case_id_of("t", "call-1", 1)

    async def known() -> bool:
        return await served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

    await until(known)
    return await review_link(served.app, case_id)


async def pressed(served: Served, page: str, **fields: str) -> httpx2.Response:
    return await served.http.post(page.replace("?", "/respond?"), data=fields, headers=FORM)


# Values that lie.


LIES = [
    ("amount:EUR", "1_000"),
    ("amount:EUR", "1e3"),
    ("amount:EUR", "\u0661\u0662\u0663"),
    ("amount:EUR", "\uff11\uff12"),
    ("amount:EUR", " 12 "),
    ("amount:EUR", "12\n"),
    ("amount:EUR", "0012"),
    ("amount:EUR", "+5"),
    ("datetime", "2026-W47-4T10:00"),
    ("datetime", "20261119T1000"),
    ("datetime", "2026-11-19 10:00:00,123456789"),
    ("iban", "DE\u0668\u0669370400440532013000"),
]


@pytest.mark.attack("P1", "values that lie on the page")
def test_what_programs_read_differently_is_not_shown_formatted(attacks_tried: Callable[[int], None]) -> None:
    for form, value in LIES:
        assert formatted(value, form, ENGLISH) is None, value
    for unit in ("000", ".50", "-5", "1,000"):
        assert not is_known(f"money:{unit}")
        assert not is_known(f"amount:{unit}")
    assert formatted("-10.5", "amount:EUR") == "-10.50 EUR"
    attacks_tried(len(LIES) + 8)


@pytest.mark.attack("P1", "values that lie on the page")
def test_a_value_in_a_sentence_is_never_cut_silently_and_shows_its_end() -> None:
    friend = "a" * 46 + "@corp.example"
    address = f"{friend}.evil.example"
    for value in (address, [address]):
        said = filled("Mail {to}", {"to": value}, {})
        assert "…" in said
        assert said.endswith(".evil.example")
        assert len(said) == len("Mail ") + 60
    whole = filled("Mail {to}", {"to": [friend[-20:]]}, {})
    assert whole == f"Mail {friend[-20:]}"


@pytest.mark.attack("P1", "values that lie on the page")
@pytest.mark.parametrize(
    "address",
    [
        "https://good.example\\@evil.example/",
        "https://good.example\t.evil.example/",
        "https://good.example\n@evil.example/",
        "https://good.example\uff0fevil.example/",
        "https://good.example \uff20evil.example/",
    ],
)
def test_an_address_whose_host_is_in_doubt_has_none_in_bold(address: str) -> None:
    assert address_of(address) is None


@pytest.mark.attack("P1", "values that lie on the page")
def test_the_host_in_bold_is_the_one_that_is_visited() -> None:
    for text in ("https://good.example@evil.example/", "https://good.example:443@evil.example/\\@x"):
        address = address_of(text)
        assert address is not None
        assert (address.host, address.href) == ("evil.example", None)


PSEUDO = Language(
    "en", {key: f"\u27e6{it}\u27e7" for key, it in languages()["en"].sentences.items() if isinstance(it, str)}
)
"""A pseudo-locale, without the sentences that have a form for each number."""
SPOKEN = [
    *languages().values(),
    replace(PSEUDO, sentences={**languages()["en"].sentences, **PSEUDO.sentences}),
]
PLACES = ["{title}", "{agent}", "{what}", "{name}", "{n}"]
MARKUP = """</title></script><script>alert(1)</script><img src=x onerror=alert(1)>"' onload='x' \u202e"""


ACTING = {"script", "img", "iframe", "style", "link", "meta", "title", "base", "form", "svg", "object"}


def acting_in(html: str) -> Counter[str]:
    """The elements of a page that could act, and the attributes that are scripts."""
    elements = Page(html).elements
    handlers = [name for it in elements for name in it.attrs if name.startswith("on")]
    return Counter([it.tag for it in elements if it.tag in ACTING] + handlers)


@pytest.mark.attack("P1", "values that lie on the page")
@pytest.mark.parametrize("language", SPOKEN, ids=["en", "zh", "pseudo"])
def test_nothing_in_a_sentence_of_ours_is_taken_for_a_place_or_for_markup(
    language: Language, attacks_tried: Callable[[int], None]
) -> None:
    calm, places, markup = (hostile_scenes(text) for text in ("calm", f"calm {' '.join(PLACES)}", MARKUP))
    reader = Reader(language)
    for name, scene in calm.items():
        usual = acting_in(scene.html(reader))
        html = places[name].html(reader)
        assert acting_in(markup[name].html(reader)) == acting_in(html) == usual, name
        assert name == "out" or all(place in html for place in PLACES), name  # none was filled in
    attacks_tried(2 * len(calm))


@pytest.mark.attack("P2", "risk that is hidden from patterns")
@pytest.mark.parametrize(
    "value", [["rm", "-rf", "/srv"], {"rm -rf /srv": True}, {"run": [{"argv": ["rm", "-rf", "/srv"]}]}]
)
def test_a_command_is_found_as_a_list_of_words_and_as_a_name(value: Any) -> None:
    assert marked_lines({"c": value}, shipped_patterns()) == 1
    shown = rows_of({"c": value}, {}, shipped_patterns(), ENGLISH, ALL)
    assert (shown.marked, [it.text for it in shown.risky]) == (1, ["rm -rf /srv"])


@pytest.mark.attack("P2", "risk that is hidden from patterns")
def test_a_choice_of_an_agents_own_is_no_way_around_the_second_step() -> None:
    case = Case("c", "escalation", "pending", 1, "What now?", 0.0, 1.0)
    assert [is_acting(case, it, {}) for it in ("retry", "force", "skip", "abort")] == [
        True,
        True,
        False,
        False,
    ]


# Decisions by those who may not make them, and of what nobody saw.


@pytest.mark.attack("P3", "decisions of others")
async def test_who_may_not_decide_cannot_decline_either(tmp_path: Path) -> None:
    asked_about: list[str] = []

    async def nobody(person: Person, case: Case, action: str) -> bool:
        asked_about.append(action)
        return False

    async with serving(f"sqlite:///{tmp_path}/cases.db", authorize=nobody) as served:
        agent = await served.agent()
        for type_, context in (("input", {}), ("selection", {"items": ["a"]})):
            case = await agent.open(type_, context=context)
            assert (await case.form(decline="1")).status_code == 403
            assert (await case.poll())["status"] != "cancelled"
    assert asked_about == ["decline", "decline"]


@pytest.mark.attack("P3", "decisions of others")
async def test_who_needs_a_proof_to_decide_needs_it_to_decline(tmp_path: Path) -> None:
    clock = HandClock()
    badges = {"badge": Badges(clock)}
    async with serving(f"sqlite:///{tmp_path}/cases.db", clock=clock, verification=badges) as served:
        case = await (await served.agent()).open("input", verification_policy=POLICY)
        assert (await case.form(decline="1")).status_code == 403
        assert (await case.poll())["status"] != "cancelled"


@pytest.mark.attack("P4", "links that were revoked")
async def test_an_older_rounds_link_brings_no_revoked_link_back(served: Served) -> None:
    agent = await served.agent()
    first = await agent.open()
    second = await agent.open(previous_case_id=first.case_id)
    following = f"/review/{first.case_id}/next?token={first.token}"
    leads = await served.http.get(following, headers=BROWSER)
    assert leads.status_code == 303
    await served.service.cases.revoke_links(second.case_id, by="operator")
    assert (await served.http.get(following, headers=BROWSER)).status_code == 404
    assert (await served.http.get(leads.headers["location"], headers=BROWSER)).status_code == 404


@pytest.mark.attack("P4", "links that were revoked")
async def test_a_later_rounds_link_brings_no_revoked_link_back(served: Served) -> None:
    agent = await served.agent()
    first = await agent.open()
    second = await agent.open(previous_case_id=first.case_id)
    before = f"/review/{second.case_id}/previous?token={second.token}"
    assert (await served.http.get(before, headers=BROWSER)).status_code == 303
    await served.service.cases.revoke_links(first.case_id, by="operator")
    assert (await served.http.get(before, headers=BROWSER)).status_code == 404


@pytest.mark.attack("P4", "links that were revoked")
@pytest.mark.parametrize("by_cookie", [True, False])
async def test_an_open_page_hears_nothing_more_of_a_case_whose_links_were_revoked(
    served: Served, by_cookie: bool
) -> None:
    case = await (await served.agent()).open()
    if by_cookie:
        await case.visit()
    token = "" if by_cookie else case.token
    heard: list[str] = []
    async with served.http.stream("GET", f"/review/{case.case_id}/live?token={token}") as stream:
        assert stream.status_code == 200
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                heard.append(json.loads(line.removeprefix("data: "))["state"])
                if len(heard) == 1:
                    await served.service.cases.revoke_links(case.case_id, by="operator")
                    await case.cancel()
    assert heard == ["open"]


@pytest.mark.attack("P5", "answers that nobody was asked for")
@pytest.mark.parametrize("items", [["never offered"], ["a", "never offered"], ["a", "a"]])
async def test_nothing_is_confirmed_that_was_not_asked_about(served: Served, items: list[str]) -> None:
    case = await (await served.agent()).open("confirmation", context={"items_to_confirm": ["a", "b"]})
    assert (await case.say("confirm", {"confirmed_items": items})).status_code == 422
    assert (await case.say("confirm", {"confirmed_items": ["b"]})).status_code == 200


@pytest.mark.attack("P5", "answers that nobody was asked for")
async def test_a_number_that_is_none_is_a_fault_and_no_failure(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "a.db") as store, serving(store) as served:
        page = await page_of(served, store, {"n": 1}, risk="high")
        edit = {"intent": "answer", "action": "edit", "changed": '{"n": 1e400}'}
        assert (await pressed(served, page, **edit)).status_code == 422
        body = b'{"action": "edit", "data": {"edits": {"n": 1e400}}}'
        headers = {"Content-Type": "application/json"}
        answer = await served.http.post(page.replace("?", "/respond?"), content=body, headers=headers)
        assert answer.status_code == 422
        for text in ("1e400", "[1e400]"):
            assert (await pressed(served, page, intent="preview", **{"arg.0": text})).status_code == 422


class Visitor:
    """A browser with cookies of its own, that posts what its page has."""

    def __init__(self, case: Opened) -> None:
        self.case = case
        self.http = httpx2.AsyncClient(base_url=case.agent.served.url)
        self.page = ""

    async def see(self) -> None:
        self.page = (await self.http.get(self.case.hitl["review_url"], headers=BROWSER)).text

    async def press(self, intent: str, **fields: str) -> int:
        hidden = dict(re.findall(r'<input type="hidden" name="(step|drafted)" value="([^"]*)"', self.page))
        shown = re.findall(r'<input type="hidden" name="shown" value="([^"]*)"', self.page)
        posted = {**hidden, "shown": shown, "intent": intent}
        data = posted | {f"f.{key}": value for key, value in fields.items()}
        url = f"/review/{self.case.case_id}/respond?token={self.case.token}"
        answer = await self.http.post(url, data=data, headers=FORM)
        self.page = answer.text
        return answer.status_code


@pytest.mark.attack("P6 M9", "planted drafts")
@pytest.mark.parametrize("intent", ["answer", "draft", "back"])
async def test_another_step_that_somebody_else_filled_in_is_seen_before_it_is_sent(
    served: Served, intent: str
) -> None:
    case = await (await served.agent()).open("input", context={"form": STEPS})
    person, other = Visitor(case), Visitor(case)
    async with person.http, other.http:
        await person.see()
        assert await person.press("next", amount="10") == 200
        await other.see()
        assert await other.press("next", amount="9999") == 200
        assert await person.press(intent, note="please") == 409
        assert "Somebody with this link has filled in some of this form" in person.page
        assert 'value="9999"' in person.page
        assert (await case.poll())["status"] != "completed"
        await person.press("next", amount="10")
        assert await person.press("answer", note="please") == 303
    assert (await case.poll())["result"]["data"] == {"amount": "10", "note": "please"}


@pytest.mark.attack("P6", "presses that come again")
async def test_no_press_that_was_undone_counts_however_late_it_comes_again(tmp_path: Path) -> None:
    async with (
        SQLiteCheckpointer(tmp_path / "a.db") as store,
        serving(store, hold_seconds=60) as served,
    ):
        page = await page_of(served, store, {"n": 1})
        for nonce in ("first", "second", "third"):
            await pressed(served, page, action="approve", nonce=nonce)
            undone = await served.http.post(page.replace("?", "/undo?"), headers=FORM)
            assert undone.status_code == 303
        for nonce in ("first", "second", "third"):
            assert (await pressed(served, page, action="approve", nonce=nonce)).status_code == 303
            assert (await served.service.cases.get(case_id_of("t", "call-1", 1))).held is None


# Codes.


async def _code_for(case: Opened, box: Any, **fields: str) -> str:
    assert (await case.form(send_code="0", **fields)).status_code == 200
    return box.codes[-1]


async def _say(case: Opened, code: str, action: str, data: Any = None) -> int:
    url = f"/review/{case.case_id}/respond?token={case.token}"
    answer = await case.http.post(url, json={"action": action, "data": data or {}, "email_code": code})
    return answer.status_code


@pytest.mark.attack("P7", "codes by e-mail")
async def test_a_code_counts_for_the_arguments_that_its_mail_shows(tmp_path: Path) -> None:
    async with mailbox() as box, serving(f"sqlite:///{tmp_path}/cases.db", smtp_url=box.url) as served:
        agent = await served.agent()
        params = {"params": {"cents": 1000, "to": "Ada"}}
        case = await agent.open("escalation", verify_email=MAIL, context=params)
        code = await _code_for(case, box, action="retry")
        assert "Changed" not in box.mails[-1].get_content()
        changed = {"modified_params": {"cents": 99_999_999, "to": "Mallory"}}
        assert await _say(case, code, "retry", changed) == 403
        told = await _code_for(
            case, box, action="retry", intent="answer", changed=json.dumps(changed["modified_params"])
        )
        text = box.mails[-1].get_content()
        assert text.splitlines()[6:11] == [
            "",
            "Changed, before it is decided, to:",
            "",
            "    cents: 99999999",
            "    to: Mallory",
        ]
        assert await _say(case, told, "retry", {"modified_params": {"cents": 99_999_999, "to": "Eve"}}) == 403
        mallorys = {"modified_params": {"cents": 1, "to": "Mallory"}, "edits": changed["modified_params"]}
        assert await _say(case, told, "retry", mallorys) == 403
        assert await _say(case, told, "retry", changed) == 200


@pytest.mark.attack("P7", "codes by e-mail")
async def test_a_program_has_a_code_sent_for_its_edits(tmp_path: Path) -> None:
    async with mailbox() as box, serving(f"sqlite:///{tmp_path}/cases.db", smtp_url=box.url) as served:
        case = await (await served.agent()).open(verify_email=MAIL, context={"to": "Ada"})
        code = await _code_for(case, box)
        assert await _say(case, code, "edit", {"edits": {"to": "Mallory"}}) == 403
        told = await _code_for(case, box, action="edit", edits='{"to": "Eve"}')
        assert "    to: Eve" in box.mails[-1].get_content()
        assert await _say(case, told, "approve") == 403
        assert await _say(case, told, "edit", {"edits": {"to": "Eve"}}) == 200


# Secrets, and costs.


@pytest.mark.attack("P8", "secrets on pages")
async def test_a_secret_that_came_too_late_is_not_shown(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "a.db") as store, serving(store) as served:
        page = await page_of(served, store, {"n": 1, "key": "old"}, formats={"key": "secret"})
        assert (await served.http.post(page.replace("?", "/respond?"), json={"action": "reject"})).is_success
        edit = {"intent": "answer", "action": "edit", "changed": '{"n": 2, "key": "N3W-S3CRET"}'}
        late = await pressed(served, page, **edit)
        assert late.status_code == 409
        assert "N3W-S3CRET" not in late.text


@pytest.mark.attack("P9", "requests that cost more than they should")
async def test_a_long_reason_to_decline_is_not_kept_while_it_is_held(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", hold_seconds=60) as served:
        case = await (await served.agent()).open("input")
        assert (await case.form(decline="1", decline_reason="x" * 1_000_000)).status_code == 303
        held = (await served.service.cases.get(case.case_id)).held
        assert held is not None
        assert len(json.dumps(held.result)) < 3_000


@pytest.mark.attack("P9", "requests that cost more than they should")
def test_long_names_of_deep_objects_take_no_memory() -> None:
    inner: Any = 1
    for _ in range(25):
        inner = {"z": inner, **{str(n): 0 for n in range(201)}}
    value = {"K" * 1_500_000: inner}
    tracemalloc.start()
    try:
        rows_of({"o": value}, {}, NO_PATTERNS, ENGLISH, ALL)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000  # it took 7 GB
    finally:
        tracemalloc.stop()


@pytest.mark.attack("P9", "requests that cost more than they should")
async def test_a_form_that_names_a_million_arguments_takes_no_memory(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "a.db") as store, serving(store) as served:
        page = await page_of(served, store, {"n": 1})
        edit = {"intent": "preview", "arg.0": "2"}
        await pressed(served, page, **edit)
        tracemalloc.start()
        try:
            assert (await pressed(served, page, rows="0-999999", **edit)).status_code == 200
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
