"""Whoever asks tries to approve its own case: in anybody's name, around a login, by silence, after it was stopped."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from kit.running_service import BROWSER, BUTTON, HandClock, Opened, Served, listening, serving, until
from kit.stores import approval, asked

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import ServiceError
from askfirst.protocol import PollResponse, SigningKey, jwks_document, shown_digest, verify_answer
from askfirst.service.adoption import case_id_of
from askfirst.service.app import create_app
from askfirst.service.audit import export
from askfirst.service.case import Case
from askfirst.service.embedding import human_input_required, review_link, revoke_links, running
from askfirst.service.person import Person
from askfirst.store import cases
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio
CFO = {"platform": "telegram", "platform_user_id": "1001", "display_name": "Alice, CFO"}
ANN = {"name": "Ann", "email": "ann@corp.example"}
DAY = 86_400
OTHER_SECRET = "another secret of the server, as long"  # noqa: S105
NO_TERMS: list[dict[str, Any]] = [
    {"links": "nobody"},
    {"link_days": 0},
    {"link_days": float("nan")},
    {"least_timeout": "soon"},
    {"least_timeout": -1},
]
own_case = pytest.mark.attack("H2", "approving one's own case")
ended_power = pytest.mark.attack("M3", "power that should have ended")
links = pytest.mark.attack("L2", "links that outlive their case")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlCheckpointer]:
    async with checkpointer_from_url(f"sqlite:///{tmp_path}/cases.db") as opened:
        yield opened


async def trail(store: SqlCheckpointer, act: str) -> list[dict[str, Any]]:
    """The rows of the audit trail with this act."""
    rows = [json.loads(line) async for line in export(store.engine)]
    return [row for row in rows if row["act"] == act]


async def by_header(request: Request) -> Any:
    """What a single sign-on proxy says; it refuses strangers by raising."""
    said = request.headers.get("x-user")
    if said is None:
        raise PermissionError("nobody is signed in")
    return json.loads(said)


async def button(served: Served, case: Opened, token: str, **headers: str) -> Any:
    """An answer to the address that takes a messenger's."""
    url, body = f"/v1/reviews/{case.case_id}/respond", {"action": "approve", **BUTTON, "submitted_by": CFO}
    return await served.http.post(url, json=body, headers={"Authorization": f"Bearer {token}", **headers})


# H2: the 202 holds nothing that approves.


@own_case
async def test_by_default_the_202_holds_no_submit_token_and_buttons_are_refused(
    store: SqlCheckpointer,
) -> None:
    async with serving(store, inline=True) as served:
        earlier = await (await served.agent()).open()  # from a time when the operator allowed it
    async with serving(store) as served:
        agent = await served.agent()
        case = await agent.open(inline_actions=["approve"])
        assert not {"submit_url", "submit_token", "inline_actions"} & case.hitl.keys()
        described = (await served.http.get("/.well-known/hitl.json")).json()["hitl_protocol"]
        assert described["capabilities"]["supports_inline_submit"] is False
        for token in (earlier.hitl["submit_token"], case.token, "agt_" + "a" * 43, "a"):
            refused = await button(served, earlier, token)
            assert (refused.status_code, refused.json()["error"]) == (403, "action_not_inline")
            assert "on the review page" in refused.json()["message"]
        assert (await served.service.cases.get(earlier.case_id)).status == "pending"


@own_case
@pytest.mark.parametrize("inline", [False, True])
async def test_an_api_of_ones_own_hands_out_what_the_operator_allows(tmp_path: Path, inline: bool) -> None:
    def make(url: str) -> FastAPI:
        hitl = create_app(
            f"sqlite:///{tmp_path}/own.db", base_url=f"{url}/hitl", inline=inline, authenticate=anybody
        )
        app = FastAPI(lifespan=lambda app: running(hitl))
        app.mount("/hitl", hitl)

        @app.post("/deploy")
        async def deploy(request: Request) -> Any:  # pyright: ignore[reportUnusedFunction]
            return await human_input_required(hitl, request, type="approval", prompt="Deploy?")

        return app

    async def anybody(request: Request) -> str:
        return "ci"

    async with listening(make) as (url, _), httpx2.AsyncClient(base_url=url) as http:
        hitl = (await http.post("/deploy")).json()["hitl"]
        assert ("submit_token" in hitl, "submit_url" in hitl) == (inline, inline)


@pytest.mark.attack("H2 L11", "approving one's own case")
async def test_a_name_in_a_button_is_a_claim_everywhere(store: SqlCheckpointer) -> None:
    async with serving(store, inline=True) as served:
        case = await (await served.agent()).open()
        assert (await case.press("approve", submitted_by=CFO)).status_code == 200
        polled = await case.poll()
        assert "responded_by" not in polled
        told = PollResponse.read(polled)
        assert told.responded_by is None
        assert told.claimed_by is not None
        assert told.claimed_by.display_name == "Alice, CFO"
        kept = await served.service.cases.get(case.case_id)
        assert (kept.responded_by, kept.claimed_by) == (
            None,
            {"name": "Alice, CFO", "account": "telegram:1001"},
        )
        page = (await case.visit()).text
        assert "said to be" in page
        assert "not verified" in page
        assert "You decided" not in page
        [row] = await trail(store, "case.answered")
        assert row["actor"] == "submit token"
        assert row["detail"]["claimed"] == "Alice, CFO (telegram:1001)"
        assert "known_by" not in row["detail"]


@own_case
async def test_a_login_that_refuses_strangers_refuses_them_on_every_surface(
    store: SqlCheckpointer, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(3)
    async with serving(store, inline=True, identify=by_header) as served:
        case = await (await served.agent()).open()
        pressed = await case.press("approve", submitted_by=CFO)
        assert (pressed.status_code, pressed.json()["error"]) == (403, "not_identified")
        said = await case.say("approve")
        assert (said.status_code, said.json()["error"]) == (403, "not_identified")
        form = await case.form(action="approve")
        assert form.status_code == 403
        assert "It could not be found out who you are." in form.text
        assert (await case.poll())["status"] == "pending"
        token = case.hitl["submit_token"]
        assert (await button(served, case, token, **{"x-user": json.dumps(ANN)})).status_code == 200
        assert (await case.poll())["responded_by"] == ANN
        assert "Ann" in (await case.visit()).text


# H2: who may.


@own_case
async def test_who_may_not_decide_is_refused_on_every_surface(
    store: SqlCheckpointer, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(4)
    seen: list[tuple[Person, str, str]] = []

    async def only_finance(person: Person, case: Case, action: str) -> bool | str:
        seen.append((person, case.case_id, action))
        return person.email == "ann@corp.example" or "Only finance decides this."

    async def signed_in(request: Request) -> Any:
        return json.loads(request.headers.get("x-user", "null"))

    async with serving(store, inline=True, identify=signed_in, authorize=only_finance) as served:
        case = await (await served.agent()).open()
        intern = {"x-user": json.dumps({"name": "Intern", "email": "intern@corp.example"})}
        for refused in (
            await case.press("approve", submitted_by=CFO),
            await case.say("approve"),
            await case.say("approve", **intern),
        ):
            body = refused.json()
            assert (refused.status_code, body["error"]) == (403, "not_authorized")
            assert body["message"] == "Only finance decides this."
        page = await case.form(action="approve", feedback="my note")
        assert page.status_code == 403
        assert "Only finance decides this." in page.text
        assert "my note" in page.text
        assert (await case.poll())["status"] == "pending"
        assert [person.surface for person, *_ in seen] == ["inline", "page", "page", "page"]
        assert seen[0][0] == Person("inline", claimed_name="Alice, CFO", claimed_account="telegram:1001")
        assert seen[2][0] == Person("page", "Intern", "intern@corp.example", "login")
        assert {(case_id, action) for _, case_id, action in seen} == {(case.case_id, "approve")}
        rows = await trail(store, "case.refused")
        assert [row["actor"] for row in rows] == [
            "submit token",
            "reviewer",
            "intern@corp.example",
            "reviewer",
        ]
        assert (await case.say("approve", **{"x-user": json.dumps(ANN)})).status_code == 200


@own_case
@pytest.mark.parametrize("said", [None, False, 1, "", [True], RuntimeError("db-password"), "sync"], ids=repr)
async def test_whatever_is_not_a_plain_yes_refuses(
    store: SqlCheckpointer, said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def odd(person: Person, case: Case, action: str) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    def sync(person: Person, case: Case, action: str) -> bool:
        return True  # nobody awaits it: what is no answer is no yes

    async with serving(store, authorize=sync if said == "sync" else odd) as served:
        case = await (await served.agent()).open()
        refused = await case.say("approve")
        assert (refused.status_code, refused.json()["error"]) == (403, "not_authorized")
        assert "You may not decide this." in refused.json()["message"]
        assert (await case.poll())["status"] == "pending"
        assert "db-password" not in caplog.text + refused.text


@own_case
async def test_an_agents_own_request_is_not_settled_by_who_may_not(store: SqlCheckpointer) -> None:
    async def nobody(person: Person, case: Case, action: str) -> bool:
        return False

    async with serving(store, authorize=nobody) as served:
        await asked(store, "t", approval())
        case_id = case_id_of("t", "call-1", 1)

        async def adopted() -> bool:
            return await served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

        await until(adopted)
        link = (await review_link(served.app, case_id)).replace("?", "/respond?")
        refused = await served.http.post(link, json={"action": "approve", "data": {}})
        assert refused.status_code == 403
        assert (await served.service.cases.get(case_id)).status == "pending"
        assert (await store.request("t", "call-1")).status == "pending"


# H2: silence.


@own_case
async def test_silence_approves_nothing_unless_the_operator_allows_it(store: SqlCheckpointer) -> None:
    quick = {"type": "approval", "prompt": "Pay?", "timeout": "1s", "default_action": "approve"}
    async with serving(store, least_timeout="5m") as served:
        agent = await served.agent()
        refused = await agent.post("/v1/reviews", quick)
        assert refused.status_code == 422
        faults = refused.json()["faults"]
        assert "a case that nobody answers would count as approved" in faults["default_action"]
        assert "at least PT5M" in faults["timeout"]
        allowed = await agent.post("/v1/reviews", {**quick, "timeout": "5m", "default_action": "reject"})
        assert allowed.status_code == 202
    async with serving(store, allow_default_approve=True) as served:
        assert (await (await served.agent()).post("/v1/reviews", quick)).status_code == 202


@own_case
async def test_an_agents_request_never_counts_as_approved_by_silence(store: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(store, clock=clock, allow_default_approve=True) as served:
        await asked(store, "t", approval(timeout_seconds=60, created_at=clock.now()))
        case_id = case_id_of("t", "call-1", 1)

        async def adopted() -> bool:
            return await served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

        await until(adopted)
        assert (await served.service.cases.get(case_id)).default_action == "reject"
        page = await served.http.get(await review_link(served.app, case_id), headers=BROWSER)
        assert "If nobody answers by then, it counts as rejected." in page.text


# H2: links that the caller does not get.


@own_case
async def test_the_service_keeps_links_back_and_tells_its_host(store: SqlCheckpointer) -> None:
    told: list[Case] = []

    async def tell(case: Case) -> None:
        told.append(case)

    async with serving(store, links="service", on_case=tell) as served:
        agent = await served.agent()
        case = await agent.open()
        assert case.hitl["review_url"] == f"{served.url}/review/{case.case_id}"
        page = await served.http.get(case.hitl["review_url"], headers=BROWSER)
        assert page.status_code == 403
        assert "This needs the link that was sent to you" in page.text
        unknown = await served.http.get(f"/review/review_{'0' * 32}", headers=BROWSER)
        assert unknown.content == page.content
        bare = f"/review/{case.case_id}/respond"
        assert (await served.http.post(bare, json={"action": "approve"})).status_code == 404

        async def heard() -> bool:
            return bool(told)

        await until(heard)
        assert [each.case_id for each in told] == [case.case_id]
        link = await review_link(served.app, case.case_id)
        answer = await served.http.post(link.replace("?", "/respond?"), json={"action": "approve"})
        assert answer.status_code == 200
        assert (await case.poll())["status"] == "completed"


# M3: power ends.


@ended_power
async def test_a_revoked_keys_submit_tokens_end_with_it(store: SqlCheckpointer) -> None:
    async with serving(store, inline=True) as served:
        case = await (await served.agent()).open()
        await served.service.keys.revoke(case.agent.key_id, by="test")
        refused = await case.press("approve")
        assert (refused.status_code, refused.json()["error"]) == (401, "invalid_token")
        assert (await served.service.cases.get(case.case_id)).status == "pending"


@ended_power
async def test_a_revoked_keys_open_cases_can_be_cancelled(store: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(store, clock=clock, quick=False) as served:
        agent, other = await served.agent(), await served.agent("other")
        late = await agent.open(timeout="1m")
        open_cases = [await agent.open() for _ in range(3)]
        theirs = await other.open()
        clock.turn(61)
        cases = served.service.cases
        await served.service.keys.revoke(agent.key_id, by="test")
        assert await cases.cancel_opened_by(agent.key_id, by="test", reason="gone") == 3
        ends = [(await cases.get(each.case_id)).status for each in (late, *open_cases, theirs)]
        assert ends == ["expired", "cancelled", "cancelled", "cancelled", "pending"]
        assert (await open_cases[0].say("approve")).status_code == 409


@ended_power
async def test_revoked_links_open_nothing_and_do_not_come_back(store: SqlCheckpointer) -> None:
    async with serving(store, inline=True) as served:
        agent = await served.agent()
        body, once = {"type": "approval", "prompt": "Pay?"}, {"Idempotency-Key": "k"}
        case = Opened(agent, (await agent.post("/v1/reviews", body, **once)).json()["hitl"])
        extra = await review_link(served.app, case.case_id)
        assert await revoke_links(served.app, case.case_id, by="desk") == 3
        again = (await agent.post("/v1/reviews", body, **once)).json()["hitl"]
        assert "submit_token" not in again
        assert "token=" not in again["review_url"]
        assert (await served.http.get(extra, headers=BROWSER)).status_code == 404
        assert (await case.visit()).status_code == 404
        assert (await case.say("approve")).status_code == 404
        assert (await case.press("approve")).status_code == 401
        [row] = await trail(store, "case.links_revoked")
        assert (row["actor"], row["detail"]["count"]) == ("desk", 3)
        assert await revoke_links(served.app, case.case_id) == 0
        new = await review_link(served.app, case.case_id)
        assert (await served.http.get(new, headers=BROWSER)).status_code == 200
        assert "token=" not in (await agent.post("/v1/reviews", body, **once)).json()["hitl"]["review_url"]


# L2: links end.


@links
@pytest.mark.parametrize("days", [None, 30])
async def test_a_link_lives_no_longer_than_the_operator_says(
    store: SqlCheckpointer, days: int | None
) -> None:
    clock, lives = HandClock(), days or 7
    options: dict[str, Any] = {} if days is None else {"link_days": days}
    async with serving(store, clock=clock, quick=False, inline=True, **options) as served:
        case = await (await served.agent()).open(timeout="366d", context={"iban": "DE-4711"})
        await asked(store, "t", approval(created_at=clock.now()))
        await served.service.cases.adopt()  # unless the service has done so already
        link = await review_link(served.app, case_id_of("t", "call-1", 1))
        clock.turn(lives * DAY - 1)
        assert "DE-4711" in (await case.visit()).text
        assert (await served.http.get(link, headers=BROWSER)).status_code == 200
        clock.turn(1)
        for page in (await case.visit(), await served.http.get(link, headers=BROWSER)):
            assert page.status_code == 410
            assert "The time of this link is over" in page.text
            assert "DE-4711" not in page.text
        said = await case.say("approve")
        assert (said.status_code, said.json()["error"]) == (410, "link_expired")
        assert (await case.form(action="approve")).status_code == 410
        assert (await case.press("approve")).status_code == 401
        assert (await served.service.cases.get(case.case_id)).status == "opened"
        longer = await review_link(served.app, case.case_id, days=1)
        assert "DE-4711" in (await served.http.get(longer, headers=BROWSER)).text


@links
async def test_a_link_to_what_has_ended_ends_too(store: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(store, clock=clock, quick=False) as served:
        case = await (await served.agent()).open(context={"iban": "DE-4711"})
        assert (await case.say("approve")).status_code == 200
        assert "Approved" in (await case.visit()).text  # how it ended, as the protocol says
        clock.turn(7 * DAY)
        page = await case.visit()
        assert page.status_code == 410
        assert "DE-4711" not in page.text


@links
async def test_repeating_a_request_gives_the_same_link_and_no_other(
    store: SqlCheckpointer, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(50)
    body, once = {"type": "approval", "prompt": "Pay?"}, {"Idempotency-Key": "k"}
    async with serving(store, inline=True) as served:
        agent = await served.agent()
        first = (await agent.post("/v1/reviews", body, **once)).json()["hitl"]
        for _ in range(50):
            again = (await agent.post("/v1/reviews", body, **once)).json()["hitl"]
            assert (again["review_url"], again["submit_token"]) == (
                first["review_url"],
                first["submit_token"],
            )
        assert await stored_tokens(store, first["case_id"]) == 2
        assert len(await trail(store, "case.delivered")) == 1
    async with serving(store, inline=True) as served:  # another process with the same secret
        again = (await served.http.post("/v1/reviews", json=body, headers={**agent.headers, **once})).json()[
            "hitl"
        ]
        assert again["review_url"].partition("?")[2] == first["review_url"].partition("?")[2]
    for _ in range(2):  # another secret: one more link, once
        async with serving(store, inline=True, secret=OTHER_SECRET) as served:
            for _ in range(3):
                await served.http.post("/v1/reviews", json=body, headers={**agent.headers, **once})
    assert await stored_tokens(store, first["case_id"]) == 4


async def stored_tokens(store: SqlCheckpointer, case_id: str) -> int:
    reads = [partial(cases.token_of_scope, case_id, scope) for scope in ("review", "submit")]
    return sum([len(await store.engine.read(each)) for each in reads])


@links
async def test_the_database_and_the_secret_each_alone_make_no_link(store: SqlCheckpointer) -> None:
    async with serving(store) as served:
        agent = await served.agent()
        tokens = {(await agent.open()).token for _ in range(20)}
    assert len(tokens) == 20
    assert {len(token) for token in tokens} == {43}


# L3: the service signs who answered, and what they were shown.


@pytest.mark.attack("L3", "signed results altered")
async def test_a_services_results_are_signed_over_who_and_what(store: SqlCheckpointer) -> None:
    key = SigningKey.generate()
    context = {"to": "Ann", "cents": 4900}
    async with serving(store, inline=True, signing_key=key) as served:
        case = await (await served.agent()).open(prompt="Pay?", context=context)
        assert (await case.press("approve", submitted_by=CFO)).status_code == 200
        jwks = (await served.http.get("/.well-known/jwks.json")).json()
        assert jwks == jwks_document([key])
        polled = PollResponse.read(await case.poll())
        shown = shown_digest(type="approval", prompt="Pay?", context=context)
        verify_answer(polled, case_id=case.case_id, jwks=jwks, shown=shown)


@own_case
@pytest.mark.parametrize("options", NO_TERMS, ids=repr)
def test_terms_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ServiceError):
        create_app("sqlite:///:memory:", base_url="https://a.example", **options)
