"""Button presses in messengers: every press reaches its case through `Presses.decide`."""

from __future__ import annotations

import logging

from askfirst.delivery.base import CLOSED, Press, PressAnswer
from askfirst.errors import (
    CaseClosed,
    CaseExpired,
    CaseNotFound,
    InlineRefused,
    InvalidReview,
    NotAuthorized,
)
from askfirst.service.cases import Cases
from askfirst.service.notices import ended_of, message_digest
from askfirst.service.places import Place

logger = logging.getLogger("askfirst.service")
CHANGED = "What is asked has changed since this message. Open the page."
ON_PAGE = "This can only be decided on the page."


class Presses:
    """Answers cases with the buttons that people press in a messenger, through `Cases.answer` like every surface.

    `Cases.answer` asks the place's list (`Place.deciders`) and the host's ``authorize``, and writes a refusal to the
    audit trail. A press counts only if the case still has the digest that its message showed (`Press.shown`), and
    only while the case is open.
    """

    def __init__(self, cases: Cases) -> None:
        self._cases = cases

    async def decide(self, place: Place, press: Press) -> PressAnswer:
        """Decide a case, and return the reply to the person who pressed. Raises only errors of the store."""
        try:
            case = await self._cases.get(press.case_id)
        except CaseNotFound:
            return PressAnswer("closed", CLOSED)
        if case.is_final:
            return PressAnswer("closed", ended_of(case).text)
        if press.shown != message_digest(case):
            return PressAnswer("to_page", CHANGED)
        who = place.respondent(press)
        try:
            await self._cases.check(case, press.action, press.data, inline=True)
            if case.verification_policy is not None and who.known_by is not None:
                return PressAnswer("to_page", ON_PAGE)
            done = await self._cases.answer(case, press.action, press.data, who)
        except NotAuthorized as error:
            return PressAnswer("refused", str(error))
        except InlineRefused as error:
            return PressAnswer("to_page", str(error))
        except (CaseClosed, CaseExpired, CaseNotFound):
            return PressAnswer("closed", CLOSED)
        except InvalidReview as error:
            return PressAnswer("to_page", f"This answer does not fit: {error}")
        return PressAnswer("done", ended_of(done).text)
