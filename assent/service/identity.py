"""Who answers: by the host's login, or by a code that was sent by e-mail; else nobody can tell."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request

from assent.errors import EmailCodeRefused, InvalidReview, NotIdentified
from assent.messages import JsonObject
from assent.protocol import RespondedBy, SubmitRequest
from assent.service.case import Case
from assent.service.email_codes import EmailCodes
from assent.service.person import Respondent
from assent.service.spending import address_of

logger = logging.getLogger("assent.service")
MOST_CHARACTERS = 255

Identify = Callable[[Request], Awaitable[Mapping[str, str] | None]]
"""From a browser's request to the ``name`` and ``email`` of whoever is signed in, or None for nobody."""


async def respondent(
    case: Case, request: Request, identify: Identify | None, codes: EmailCodes | None, email_code: str
) -> Respondent:
    """Who answers. Nothing that the form says counts, but for a code that we have sent and that is good.

    Raises `NotIdentified` and `EmailCodeRefused`; what comes after this must not fail for the answer's sake,
    for the code is used up.
    """
    login = await login_of(case, request, identify)
    known_by = None if login is None else "login"
    if case.verify_email is not None:
        if codes is None:
            why = "This service can send no e-mail just now. Tell whoever runs it."
            raise EmailCodeRefused(case.case_id, "verification_failed", why)
        email = await codes.check(case, email_code, address_of(request))
        # A code may be handed on: the name of another's login does not belong to this address.
        same = login is not None and str(login.get("email", "")).lower() == email.lower()
        login, known_by = {**(login or {} if same else {}), "email": email}, "email_code"
    return Respondent(
        by=_named(login), via="web", responded_by=login, context={"mode": "browser_submit"}, known_by=known_by
    )


async def messenger_user(
    case: Case, request: Request, identify: Identify | None, submission: SubmitRequest
) -> Respondent:
    """Who pressed a messenger's button. What the request says of that is a claim: whoever has the submit token
    may write there what they like. Only `identify` tells who it was. Raises `NotIdentified`.
    """
    user, via = submission.submitted_by, submission.submitted_via
    account = f"{user.platform}:{user.platform_user_id}"
    for name, text in (("submitted_by", account), ("submitted_via", via)):
        if len(text) > MOST_CHARACTERS or not text.isprintable() or text.endswith(" "):
            raise InvalidReview({name: f"is printable and has at most {MOST_CHARACTERS} characters"})
    login = await login_of(case, request, identify)
    claimed: JsonObject = {"account": account}
    if user.display_name:
        claimed["name"] = user.display_name[:MOST_CHARACTERS]
    return Respondent(
        by=_named(login),
        via=via,
        responded_by=login,
        context={"mode": "inline_submit", "submitted_via": via, "submitted_by": user.wire()},
        known_by=None if login is None else "login",
        claimed_by=claimed,
        surface="inline",
    )


def _named(login: JsonObject | None) -> str | None:
    return None if login is None else str(login.get("email") or login.get("name"))


async def login_of(case: Case, request: Request, identify: Identify | None) -> JsonObject | None:
    """Whom the host knows the sender of a request to be. Where it fails, nobody answers: `NotIdentified`."""
    if identify is None:
        return None
    try:
        given = await identify(request)
        return None if given is None else _checked(given)
    except Exception as error:
        logger.error("identify failed for %s: %s", case.case_id, type(error).__name__)
        raise NotIdentified(case.case_id) from error


def _checked(given: Mapping[str, str]) -> JsonObject:
    """What the protocol can tell of somebody; raises `ValueError` for anything else."""
    said = RespondedBy.read(dict(given)).wire()
    if not said or not all(_fits(str(text)) for text in said.values()):
        raise ValueError(f"a name or an address has 1 to {MOST_CHARACTERS} printable characters")
    return said


def _fits(text: str) -> bool:
    return 0 < len(text) <= MOST_CHARACTERS and text.isprintable() and text == text.strip()
