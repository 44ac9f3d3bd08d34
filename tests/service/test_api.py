"""The API over real sockets: opening, asking, following, answering, cancelling, and being refused."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.running_service import BROWSER, HandClock, Served, events, fits, not_answering, serving

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.errors import ServiceError
from askfirst.limits import BODY_BYTES as MOST_BYTES
from askfirst.protocol import Discovery, ErrorBody, PollResponse, Result, SigningKey, verify_result
from askfirst.service.app import create_app
from askfirst.service.visitor import _origin
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for the whole file, so that one service can be there for all of it


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("api")
    async with serving(f"sqlite:///{folder}/cases.db", quick=False, inline=True) as service:
        yield service


# Opening.


async def test_a_case_is_opened_polled_and_answered(served: Served) -> None:
    case = await (await served.agent()).open("approval", message="It is big.", timeout="2h")
    assert case.hitl["timeout"] == "PT2H"
    assert case.hitl["callback_url"] is None
    assert (await case.poll())["status"] == "pending"
    assert (await case.say("approve", {"feedback": "fine"})).status_code == 200
    done = await case.poll()
    assert done["status"] == "completed"
    assert done["result"] == {"action": "approve", "data": {"feedback": "fine"}}
    assert done["submission_context"] == {"mode": "browser_submit"}
    assert "responded_by" not in done


@pytest.mark.parametrize(
    "body",
    [
        {"type": "approval"},
        {"type": "nonsense"},
        {"type": "x-"},
        {"prompt": ""},
        {"prompt": "p" * 501},
        {"prompt": "\ud800"},
        {"timeout": "0s"},
        {"timeout": "2 fortnights"},
        {"timeout": "P400D"},
        {"default_action": "explode"},
        {"reminder_at": "2026-01-01T00:00:00"},
        {"reminder_at": "0001-01-01T00:00:00+14:00"},
        {"reminder_at": 5},
        {"reminder_at": ["2026-01-01T00:00:00Z"] * 101},
        {"hitl_callback_url": "http://a.example/hook"},
        {"hitl_callback_url": "https://10.0.0.1/hook"},
        {"hitl_callback_url": "https://a.example/[]"},
        {"inline_actions": ["fly"]},
        {"previous_case_id": "a/b"},
        {"verification_policy": {"mode": "required"}},
        {"context": {"form": {"fields": [], "steps": []}}},
        {"context": {"form": {"fields": [{"key": "a", "label": "A", "type": "select"}]}}},
        {"context": {"a": "\ud800"}},
        {"unknown": 1},
        {"\ud800": 1},
    ],
)
async def test_what_is_no_review_is_refused_with_a_sentence(served: Served, body: dict[str, Any]) -> None:
    agent = await served.agent()
    whole = {"type": "approval", "prompt": "Please decide.", **body}
    if body == {"type": "approval"}:
        del whole["prompt"]
    answer = await agent.served.http.post(
        "/v1/reviews",
        content=json.dumps(whole),
        headers={**agent.headers, "Content-Type": "application/json"},
    )
    # Half of a character that UTF-16 writes in two is no text of JSON.
    assert answer.status_code == (400 if "ud800" in json.dumps(body) else 422), answer.text
    assert fits(ErrorBody, answer.json())["message"]


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000, b'{"prompt": NaN}', b""])
async def test_what_is_no_json_is_refused(served: Served, content: bytes) -> None:
    agent = await served.agent()
    headers = {**agent.headers, "Content-Type": "application/json"}
    answer = await served.http.post("/v1/reviews", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    fits(ErrorBody, answer.json())


async def test_a_body_that_is_too_long_is_refused_before_it_is_read(served: Served) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MOST_BYTES // 65_536 + 2):
            yield b"x" * 65_536

    agent = await served.agent()
    for content in (b"x" * (MOST_BYTES + 1), endless()):
        answer = await served.http.post("/v1/reviews", content=content, headers=agent.headers)
        assert answer.status_code == 413
        assert fits(ErrorBody, answer.json())["error"] == "too_long"
    case = await (await served.agent()).open("input")
    url = f"/review/{case.case_id}/respond?token={case.token}"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await served.http.post(url, content=b"a=b&" * 20_000, headers=form)).status_code == 422
    assert (await case.poll())["status"] == "pending"


async def test_an_idempotency_key_opens_one_case(served: Served) -> None:
    agent, other = await served.agent("one"), await served.agent("two")
    body = {"type": "approval", "prompt": "Once?"}
    first, again = [
        (await agent.post("/v1/reviews", body, **{"Idempotency-Key": "k"})).json()["hitl"] for _ in range(2)
    ]
    assert first["case_id"] == again["case_id"]
    assert first["created_at"] == again["created_at"]
    for hitl in (first, again):  # tokens are kept as hashes, so each answer has its own; all of them open it
        assert (await served.http.get(hitl["review_url"])).status_code == 200
    changed = await agent.post("/v1/reviews", {**body, "prompt": "Twice?"}, **{"Idempotency-Key": "k"})
    assert changed.status_code == 422
    assert fits(ErrorBody, changed.json())["error"] == "idempotency_conflict"
    theirs = await other.post("/v1/reviews", body, **{"Idempotency-Key": "k"})
    assert theirs.json()["hitl"]["case_id"] != first["case_id"]


# Asking.


async def test_a_poller_is_told_when_nothing_has_changed(served: Served) -> None:
    case = await (await served.agent()).open()
    first = await case.agent.get(case.hitl["poll_url"])
    etag = first.headers["etag"]
    for known in (etag, f"W/{etag}", f'"zzz", {etag}', "*"):
        again = await case.agent.get(case.hitl["poll_url"], **{"If-None-Match": known})
        assert again.status_code == 304
        assert not again.content
        assert again.headers["etag"] == etag
        assert int(again.headers["retry-after"]) > 0
    await case.visit()
    changed = await case.agent.get(case.hitl["poll_url"], **{"If-None-Match": etag})
    assert changed.status_code == 200
    assert changed.json()["status"] == "opened"
    assert changed.headers["etag"] != etag


async def test_a_case_is_asked_about_sixty_times_a_minute(served: Served) -> None:
    agent = await served.agent()
    case, other = await agent.open(), await agent.open()
    answers = [await agent.get(case.hitl["poll_url"]) for _ in range(61)]
    assert [answer.status_code for answer in answers] == [200] * 60 + [429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60
    assert fits(ErrorBody, answers[-1].json())["error"] == "rate_limited"
    assert (await other.poll())["status"] == "pending"


async def test_another_key_can_neither_use_up_nor_notice_the_rate(served: Served) -> None:
    agent, stranger = await served.agent("one"), await served.agent("two")
    case = await agent.open()
    strange = [(await stranger.get(case.hitl["poll_url"])).status_code for _ in range(60)]
    assert set(strange) == {404}
    assert (await case.poll())["status"] == "pending"
    for _ in range(60):
        await agent.get(case.hitl["poll_url"])
    newcomer = await served.agent("three")
    assert (await newcomer.get(case.hitl["poll_url"])).status_code == 404


async def test_anothers_case_looks_like_one_that_does_not_exist(served: Served) -> None:
    agent, stranger = await served.agent("one"), await served.agent("two")
    case = await agent.open()
    unknown = "review_" + "0" * 32
    for path in ("status", "events"):
        theirs = await stranger.get(f"/v1/reviews/{case.case_id}/{path}")
        none = await stranger.get(f"/v1/reviews/{unknown}/{path}")
        assert theirs.status_code == none.status_code == 404
        assert theirs.content == none.content
        assert _plain(theirs) == _plain(none)
    theirs = await stranger.post(f"/v1/reviews/{case.case_id}/cancel")
    none = await stranger.post(f"/v1/reviews/{unknown}/cancel")
    assert (theirs.status_code, theirs.content) == (none.status_code, none.content) == (404, none.content)
    follows = {"type": "approval", "prompt": "More?"}
    theirs = await stranger.post("/v1/reviews", {**follows, "previous_case_id": case.case_id})
    none = await stranger.post("/v1/reviews", {**follows, "previous_case_id": unknown})
    assert (theirs.status_code, theirs.content) == (none.status_code, none.content) == (404, none.content)
    assert (await case.poll())["status"] == "pending"


def _plain(answer: Any) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


async def test_without_a_key_nothing_is_told(served: Served) -> None:
    case = await (await served.agent()).open()
    keyless = [
        await served.http.post("/v1/reviews", json={"type": "approval", "prompt": "p"}),
        await served.http.get(case.hitl["poll_url"]),
        await served.http.get(
            case.hitl["poll_url"], headers={"Authorization": "Bearer askfirst_" + "a" * 43}
        ),
        await served.http.get(case.hitl["poll_url"], headers={"Authorization": f"Bearer {case.token}"}),
        await served.http.get(case.hitl["events_url"]),
        await served.http.post(f"/v1/reviews/{case.case_id}/cancel"),
    ]
    for answer in keyless:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert fits(ErrorBody, answer.json())["error"] == "invalid_api_key"


async def test_a_revoked_key_is_refused(tmp_path: Path) -> None:
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", clock=clock) as served:
        case = await (await served.agent()).open()
        await served.service.keys.revoke(case.agent.key_id, by="test")
        assert (await case.agent.get(case.hitl["poll_url"])).status_code == 401


# Answering and cancelling.


async def test_the_first_answer_counts(served: Served) -> None:
    agent = await served.agent()
    case = await agent.open("confirmation")
    assert (await case.press("confirm")).status_code == 200
    for late in (await case.press("cancel"), await case.say("cancel"), await case.cancel()):
        assert late.status_code == 409
        assert fits(ErrorBody, late.json())["error"] == "duplicate_submission"
    assert (await case.form(action="cancel")).status_code == 409
    assert (await case.poll())["result"]["action"] == "confirm"


async def test_an_inline_answer_is_attributed(served: Served) -> None:
    case = await (await served.agent()).open("selection", context={"items": [{"id": "a"}, {"id": "b"}]})
    assert (await case.press("select", {"selected": ["b"]})).status_code == 200
    done = await case.poll()
    assert "responded_by" not in done  # a messenger's name is a claim
    assert done["submission_context"]["submitted_by"]["display_name"] == "Ada"
    assert done["submission_context"]["submitted_by"]["platform_user_id"] == "7"
    assert done["submission_context"]["submitted_via"] == "telegram_inline_button"


async def test_only_inline_actions_may_come_from_a_button(served: Served) -> None:
    case = await (await served.agent()).open("approval", inline_actions=["approve", "reject"])
    refused = await case.press("edit", {"feedback": "shorter"})
    assert refused.status_code == 403
    body = refused.json()
    assert body["error"] == "action_not_inline"
    assert body["review_url"] == case.hitl["review_url"].partition("?")[0]
    assert (await case.press("reject")).status_code == 200


@pytest.mark.parametrize(
    ("type", "context", "action", "data"),
    [
        ("approval", {}, "confirm", {}),
        ("approval", {}, "edit", {}),
        ("approval", {}, "approve", {"edits": {"a": 1}}),
        ("approval", {}, "approve", {"feedback": 1}),
        ("selection", {"items": [{"id": "a"}]}, "select", {"selected": ["b"]}),
        ("selection", {"items": [{"id": "a"}]}, "select", {"selected": []}),
        ("selection", {"items": [{"id": "a"}]}, "select", {"selected": "a"}),
        ("selection", {"items": [{"id": "a"}], "multiple": False}, "select", {"selected": ["a", "a"]}),
        ("input", {"form": {"fields": [{"key": "n", "label": "N", "type": "number"}]}}, "submit", {"n": "x"}),
        ("confirmation", {}, "confirm", {"confirmed_items": "all"}),
        ("escalation", {}, "skip", {"modified_params": {}}),
        ("x-own", {}, "approve", {}),
    ],
)
async def test_an_answer_that_does_not_fit_changes_nothing(
    served: Served, type: str, context: dict[str, Any], action: str, data: dict[str, Any]
) -> None:
    case = await (await served.agent()).open(type, context=context)
    for answer in (await case.say(action, data), await case.press(action, data)):
        assert answer.status_code == 422, answer.text
        assert answer.json()["faults"]
    assert (await case.poll())["status"] == "pending"


async def test_a_button_is_pressed_by_somebody(served: Served) -> None:
    case = await (await served.agent()).open("confirmation")
    for user in ("\0", "x" * 300, "a\nb"):
        by = {"platform": "x-pager", "platform_user_id": user}
        assert (await case.press("confirm", submitted_by=by)).status_code == 422
    assert (await case.press("confirm", submitted_via="x-" + "y" * 300)).status_code == 422
    assert (await case.press("confirm", submitted_via="carrier pigeon")).status_code == 422
    assert (await case.poll())["status"] == "pending"


async def test_a_cancelled_case_says_why(served: Served) -> None:
    agent = await served.agent()
    case = await agent.open()
    answer = await case.cancel(reason="No longer needed.")
    assert answer.status_code == 200
    assert fits(PollResponse, answer.json())["reason"] == "No longer needed."
    assert (await case.poll())["status"] == "cancelled"
    assert (await case.say("approve")).status_code == 409
    assert (await (await agent.open()).cancel()).json()["status"] == "cancelled"


# Pages, previews and other sites.


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"User-Agent": "TelegramBot (like TwitterBot)"},
        {**BROWSER, "User-Agent": "Slackbot-LinkExpanding 1.0"},
        {**BROWSER, "User-Agent": "facebookexternalhit/1.1"},
        {**BROWSER, "Sec-Purpose": "prefetch;prerender"},
        {**BROWSER, "Purpose": "prefetch"},
        {**BROWSER, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {**BROWSER, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {**BROWSER, "Sec-Fetch-Dest": "iframe"},
    ],
)
async def test_looking_at_a_link_does_not_open_it(served: Served, headers: dict[str, str]) -> None:
    case = await (await served.agent()).open()
    assert (await served.http.get(case.hitl["review_url"], headers=headers)).status_code == 200
    assert (await served.http.head(case.hitl["review_url"], headers=BROWSER)).status_code == 200
    assert (await case.poll())["status"] == "pending"
    await case.visit()
    opened = await case.poll()
    assert opened["status"] == "opened"
    assert opened["opened_at"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "null"},
    ],
)
async def test_nobody_decides_from_another_site(served: Served, headers: dict[str, str]) -> None:
    case = await (await served.agent()).open()
    url = f"/review/{case.case_id}/respond?token={case.token}"
    form = await served.http.post(url, data={"action": "approve"}, headers={**BROWSER, **headers})
    assert form.status_code == 403
    shown = await served.http.post(
        url, data={"action": "approve"}, headers={**BROWSER, **headers, "Accept": "text/html"}
    )
    assert shown.status_code == 403
    assert "<h1>Open the link from your message again</h1>" in shown.text
    assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
    assert (await case.say("approve", **headers)).status_code == 403
    assert (await case.poll())["status"] == "pending"
    assert (await case.say("approve", Origin=served.url)).status_code == 200


async def test_a_page_of_our_own_is_known_by_its_origin(tmp_path: Path) -> None:
    app = create_app("sqlite://", base_url="https://Ask.Example:443/hitl")
    async with app.router.lifespan_context(app):
        assert _origin(app.state.service.settings.base_url) == "https://ask.example"
    assert _origin("http://localhost:8000") == "http://localhost:8000"


# What the service says about itself.


async def test_the_service_describes_itself(served: Served) -> None:
    answer = await served.http.get("/.well-known/hitl.json")
    assert answer.headers["cache-control"] == "public, max-age=3600"
    told = fits(Discovery, answer.json())["hitl_protocol"]
    assert told["endpoints"]["reviews_base"] == f"{served.url}/v1/reviews"
    assert (await served.http.get("/.well-known/jwks.json")).json() == {"keys": []}
    assert (
        (await served.http.get("/healthz")).json()
        == (await served.http.get("/readyz")).json()
        == {"status": "ok"}
    )


async def test_results_are_signed_where_there_is_a_key(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", signing_key=SigningKey.generate()) as served:
        case = await (await served.agent()).open("input")
        assert (await case.say("submit", {"number": 2**60})).status_code == 422  # no two parsers agree on it
        assert (await case.say("submit", {"colour": "blue"})).status_code == 200
        result = Result.read((await case.poll())["result"])
        keys = (await served.http.get("/.well-known/jwks.json")).json()
        assert result.signature is not None
        assert result.signature.signer == f"{served.url}/.well-known/jwks.json"
        verify_result(result, case_id=case.case_id, jwks=keys)
        forged = Result.read({**result.wire(), "data": {"colour": "red"}})
        with pytest.raises(Exception, match="signature"):
            verify_result(forged, case_id=case.case_id, jwks=keys)


async def test_a_store_that_is_gone_is_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        checkpointer_from_url(f"sqlite:///{tmp_path}/cases.db") as checkpointer,
        serving(checkpointer, quick=False, inline=True) as served,
    ):
        case = await (await served.agent()).open()

        monkeypatch.setattr(checkpointer.engine, "read", not_answering)
        for answer in (
            await served.http.get("/readyz"),
            await case.agent.get(case.hitl["poll_url"]),
            await case.agent.get(case.hitl["events_url"]),
            await case.say("approve"),
            await case.press("approve"),
        ):
            assert answer.status_code == 503
            assert fits(ErrorBody, answer.json())["error"] == "unavailable"
            assert "db.internal" not in answer.text
        assert (await served.http.get("/healthz")).status_code == 200
        monkeypatch.undo()
        assert (await case.poll())["status"] == "pending"


@pytest.mark.parametrize("url", ["", "ask.example", "http://ask.example", "ftp://localhost", "https://"])
def test_a_base_url_that_the_protocol_forbids_is_refused(url: str) -> None:
    with pytest.raises(ServiceError, match="base_url"):
        create_app("sqlite://", base_url=url)


def test_the_description_is_made_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        described = create_app("sqlite://", base_url="https://a.example").openapi()
    names = [op["operationId"] for path in described["paths"].values() for op in path.values()]
    assert len(set(names)) == len(names)
    assert {"ApiKey", "SubmitToken"} <= described["components"]["securitySchemes"].keys()


# Callbacks and purging.


async def test_events_end_with_the_case(served: Served) -> None:
    case = await (await served.agent()).open()
    await case.visit()
    await case.say("approve")
    told = [event async for event in events(served.http, case.hitl["events_url"], case.agent.headers)]
    assert [event.event for event in told] == ["review.opened", "review.completed"]
    assert told[-1].data == await case.poll()


async def test_what_has_ended_is_deleted_after_its_time(tmp_path: Path) -> None:
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", clock=clock) as served:
        agent = await served.agent()
        old, open_still = await agent.open(timeout="P300D"), await agent.open(timeout="P300D")
        await old.say("approve")
        clock.turn(20 * 86_400)
        young = await agent.open()
        await young.say("approve")
        clock.turn(11 * 86_400)
        assert await served.service.cases.purge() == 1
        assert (await agent.get(old.hitl["poll_url"])).status_code == 404
        assert (await old.visit()).status_code == 404
        assert await served.service.cases.engine.read(partial(case_store.events, old.case_id, 0)) == []
        assert (await young.poll())["status"] == "completed"
        assert (await open_still.poll())["status"] == "pending"
        assert await served.service.cases.purge() == 0
