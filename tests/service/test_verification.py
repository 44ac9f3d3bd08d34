"""Proofs that a person decided: bound, fresh, used once, looked at in time, and kept nowhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kit.running_service import HandClock, Opened, Served, serving

from askfirst.protocol import VerificationEvidence
from askfirst.service import verification
from askfirst.service.case import Case
from askfirst.service.verification import Finding

pytestmark = pytest.mark.anyio
PROOF = "raw-proof-of-a-person-0815"


@dataclass
class Provider:
    """Finds a proof as good as it is told to."""

    clock: HandClock
    assurance: str = "high"
    age: float = 0
    seen: list[str] = field(default_factory=list)
    error: Exception | None = None
    never: bool = False
    good: bool = True

    async def verify(self, evidence: VerificationEvidence, case: Case, action: str) -> Finding | None:
        self.seen.append(case.case_id)
        if self.error is not None:
            raise self.error
        if self.never:
            await asyncio.Event().wait()
        made_at = self.clock.now() - self.age
        return Finding(assurance=self.assurance, made_at=made_at) if self.good else None


@dataclass
class Rig:
    served: Served
    provider: Provider
    clock: HandClock
    folder: Path

    async def open(self, **policy: Any) -> Opened:
        return await (await self.served.agent()).open(
            "confirmation", verification_policy={**POLICY, **policy}, timeout="1h"
        )


POLICY: dict[str, Any] = {
    "mode": "required",
    "required_for": ["inline_submit"],
    "requirements": {
        "any_of": [
            {"all_of": [{"proof_type": "proof_of_human", "provider": "world", "min_assurance": "medium"}]}
        ]
    },
    "binding": {
        "case_id": True,
        "action": True,
        "challenge": "c-1",
        "freshness_seconds": 60,
        "single_use": True,
    },
    "fallback": {"on_missing": "browser_review", "on_invalid": "browser_review"},
}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = HandClock()
    provider = Provider(clock)
    url = f"sqlite:///{tmp_path}/cases.db"
    async with serving(url, clock=clock, inline=True, verification={"world": provider}) as served:
        yield Rig(served, provider, clock, tmp_path)


def evidence(case: Opened, proof: str = PROOF, **changes: Any) -> list[dict[str, Any]]:
    binding = {"case_id": case.case_id, "action": "confirm", "challenge": "c-1", **changes.pop("binding", {})}
    return [
        {
            "proof_type": "proof_of_human",
            "provider": "world",
            "format": "jwt",
            "presentation": {"proof": proof},
            "binding": {name: value for name, value in binding.items() if value is not None},
            **changes,
        }
    ]


async def test_a_good_proof_is_told_of_but_not_shown(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "askfirst")
    case = await rig.open()
    assert (await case.press("confirm", verification_evidence=evidence(case))).status_code == 200
    polled = await case.poll()
    result = polled["submission_context"]["verification_result"]
    assert result["satisfied"] is True
    [verified] = result["verified_evidence"]
    assert (
        verified.items()
        >= {
            "proof_type": "proof_of_human",
            "provider": "world",
            "assurance_level": "high",
            "bound_to_case": True,
            "bound_to_action": True,
            "fresh": True,
            "single_use_enforced": True,
        }.items()
    )
    kept = b"".join(path.read_bytes() for path in rig.folder.iterdir())
    assert PROOF not in str(polled)
    assert PROOF.encode() not in kept
    assert PROOF not in caplog.text


REFUSED: dict[str, dict[str, Any]] = {
    "another case": {"binding": {"case_id": "review_other"}},
    "no case": {"binding": {"case_id": None}},
    "another action": {"binding": {"action": "cancel"}},
    "another challenge": {"binding": {"challenge": "c-2"}},
    "another provider": {"provider": "moon"},
    "another kind": {"proof_type": "x-badge"},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
async def test_a_proof_for_something_else_is_refused(rig: Rig, changes: dict[str, Any]) -> None:
    case = await rig.open()
    refused = await case.press("confirm", verification_evidence=evidence(case, **changes))
    assert refused.status_code == 403
    assert refused.json()["error"] == "verification_failed"
    assert (await case.poll())["status"] == "pending"
    assert (await case.press("confirm", verification_evidence=evidence(case))).status_code == 200


FAILING: dict[str, dict[str, Any]] = {
    "no good": {"good": False},
    "too weak": {"assurance": "low"},
    "no such level": {"assurance": "extreme"},
    "too old": {"age": 61},
    "from the future": {"age": -5},
    "broken": {"error": RuntimeError(PROOF)},
}


@pytest.mark.parametrize("how", FAILING.values(), ids=FAILING)
async def test_a_provider_that_does_not_vouch_refuses(
    rig: Rig, how: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    case = await rig.open()
    for name, value in how.items():
        setattr(rig.provider, name, value)
    refused = await case.press("confirm", verification_evidence=evidence(case))
    assert (refused.status_code, refused.json()["error"]) == (403, "verification_failed")
    assert rig.provider.seen == [case.case_id]
    assert (await case.poll())["status"] == "pending"
    assert PROOF not in caplog.text


async def test_a_provider_that_takes_too_long_refuses(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "PROVIDER_SECONDS", 0.05)
    rig.provider.never = True
    case = await rig.open()
    refused = await case.press("confirm", verification_evidence=evidence(case))
    assert refused.json()["error"] == "verification_failed"


async def test_a_proof_counts_once(rig: Rig) -> None:
    first, second = await rig.open(), await rig.open()
    assert (await first.press("confirm", verification_evidence=evidence(first))).status_code == 200
    again = await second.press("confirm", verification_evidence=evidence(second))
    assert again.json()["error"] == "verification_failed"
    new = await second.press("confirm", verification_evidence=evidence(second, "another"))
    assert new.status_code == 200


async def test_a_proof_that_races_with_itself_counts_once(rig: Rig) -> None:
    cases = [await rig.open() for _ in range(8)]
    answers = await asyncio.gather(
        *(case.press("confirm", verification_evidence=evidence(case)) for case in cases)
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [403] * 7


async def test_no_proof_is_used_up_for_an_answer_that_cannot_be(rig: Rig) -> None:
    case = await rig.open()
    refused = await case.press("confirm", {"note": 1}, verification_evidence=evidence(case))
    assert refused.status_code == 422
    assert rig.provider.seen == []
    assert (await case.press("confirm", verification_evidence=evidence(case))).status_code == 200
    late = await case.press("confirm", verification_evidence=evidence(case, "new"))
    assert late.status_code == 409
    assert rig.provider.seen == [case.case_id]


async def test_a_challenge_ends_when_the_policy_says(rig: Rig) -> None:
    until = datetime.fromtimestamp(rig.clock.now() + 30, UTC).isoformat()
    case = await rig.open(binding={**POLICY["binding"], "expires_at": until})
    rig.clock.turn(31)
    refused = await case.press("confirm", verification_evidence=evidence(case))
    assert refused.json()["error"] == "verification_failed"


async def test_a_proof_in_a_format_that_is_not_asked_for_is_refused(rig: Rig) -> None:
    needed = {"proof_type": "proof_of_human", "presentation_formats": ["zkp"]}
    case = await rig.open(requirements={"any_of": [{"all_of": [needed]}]})
    refused = await case.press("confirm", verification_evidence=evidence(case))
    assert refused.json()["error"] == "verification_failed"
    new = evidence(case, "another", format="zkp")
    assert (await case.press("confirm", verification_evidence=new)).status_code == 200


async def test_all_of_one_option_is_needed(rig: Rig) -> None:
    human, badge = {"proof_type": "proof_of_human"}, {"proof_type": "x-badge"}
    case = await rig.open(requirements={"any_of": [{"all_of": [human, badge]}]})
    refused = await case.press("confirm", verification_evidence=evidence(case, "one"))
    assert refused.json()["error"] == "verification_failed"
    both = [*evidence(case, "two"), *evidence(case, "three", proof_type="x-badge")]
    assert (await case.press("confirm", verification_evidence=both)).status_code == 200


async def test_too_many_proofs_are_not_even_looked_at(rig: Rig) -> None:
    case = await rig.open()
    many = [each for number in range(11) for each in evidence(case, f"p{number}")]
    refused = await case.press("confirm", verification_evidence=many)
    assert refused.status_code == 422
    assert rig.provider.seen == []


async def test_without_a_proof_the_person_goes_to_the_page(rig: Rig) -> None:
    case = await rig.open()
    refused = await case.press("confirm")
    assert (refused.status_code, refused.json()["error"]) == (403, "verification_required")
    assert refused.json()["review_url"].endswith(case.case_id)
    assert (await case.say("confirm")).status_code == 200


async def test_a_page_that_needs_a_proof_takes_none_without(rig: Rig) -> None:
    """By form and by JSON alike: the page is no way around it."""
    case = await rig.open(required_for=["browser_submit"])
    assert (await case.form(action="confirm")).status_code == 403
    refused = await case.say("confirm")
    assert (refused.status_code, refused.json()["error"]) == (403, "verification_required")
    assert (await case.poll())["status"] == "pending"
    assert (await case.press("confirm")).status_code == 200


async def test_an_optional_proof_is_told_of_either_way(rig: Rig) -> None:
    without, given = await rig.open(mode="optional"), await rig.open(mode="optional")
    assert (await without.press("confirm")).status_code == 200
    result = (await without.poll())["submission_context"]["verification_result"]
    assert result == {"satisfied": False, "verified_evidence": [], "missing_requirements": ["proof_of_human"]}
    assert (await given.press("confirm", verification_evidence=evidence(given))).status_code == 200
    assert (await given.poll())["submission_context"]["verification_result"]["satisfied"] is True
