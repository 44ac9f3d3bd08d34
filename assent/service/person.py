"""Who answers, and whether they may."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from assent.account import os_account
from assent.errors import NotAuthorized
from assent.messages import JsonObject
from assent.service.case import Case
from assent.store.audit import claimed

REVIEWER = "reviewer"
"""The actor in the audit trail where all that is known is that somebody has a link."""
SUBMIT_TOKEN = "submit token"  # noqa: S105  (a name)
"""The actor where all that is known is that somebody has a case's submit token."""
logger = logging.getLogger("assent.service")

Surface = Literal["page", "inline", "terminal"]
"""Where a person answers: on the page (or as the page does, with JSON), by a messenger's button, in a terminal."""


@dataclass(frozen=True, slots=True)
class Person:
    """Whoever answers, as far as the service knows them."""

    surface: Surface
    name: str | None = None
    """As `identify` told it; None for nobody whom the service knows."""
    email: str | None = None
    """As `identify` told it, or where the code was sent that they entered."""
    known_by: str | None = None
    """How that was found out: ``"login"`` or ``"email_code"``; None if it was not."""
    claimed_name: str | None = None
    """What a messenger, or whoever pretends to be one, calls them. Nobody has verified it."""
    claimed_account: str | None = None
    """The messenger and their id there, like ``"telegram:7"``. Nobody has verified it either."""


Authorize = Callable[[Person, Case, str], Awaitable[bool | str]]
"""Whether a person may answer a case with an action: True if so. Anything else refuses, a text with that sentence."""


@dataclass(frozen=True, slots=True)
class Respondent:
    """Who answers, and how that is known: ``by`` for the record, the rest as the protocol tells it."""

    by: str | None = None
    """Who it was: verified if ``known_by`` says how, else a claim."""
    via: str = "web"
    responded_by: JsonObject | None = None
    """The same for the caller. A name that nobody verified is never here, but in ``claimed_by``."""
    context: JsonObject | None = None
    known_by: str | None = None
    """How their name was found out, for the audit trail: ``"login"`` or ``"email_code"``."""
    claimed_by: JsonObject | None = None
    """Who it is said to have been: ``name`` and ``account``, where they are given."""
    surface: Surface = "page"

    @property
    def person(self) -> Person:
        """They as `authorize` sees them."""
        known, claimed = self.responded_by or {}, self.claimed_by or {}
        return Person(
            surface=self.surface,
            name=_text(known.get("name")),
            email=_text(known.get("email")),
            known_by=self.known_by,
            claimed_name=_text(claimed.get("name")),
            claimed_account=_text(claimed.get("account")),
        )

    @property
    def claimed(self) -> str | None:
        """Who they say they are, in a line; None where that is not said, or is known."""
        said = self.claimed_by or {}
        name, account = _text(said.get("name")), _text(said.get("account"))
        if name and account:
            return f"{name} ({account})"
        return name or account or (None if self.known_by else self.by)

    @property
    def told(self) -> JsonObject:
        """What the audit trail says of how they answered, and of who they say they are."""
        said: JsonObject = {"via": self.via}
        if self.known_by is not None:
            said["known_by"] = self.known_by
        return said | claimed(self.claimed, self.actor)

    @property
    def actor(self) -> str:
        """Who the audit trail says it was: whom we know, else only what they had in their hands."""
        if self.surface == "terminal":
            return os_account()
        if self.by and self.known_by:
            return self.by
        return SUBMIT_TOKEN if self.surface == "inline" else REVIEWER


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


async def check_authorized(authorize: Authorize | None, who: Respondent, case: Case, action: str) -> None:
    """Raise `NotAuthorized` unless a person may answer so. What fails refuses."""
    if authorize is None:
        return
    try:
        said = await authorize(who.person, case, action)
    except Exception as error:
        logger.error("authorize failed for %s: %s", case.case_id, type(error).__name__)
        raise NotAuthorized(case.case_id) from error
    if said is not True:
        raise NotAuthorized(case.case_id, said if isinstance(said, str) else "")
