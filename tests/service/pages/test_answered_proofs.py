"""Proofs that are shown on the page: asked for in a provider's words, posted with the answer, used once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kit.page_text import Page
from kit.proof_badges import POLICY, Badges
from kit.running_service import HandClock, Opened, Served, serving
from kit.smtp_mailbox import Mailbox, mailbox

from askfirst.service import verification

pytestmark = pytest.mark.anyio


class Silent:
    """A provider that has nothing to ask on a page."""

    async def verify(self, *_: Any) -> None:
        return None


@dataclass
class Rig:
    served: Served
    badges: Badges
    passes: Badges
    clock: HandClock
    box: Mailbox
    folder: Path

    async def open(self, kind: str = "confirmation", **changes: Any) -> Opened:
        fields = {name: changes.pop(name) for name in ("context", "verify_email") if name in changes}
        policy = {**POLICY, **changes}
        return await (await self.served.agent()).open(kind, verification_policy=policy, **fields)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = HandClock()
    badges, passes = Badges(clock), Badges(clock, url=None)
    providers = {"badge": badges, "pass": passes, "silent": Silent()}
    url = f"sqlite:///{tmp_path}/cases.db"
    async with (
        mailbox() as box,
        serving(url, clock=clock, verification=providers, smtp_url=box.url) as served,
    ):
        yield Rig(served, badges, passes, clock, box, tmp_path)


def any_of(*options: list[tuple[str, str | None]]) -> dict[str, Any]:
    def needed(kind: str, provider: str | None) -> dict[str, Any]:
        return {"proof_type": kind} | ({} if provider is None else {"provider": provider})

    return {"any_of": [{"all_of": [needed(*each) for each in option]} for option in options]}


HUMAN = "proof_of_human"


async def test_the_page_asks_in_the_providers_words_and_they_are_inert(rig: Rig) -> None:
    page = await (await rig.open()).visit()
    (field,) = Page(page.text).all("textarea", id="proof.0")
    assert field.attrs["name"] == "proof.0"
    assert "Code from your badge" in page.text
    assert "Hold it to the case &lt;b&gt;c-1&lt;/b&gt;." in page.text
    (link,) = Page(page.text).all("a", href="https://badges.example/new")
    assert link.attrs["rel"] == "noreferrer noopener"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "Your answer counts only with a proof." in page.text


async def test_refused_without_and_accepted_with(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "askfirst")
    case = await rig.open()
    missing = await case.form(action="confirm", note="my note")
    assert missing.status_code == 403
    assert "A proof that a person decided is needed." in missing.text
    assert "my note" in missing.text
    proof = rig.badges.make(case.case_id, "confirm")
    for wrong in (
        "nonsense",
        rig.badges.make(case.case_id, "cancel"),
        rig.badges.make("review_x", "confirm"),
    ):
        refused = await case.form(action="confirm", **{"proof.0": wrong})
        assert refused.status_code == 403
        assert "This proof was not accepted." in refused.text
        assert wrong not in refused.text
        assert (await case.poll())["status"] in ("pending", "opened")
    assert (await case.form(action="confirm", **{"proof.0": f"  {proof}\r\n"})).status_code == 303
    bound = rig.badges.seen[-1].binding
    assert (bound.case_id, bound.action, bound.challenge) == (case.case_id, "confirm", "c-1")
    context = (await case.poll())["submission_context"]
    assert context["mode"] == "browser_submit"
    assert context["verification_result"]["satisfied"] is True
    assert context["verification_result"]["verified_evidence"][0]["single_use_enforced"] is True
    kept = b"".join(path.read_bytes() for path in rig.folder.iterdir())
    for place in (kept, caplog.text.encode(), str(await case.poll()).encode()):
        assert proof.encode() not in place


async def test_a_proof_counts_once_and_while_it_is_fresh(rig: Rig) -> None:
    rig.badges.good_anywhere = True
    first, second = await rig.open(), await rig.open()
    proof = rig.badges.make("", "")
    assert (await first.form(action="confirm", **{"proof.0": proof})).status_code == 303
    assert (await second.form(action="confirm", **{"proof.0": proof})).status_code == 403
    fresh = rig.badges.make("", "", 2)
    rig.clock.turn(61)
    assert (await second.form(action="confirm", **{"proof.0": fresh})).status_code == 403
    assert (await second.form(action="confirm", **{"proof.0": rig.badges.make("", "", 3)})).status_code == 303


async def test_json_brings_evidence_as_a_button_does(rig: Rig) -> None:
    case = await rig.open()
    respond = f"/review/{case.case_id}/respond?token={case.token}"
    evidence = {
        "proof_type": HUMAN,
        "provider": "badge",
        "format": "provider_opaque",
        "presentation": rig.badges.make(case.case_id, "confirm"),
        "binding": {"case_id": case.case_id, "action": "confirm", "challenge": "c-2"},
    }
    for bad in ([{}], "text", 3, {"a": 1}):
        answer = await case.http.post(respond, json={"action": "confirm", "verification_evidence": bad})
        assert answer.status_code == 422
    said = {"action": "confirm", "verification_evidence": [evidence]}
    answer = await case.http.post(respond, json=said)
    assert (answer.status_code, answer.json()["error"]) == (403, "verification_failed")
    evidence["binding"] = {**evidence["binding"], "challenge": "c-1"}
    assert (await case.http.post(respond, json=said)).status_code == 200


async def test_every_form_that_decides_asks(rig: Rig) -> None:
    form = {"form": {"fields": [{"key": "a", "label": "A", "type": "text"}]}}
    steps = {"title": "One", "fields": [{"key": "a", "label": "A", "type": "text"}]}
    wizard = {"form": {"steps": [steps, {"title": "Two", "fields": []}]}}
    for kind, context in (
        ("approval", {}),
        ("selection", {}),
        ("confirmation", {}),
        ("escalation", {}),
        ("input", {}),
        ("input", form),
    ):
        case = await rig.open(kind, context=context)
        assert 'name="proof.0"' in (await case.visit()).text, kind
    case = await rig.open("input", context=wizard)
    assert 'name="proof.0"' not in (await case.visit()).text
    last = await case.form(step="1", intent="next", shown="a", **{"f.a": "x"})
    assert 'name="proof.0"' in last.text
    proof = rig.badges.make(case.case_id, "submit")
    assert (await case.form(step="2", intent="answer", **{"proof.0": proof})).status_code == 303
    edit = await rig.open("escalation", context={"params": {"a": 1}})
    preview = await edit.form(action="retry", intent="preview", **{"arg.0": "2"})
    assert 'name="proof.0"' in preview.text


async def test_which_proofs_are_enough(rig: Rig) -> None:
    both = await rig.open(requirements=any_of([(HUMAN, "badge"), ("x-seal", "pass")]))
    page = await both.visit()
    assert 'name="proof.1"' in page.text
    assert "One of these is enough" not in page.text
    one = {"proof.0": rig.badges.make(both.case_id, "confirm")}
    assert (await both.form(action="confirm", **one)).status_code == 403
    two = {
        "proof.0": rig.badges.make(both.case_id, "confirm", 2),
        "proof.1": rig.passes.make(both.case_id, "confirm"),
    }
    assert (await both.form(action="confirm", **two)).status_code == 303
    either = await rig.open(requirements=any_of([(HUMAN, None)]))
    assert "One of these is enough" in (await either.visit()).text
    second = {"proof.1": rig.passes.make(either.case_id, "confirm", 3)}
    assert (await either.form(action="confirm", **second)).status_code == 303


async def test_an_optional_proof_may_be_left_out_and_is_told_of_if_not(rig: Rig) -> None:
    without, given = await rig.open(mode="optional"), await rig.open(mode="optional")
    assert "Your answer counts without it, too." in (await without.visit()).text
    assert (await without.form(action="confirm")).status_code == 303
    assert (await without.poll())["submission_context"]["verification_result"]["satisfied"] is False
    proof = rig.badges.make(given.case_id, "confirm")
    assert (await given.form(action="confirm", **{"proof.0": proof})).status_code == 303
    assert (await given.poll())["submission_context"]["verification_result"]["satisfied"] is True


async def test_a_page_that_cannot_ask_says_so_and_takes_no_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "This needs a proof that this page cannot take just now."
    silent = await rig.open(requirements=any_of([(HUMAN, "silent")]))
    unknown = await rig.open(requirements=any_of([(HUMAN, "nobody")]))
    rig.badges.fails = True
    failing = await rig.open()
    for case in (silent, unknown, failing):
        page = await case.visit()
        assert said in page.text
        assert "proof.0" not in page.text
        assert (await case.form(action="confirm", **{"proof.0": "x"})).status_code == 403


async def test_nothing_is_asked_where_it_is_not_needed(rig: Rig) -> None:
    case = await rig.open(required_for=["inline_submit"])
    assert "proof" not in (await case.visit()).text
    assert (await case.form(action="confirm")).status_code == 303


async def test_a_link_that_is_not_https_is_left_out(rig: Rig) -> None:
    rig.badges.url = "javascript:alert(1)"
    page = await (await rig.open()).visit()
    assert "javascript:" not in page.text
    assert "Code from your badge" in page.text


async def test_a_proof_is_not_used_up_for_an_answer_that_cannot_be(rig: Rig) -> None:
    form = {"form": {"fields": [{"key": "a", "label": "A", "type": "text", "required": True}]}}
    case = await rig.open("input", context=form, verify_email="ann@example.com")
    proof = {"proof.0": rig.badges.make(case.case_id, "submit")}
    empty = await case.form(step="1", intent="answer", shown="a", **{"f.a": ""}, **proof)
    assert empty.status_code == 422
    assert proof["proof.0"] in empty.text, "it is good still, so nobody has to make another"
    no_code = await case.form(step="1", intent="answer", shown="a", **{"f.a": "x"}, **proof)
    assert no_code.status_code == 200
    assert "Show that it is you" in no_code.text
    assert proof["proof.0"] in no_code.text, "the step with the code sends it again"
    assert rig.badges.seen == []
    [code] = rig.box.codes
    sent = {"step": "1", "intent": "answer", "shown": "a", "f.a": "x", "email_code": code}
    assert (await case.form(**sent, **proof)).status_code == 303
    polled = await case.poll()
    assert polled["responded_by"] == {"email": "ann@example.com"}
    assert polled["submission_context"]["verification_result"]["satisfied"] is True


async def test_too_many_ways_to_prove_it_are_not_all_listed(rig: Rig) -> None:
    many = any_of([(HUMAN, None)] * 30)
    page = await (await rig.open(requirements=many)).visit()
    assert page.status_code == 200
    assert page.text.count("; or ") < verification.MOST_PROOFS
