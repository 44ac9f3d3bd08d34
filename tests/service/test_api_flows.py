"""The published example flows, played over HTTP: each step that the example shows happens, in its order."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kit.callback_receivers import receiving
from kit.published_protocol import PUBLISHED, needs_published
from kit.running_service import SECRET, Opened, Served, events, fits, serving, until

from askfirst.protocol import Callback, verify_callback
from askfirst.protocol.signatures import SIGNATURE_HEADER
from askfirst.service.callbacks import callback_secret

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("flows")
    async with serving(f"sqlite:///{folder}/cases.db", inline=True) as service:
        yield service


def example(name: str) -> list[dict[str, Any]]:
    [file] = (PUBLISHED / "examples").glob(f"{name}-*.json")
    return json.loads(file.read_text())["steps"]


def hitl_objects(steps: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    bodies = [step["response"]["body"] for step in steps if step.get("response", {}).get("status") == 202]
    return [(body["message"], body["hitl"]) for body in bodies]


REQUEST = ("type", "prompt", "timeout", "default_action", "context", "inline_actions", "verification_policy")


async def opened(served: Served, message: str, hitl: dict[str, Any], **more: Any) -> Opened:
    """The example's case, opened here."""
    agent = await served.agent()
    asked = {name: hitl[name] for name in REQUEST if name in hitl} | more
    case = await agent.open(**{**asked, "message": message})
    for name in ("type", "prompt", "default_action", "context", "inline_actions", "verification_policy"):
        assert case.hitl.get(name) == hitl.get(name)
    return case


@needs_published
async def test_job_search_selection(served: Served) -> None:
    steps = example("01")
    [(message, hitl)] = hitl_objects(steps)
    jobs = steps[1]["response"]["body"]["data"]["jobs"]
    items = [{"id": job["id"], "title": job["title"]} for job in jobs]
    case = await opened(served, message, {**hitl, "context": {**hitl["context"], "items": items}})
    polls = [step["response"]["body"] for step in steps[3:]]
    assert [poll["status"] for poll in polls] == ["pending", "opened", "completed"]
    assert (await case.poll())["status"] == "pending"
    assert items[1]["title"] in (await case.visit()).text
    assert (await case.poll())["status"] == "opened"
    chosen = polls[-1]["result"]["data"]["selected_ids"]
    places = [str(place) for place, item in enumerate(items) if item["id"] in chosen]
    assert (await case.form(selected=places)).status_code == 303
    done = await case.poll()
    assert done["status"] == "completed"
    assert done["result"] == {"action": "select", "data": {"selected": chosen}}
    assert polls[-1].keys() - done.keys() == {"responded_by", "expires_at"}  # nobody logged in; it is over


@needs_published
async def test_content_review_in_two_rounds(served: Served) -> None:
    steps = example("03")
    rounds = hitl_objects(steps)
    assert len(rounds) == 2
    first = await opened(served, *rounds[0])
    polled = [
        step["response"]["body"] for step in steps if "status" in step.get("response", {}).get("body", {})
    ]
    wanted = next(body for body in polled if body.get("result", {}).get("action") == "edit")
    feedback = "\n".join(wanted["result"]["data"]["edit_instructions"])
    assert (await first.form(action="edit", feedback=feedback)).status_code == 303
    done = await first.poll()
    assert done["result"] == {"action": "edit", "data": {"feedback": feedback}}
    assert "next_case_id" not in done
    message, hitl = rounds[1]
    asked = {name: hitl[name] for name in REQUEST if name in hitl}
    second = await first.agent.open(**asked, message=message, previous_case_id=first.case_id)
    assert second.hitl["previous_case_id"] == first.case_id
    assert (await first.poll())["next_case_id"] == second.case_id
    assert (await second.form(action="approve")).status_code == 303
    assert (await second.poll())["result"]["action"] == "approve"


@needs_published
async def test_confirmation_gate(served: Served) -> None:
    steps = example("05")
    [(message, hitl)] = hitl_objects(steps)
    case = await opened(served, message, hitl)
    page = (await case.visit()).text
    wanted = steps[-1]["response"]["body"]["result"]["data"]["confirmed_items"]
    for item in hitl["context"]["items_to_confirm"]:
        assert item["label"].partition(" ")[0] in page
    assert (await case.say("confirm", {"confirmed_items": wanted})).status_code == 200
    assert (await case.poll())["result"] == {"action": "confirm", "data": {"confirmed_items": wanted}}


@needs_published
async def test_discovery_has_what_the_example_has(served: Served) -> None:
    [file] = (PUBLISHED / "examples").glob("07-*.json")
    text = file.read_text()
    told = (await served.http.get("/.well-known/hitl.json")).json()["hitl_protocol"]
    for name in ("spec_version", "service", "capabilities", "endpoints", "authentication", "rate_limits"):
        assert f'"{name}"' in text
        assert name in told


@needs_published
@pytest.mark.parametrize("name", ["09", "11"])
async def test_inline_submit(served: Served, name: str) -> None:
    steps = example(name)
    [(message, hitl)] = hitl_objects(steps)
    case = await opened(served, message, hitl)
    [press] = [step for step in steps if "/submit" in step.get("request", {}).get("url", "")]
    if name == "11":
        assert (await case.press("edit", {"feedback": "no"})).json()["error"] == "action_not_inline"
    sent = press["request"]["body"]
    headers = {"Authorization": f"Bearer {case.hitl['submit_token']}"}
    answer = await served.http.post(case.hitl["submit_url"], json=sent, headers=headers)
    assert answer.status_code == press["response"]["status"] == 200
    assert answer.json().keys() == press["response"]["body"].keys()
    done = await case.poll()
    assert done["result"] == {"action": sent["action"], "data": {}}
    assert done["submission_context"]["submitted_by"] == sent["submitted_by"]


@needs_published
async def test_step_up_verification(served: Served) -> None:
    steps = example("15")
    [(message, hitl)] = hitl_objects(steps)
    case = await opened(served, message, hitl)
    [tried] = [step for step in steps if "alternative_request" in step]
    headers = {"Authorization": f"Bearer {case.hitl['submit_token']}"}
    refused = await served.http.post(
        case.hitl["submit_url"], json=tried["alternative_request"]["body"], headers=headers
    )
    expected = tried["alternative_response"]
    assert refused.status_code == expected["status"] == 403
    assert refused.json().keys() == expected["body"].keys()
    assert refused.json()["error"] == expected["body"]["error"]
    assert (await case.poll())["status"] == "pending"
    assert (await case.form(action="confirm")).status_code == 303  # the page is not what the step-up is for
    assert (await case.poll())["submission_context"]["mode"] == "browser_submit"


@pytest.mark.parametrize("end", ["answer", "cancel"])
async def test_an_agent_is_called_back_with_a_signature(served: Served, end: str) -> None:
    async with receiving() as receiver:
        agent = await served.agent()
        case = await agent.open(hitl_callback_url=f"http://127.0.0.1:{receiver.port}/hook")
        assert case.hitl["callback_url"].endswith("/hook")
        await case.visit()
        await (case.cancel() if end == "cancel" else case.say("approve"))

        async def called() -> bool:
            return bool(receiver.requests)

        await until(called)
        line, headers, raw = receiver.last
        assert line.startswith("POST /hook ")
        body = fits(Callback, json.loads(raw))
        secret = callback_secret(SECRET, agent.key_id)
        verify_callback(raw, headers[SIGNATURE_HEADER.lower()], secret)
        polled = await case.poll()
        assert body["event"] == {"answer": "review.completed", "cancel": "review.cancelled"}[end]
        assert polled.items() <= body.items()
        assert len(receiver.requests) == 1


async def test_a_form_in_steps_with_a_condition(served: Served) -> None:
    agent = await served.agent()
    pet = {"key": "pet", "label": "A pet?", "type": "boolean"}
    name = {
        "key": "name",
        "label": "Its name",
        "type": "text",
        "required": True,
        "conditional": {"field": "pet", "operator": "eq", "value": True},
    }
    form = {"steps": [{"title": "One", "fields": [pet]}, {"title": "Two", "fields": [name]}]}
    case = await agent.open("input", context={"form": form})
    stream = events(served.http, case.hitl["events_url"], agent.headers)
    hidden = await case.say("submit", {"pet": False, "name": "Rex"})
    assert hidden.status_code == 422
    assert "data.name" in hidden.json()["faults"]
    missing = await case.say("submit", {"pet": True})
    assert missing.status_code == 422
    assert (await case.form(step="1", intent="next", shown=["pet"], **{"f.pet": "true"})).status_code == 200
    told = await anext(stream)
    assert told.event == "review.in_progress"
    assert told.data["progress"]["current_step"] == 2
    assert told.data["progress"]["total_fields"] == 2
    assert (await case.form(step="2", shown=["name"], **{"f.name": "Rex"})).status_code == 303
    assert (await case.poll())["result"]["data"] == {"pet": True, "name": "Rex"}
    assert [event.event async for event in stream] == ["review.completed"]
