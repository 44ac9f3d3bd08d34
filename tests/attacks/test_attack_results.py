"""Signed results: whoever alters who answered, or what they were shown, is found out."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from askfirst.errors import InvalidProtocolObject, InvalidSignature
from askfirst.protocol import (
    PollResponse,
    Result,
    SignedFacts,
    SigningKey,
    jwks_document,
    respondent_digest,
    shown_digest,
    sign_result,
    verify_answer,
)

AT = datetime(2026, 2, 22, 10, 0, tzinfo=UTC)
SIGNER = "https://a.example/.well-known/jwks.json"
RESULT = Result(action="approve", data={"note": "ö", "n": [1, 2.5, None]})
BY = {"name": "Ann", "email": "ann@example.com"}
BUTTON = {"platform": "telegram", "platform_user_id": "7", "display_name": "Ann"}
INLINE = {"mode": "inline_submit", "submitted_via": "telegram_inline_button", "submitted_by": BUTTON}
ASKED: dict[str, Any] = {"type": "approval", "prompt": "Pay?", "context": {"to": "Ann", "cents": 4900}}


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey.generate()


def answer_of(key: SigningKey, *, covers_who: bool = True, covers_shown: bool = True) -> dict[str, Any]:
    """A poll answer that was signed."""
    result = sign_result(
        RESULT,
        case_id="c1",
        key=key,
        signed_at=AT,
        signer=SIGNER,
        who=respondent_digest(BY, INLINE) if covers_who else None,
        shown=shown_digest(**ASKED) if covers_shown else None,
    )
    return {
        "status": "completed",
        "case_id": "c1",
        "completed_at": "2026-02-22T10:00:00Z",
        "result": result.wire(),
        "responded_by": BY,
        "submission_context": INLINE,
    }


def verified(key: SigningKey, answer: Any, shown: str | None = None) -> SignedFacts:
    return verify_answer(PollResponse.read(answer), case_id="c1", jwks=jwks_document([key]), shown=shown)


def test_an_answer_is_signed_with_who_gave_it_and_what_they_saw(key: SigningKey) -> None:
    facts = verified(key, answer_of(key), shown_digest(**ASKED))
    assert facts == (respondent_digest(BY, INLINE), shown_digest(**ASKED))
    claimed = PollResponse.read(answer_of(key)).claimed_by
    assert claimed is not None
    assert claimed.display_name == "Ann"


@pytest.mark.attack("L3", "signed results altered")
@pytest.mark.parametrize(
    "change",
    [
        {"responded_by": {"name": "Bea", "email": "ann@example.com"}},
        {"responded_by": {"name": "Ann", "email": "bea@example.com"}},
        {"responded_by": None},
        {"submission_context": None},
        {"submission_context": {**INLINE, "submitted_by": {**BUTTON, "display_name": "The CFO"}}},
        {"submission_context": {**INLINE, "submitted_by": {**BUTTON, "platform_user_id": "8"}}},
    ],
)
def test_another_respondent_is_found(key: SigningKey, change: dict[str, Any]) -> None:
    altered = {name: value for name, value in {**answer_of(key), **change}.items() if value is not None}
    with pytest.raises(InvalidSignature, match="another person"):
        verified(key, altered)


@pytest.mark.attack("L3", "signed results altered")
@pytest.mark.parametrize(
    "change",
    [{"type": "confirmation"}, {"prompt": "Pay more?"}, {"context": {"to": "Eve"}}, {"context": None}],
)
def test_something_else_that_was_shown_is_found(key: SigningKey, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidSignature, match="something else"):
        verified(key, answer_of(key), shown_digest(**{**ASKED, **change}))


@pytest.mark.attack("L3", "signed results altered")
def test_what_a_signature_does_not_cover_is_not_believed(key: SigningKey) -> None:
    with pytest.raises(InvalidSignature, match="who answered"):
        verified(key, answer_of(key, covers_who=False))
    with pytest.raises(InvalidSignature, match="was shown"):
        verified(key, answer_of(key, covers_shown=False), shown_digest(**ASKED))
    with pytest.raises(InvalidSignature, match="no result"):
        verified(key, {"status": "pending", "case_id": "c1"})
    stripped = answer_of(key)
    _, _, mark = stripped["result"]["signature"]["value"].split(".")
    header = base64.urlsafe_b64encode(json.dumps({"alg": "ES256", "kid": key.key_id}).encode()).decode()
    stripped["result"]["signature"]["value"] = f"{header.rstrip('=')}..{mark}"
    with pytest.raises(InvalidSignature, match="does not fit"):
        verified(key, stripped)


def test_large_numbers_that_were_shown_are_part_of_the_digest() -> None:
    numbers = [2**60, 2**60 + 1]
    assert len({shown_digest(type="input", prompt="?", context={"n": each}) for each in numbers}) == 2
    with pytest.raises(InvalidProtocolObject, match="cannot be signed"):
        shown_digest(type="input", prompt="?", context={"n": float("nan")})
