"""Who answers on the page: by the host's login, or by a code that was sent by e-mail; else nobody can tell."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request

from assent.errors import EmailCodeRefused, NotIdentified
from assent.messages import JsonObject
from assent.protocol import RespondedBy
from assent.service.case import Case
from assent.service.cases import Respondent
from assent.service.email_codes import EmailCodes

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
    login = None if identify is None else await _login(case, request, identify)
    known_by = None if login is None else "login"
    if case.verify_email is not None:
        if codes is None:
            why = "This service can send no e-mail just now. Tell whoever runs it."
            raise EmailCodeRefused(case.case_id, "verification_failed", why)
        email = await codes.check(case, email_code)
        # A code may be handed on: the name of another's login does not belong to this address.
        same = login is not None and str(login.get("email", "")).lower() == email.lower()
        login, known_by = {**(login or {} if same else {}), "email": email}, "email_code"
    by = None if login is None else str(login.get("email") or login.get("name"))
    return Respondent(
        by=by, via="web", responded_by=login, context={"mode": "browser_submit"}, known_by=known_by
    )


async def _login(case: Case, request: Request, identify: Identify) -> JsonObject | None:
    """Whom the host knows this browser to be. Where it fails, nobody answers."""
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
