"""Signed results: the client checks what was decided, by whom, and what was shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from kit.scripted_server import Said, Scripted, scripted

from askfirst.client import HitlClient
from askfirst.delivery.base import Notice
from askfirst.errors import InvalidOutcome
from askfirst.protocol import (
    Result,
    SigningKey,
    jwks_document,
    respondent_digest,
    shown_digest,
    sign_result,
)

pytestmark = pytest.mark.anyio

QUICK: dict[str, Any] = {"poll_interval": 0.02, "min_poll_interval": 0.02}
KEY = SigningKey.generate()
BY, CONTEXT = {"name": "Alex"}, {"cents": 4900}


async def nobody(notice: Notice) -> None:
    """Who reads nothing."""


def answered(service: Scripted, **changes: Any) -> dict[str, Any]:
    """A signed poll answer, then changed."""
    signed = sign_result(
        Result(action="approve", data={"feedback": "fine"}),
        case_id="review_1",
        key=KEY,
        signed_at=datetime.now(UTC),
        signer=f"{service.url}/keys",
        who=respondent_digest(BY, None),
        shown=shown_digest(type="approval", prompt="Please decide.", context=CONTEXT),
    ).wire()
    said: dict[str, Any] = {
        "status": "completed",
        "case_id": "review_1",
        "responded_by": BY,
        "result": signed,
    }
    for name, value in changes.items():
        if name in ("action", "data", "signature"):
            said["result"][name] = value
        else:
            said[name] = value
    return said


async def outcome(service: Scripted, said: dict[str, Any], context: Any = CONTEXT, **options: Any) -> Any:
    service.script["/work"] = [Said(202, service.offer(context=context))]
    service.script["/reviews/review_1/status"] = [Said(200, said)]
    service.script["/keys"] = [Said(200, jwks_document([KEY]))]
    async with HitlClient(deliver=nobody, token="the-token", **QUICK, **options) as client:  # noqa: S106
        return await client.request("POST", f"{service.url}/work", json={})


@pytest.mark.parametrize("verify", [None, True, jwks_document([KEY])], ids=["default", "always", "own keys"])
async def test_what_is_signed_is_checked(verify: Any) -> None:
    async with scripted() as service:
        ended = await outcome(service, answered(service), verify_results=verify)
        assert (ended.action, ended.is_verified) == ("approve", True)
        asked = service.of("/keys")
        assert len(asked) == (0 if isinstance(verify, dict) else 1)
        assert all("authorization" not in each.headers for each in asked)  # public keys need no token


@pytest.mark.attack("L3", "signed results changed on their way")
@pytest.mark.parametrize(
    "changes", [{"action": "reject"}, {"data": {"feedback": "no"}}, {"responded_by": {"name": "Eve"}}]
)
@pytest.mark.parametrize("verify", [None, True])
async def test_what_was_changed_is_refused(changes: dict[str, Any], verify: Any) -> None:
    async with scripted() as service:
        with pytest.raises(InvalidOutcome, match=r"result\.signature"):
            await outcome(service, answered(service, **changes), verify_results=verify)


@pytest.mark.attack("L3", "signed results changed on their way")
async def test_another_question_than_was_asked_is_refused() -> None:
    async with scripted() as service:
        with pytest.raises(InvalidOutcome, match="shown something else"):
            await outcome(service, answered(service), context={"cents": 4_900_000})


@pytest.mark.attack("L3", "signed results changed on their way")
async def test_where_a_signature_is_required_none_is_not_enough() -> None:
    async with scripted() as service:
        unsigned = {"status": "completed", "result": {"action": "approve"}}
        with pytest.raises(InvalidOutcome, match=r"result\.signature"):
            await outcome(service, unsigned, verify_results=True)
        with pytest.raises(InvalidOutcome, match=r"result\.signature"):
            await outcome(service, answered(service), verify_results=jwks_document([SigningKey.generate()]))


async def test_other_ways_to_sign_harm_nothing_by_default() -> None:
    async with scripted() as service:
        odd = {"algorithm": "RS256", "value": "AAAA", "signer": f"{service.url}/keys"}
        for signature in (odd, "signed", {"value": 7}):
            ended = await outcome(service, answered(service, signature=signature))
            assert (ended.action, ended.is_verified) == ("approve", False)
        ended = await outcome(service, answered(service, action="reject"), verify_results=False)
        assert (ended.action, ended.is_verified) == ("reject", False)
