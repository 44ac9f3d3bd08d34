"""A 202 is taken whole or refused whole, with everything that is wrong with it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.published_protocol import PUBLISHED, needs_published

from askfirst.client.offer import Offer, may_call, place_of, read_offer
from askfirst.client.wait_state import WaitState
from askfirst.delivery.base import Sent
from askfirst.errors import InvalidOffer
from askfirst.protocol import actions_of

URL = "https://api.example/orders"
SECRET = "s" * 43


def body(**fields: Any) -> dict[str, Any]:
    hitl = {
        "spec_version": "0.8",
        "case_id": "review_1",
        "review_url": f"https://pages.example/review/review_1?token={SECRET}",
        "poll_url": "https://api.example/reviews/review_1/status",
        "type": "approval",
        "prompt": "Ship it?",
        "created_at": "2026-02-22T10:00:00Z",
        "expires_at": "2026-02-23T10:00:00Z",
        **fields,
    }
    kept = {name: value for name, value in hitl.items() if value is not ...}
    return {"status": "human_input_required", "message": "One moment.", "hitl": kept}


def faults(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidOffer) as caught:
        read_offer(202, URL, body(**fields))
    assert SECRET not in f"{caught.value}{caught.value!r}{caught.value.faults}"
    return caught.value.faults


def test_what_is_asked_is_read() -> None:
    offer = read_offer(202, URL, body())
    assert isinstance(offer, Offer)
    assert (offer.case_id, offer.service, offer.message) == ("review_1", "api.example", "One moment.")
    assert SECRET not in repr(offer)


@needs_published
def test_every_published_202_is_read() -> None:
    seen = 0
    for file in sorted((PUBLISHED / "examples").glob("*.json")):
        for step in json.loads(file.read_text()).get("steps", []):
            answer = step.get("response", {})
            if answer.get("status") == 202:
                poll = answer["body"]["hitl"]["poll_url"]
                assert read_offer(202, poll, answer["body"]) is not None
                seen += 1
    assert seen >= 5


@pytest.mark.parametrize("status", [200, 201, 204, 303, 400, 500])
def test_only_a_202_asks(status: int) -> None:
    assert read_offer(status, URL, body()) is None


@pytest.mark.parametrize(
    "said", [None, [], "hitl", 7, {}, {"hitl": None}, {"status": "human_input_required"}]
)
def test_a_202_without_hitl_asks_nothing(said: Any) -> None:
    assert read_offer(202, URL, said) is None


@pytest.mark.parametrize("version", ["0.5", "0.6", "0.7", "0.8"])
def test_earlier_versions_are_read(version: str) -> None:
    assert read_offer(202, URL, body(spec_version=version)) is not None


@pytest.mark.parametrize("version", ["0.4", "0.9", "1.0", "", 8, None, ...])
def test_no_version_stops_an_offer_that_has_the_five_fields(version: Any) -> None:
    offer = read_offer(202, URL, body(spec_version=version))
    assert offer is not None
    assert offer.hitl.spec_version == "0.8"
    assert offer.more.get("spec_version") == (version if isinstance(version, str) else None)


def test_an_unknown_type_of_its_own_is_treated_as_input() -> None:
    offer = read_offer(202, URL, body(type="x-signature"))
    assert offer is not None
    assert actions_of(offer.hitl.type) == ("submit",)
    assert set(faults(type="signature")) == {"hitl.type"}


def test_everything_wrong_is_listed_at_once() -> None:
    found = faults(
        case_id="../x",
        review_url="http://pages.example/r?token=" + SECRET,
        poll_url="https://elsewhere.example/1",
        events_url="https://third.example/1",
        prompt="x" * 501,
        type=...,
        default_action="launch",
        reminder_at="soon",
    )
    assert set(found) == {
        "hitl.case_id",
        "hitl.review_url",
        "hitl.poll_url",
        "hitl.events_url",
        "hitl.prompt",
        "hitl.type",
    }


@pytest.mark.parametrize("name", ["poll_url", "events_url", "submit_url"])
@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/1",
        "https://api.example:8443/1",
        "https://api.example.elsewhere.example/1",
        "https://api.example@elsewhere.example/1",
        "https://elsewhere.example/api.example",
        "http://api.example/1",
        "http://localhost/1",
        "ftp://api.example/1",
        "//api.example/1",
        "/1",
        "",
    ],
)
def test_the_agent_calls_nobody_but_the_service(name: str, url: str) -> None:
    token = {"submit_token": "t" * 43} if name == "submit_url" else {}
    assert f"hitl.{name}" in faults(**{name: url}, **token)


@pytest.mark.parametrize(
    ("allowed", "url", "may"),
    [
        ("events.example", "https://events.example/1", True),
        ("EVENTS.example", "https://events.example:8443/1", True),
        ("events.example:8443", "https://events.example:8443/1", True),
        ("events.example:8443", "https://events.example/1", False),
        ("example", "https://events.example/1", False),
        ("events.example", "http://events.example/1", False),
    ],
)
def test_other_hosts_are_called_where_that_is_allowed(allowed: str, url: str, may: bool) -> None:
    assert may_call(url, "api.example", {allowed}) is may
    if may:
        assert read_offer(202, URL, body(events_url=url), allowed_hosts=[allowed]) is not None
    else:
        with pytest.raises(InvalidOffer):
            read_offer(202, URL, body(events_url=url), allowed_hosts=[allowed])


def test_plain_http_is_for_this_machine() -> None:
    local = "http://127.0.0.1:8000/orders"
    urls = {
        "poll_url": "http://127.0.0.1:8000/1",
        "review_url": "http://127.0.0.1:8000/r?token=t",
    }
    assert read_offer(202, local, body(**urls)) is not None
    with pytest.raises(InvalidOffer):
        read_offer(202, local, body(**{**urls, "poll_url": "http://127.0.0.1:9000/1"}))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://A.example/x", "a.example"),
        ("https://a.example:443/x", "a.example"),
        ("https://a.example:8443", "a.example:8443"),
        ("http://127.0.0.1:80", "127.0.0.1"),
        ("https://u:p@a.example", None),
        ("nowhere", None),
        ("https://a.example:port", None),
    ],
)
def test_where_an_address_leads(url: str, place: str | None) -> None:
    assert place_of(url) == place


def test_what_is_for_the_page_alone_is_not_kept() -> None:
    form = {"fields": [{"key": "a", "label": "A", "type": "text"}]}
    offer = read_offer(202, URL, body(context={"form": form, "plan": "x" * 100_000}))
    assert offer is not None
    assert offer.hitl.form is not None
    assert len(json.dumps(WaitState(offer).to_json())) < 2_000


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_wrong_it_is_this_error(data: st.DataObject) -> None:
    said = body(events_url="https://api.example/e", reminder_at=["2026-02-22T11:00:00Z"])
    where = data.draw(st.sampled_from([*said["hitl"], "*"]))
    junk = data.draw(_junk)
    if where == "*":
        said["hitl"] = junk
    else:
        said["hitl"][where] = junk
    with suppress(InvalidOffer):
        read_offer(202, URL, said)


def test_a_wait_is_the_same_after_it_was_stored() -> None:
    offer = read_offer(202, URL, body(submit_url="https://api.example/s", submit_token=SECRET))
    assert offer is not None
    state = WaitState(
        offer,
        ("review_0",),
        seen="opened",
        last_event_id="7",
        reminded=(1.5,),
        sent=(("telegram#2", Sent("telegram", "review_1", {"chat": 7})),),
    )
    again = WaitState.from_json(json.loads(json.dumps(state.to_json())))
    assert again == state
    assert again.round == 2
    assert SECRET not in repr(again)
    left = json.dumps(state.without_link().to_json())
    assert SECRET not in left
    assert WaitState.from_json(json.loads(left)).offer.hitl.poll_url == state.offer.hitl.poll_url


def test_a_wait_of_another_version_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="version"):
        WaitState.from_json({"version": 99})
