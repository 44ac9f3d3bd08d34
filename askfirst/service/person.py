"""Who answers a case, by a login, an e-mail code or a messenger's word, and whether they may."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request

from askfirst.account import os_account
from askfirst.errors import EmailCodeRefused, InvalidReview, NotAuthorized, NotIdentified
from askfirst.messages import JsonObject
from askfirst.protocol import RespondedBy, SubmitRequest
from askfirst.service.budgets import address_of
from askfirst.service.case import Case
from askfirst.store.audit import claimed

if TYPE_CHECKING:
    from askfirst.service.email_codes import EmailCodes

REVIEWER = "reviewer"
"""The actor in the audit trail of a person who is known only to have a link."""
SUBMIT_TOKEN = "submit token"  # noqa: S105  (a name)
"""The actor of a caller who is known only to have a case's submit token."""
logger = logging.getLogger("askfirst.service")

Surface = Literal["page", "inline", "messenger", "terminal"]
"""Where a person answers: on the page (or as the page does, with JSON); by a button that a caller carries here
(``inline``); by a button of a message that the service itself sent; in a terminal."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person who answers, as far as the service knows them."""

    surface: Surface
    name: str | None = None
    """As `identify` gave it; None for an unknown person."""
    email: str | None = None
    """As `identify` gave it, or the address of the code that they entered."""
    known_by: str | None = None
    """How the person was verified: ``"login"``, ``"email_code"`` or the messenger's name; None if they were not."""
    account: str | None = None
    """Their account in a messenger, such as ``"telegram:1001"``, where the messenger itself vouches for it."""
    claimed_name: str | None = None
    """The name that a messenger gives for them: a claim, unverified."""
    claimed_account: str | None = None
    """The messenger and their id there, such as ``"telegram:7"``: a claim, unverified."""


Authorize = Callable[[Person, Case, str], Awaitable[bool | str]]
"""Whether a person may answer a case with an action: True allows, anything else refuses; a text is the reason."""


@dataclass(frozen=True, slots=True)
class Respondent:
    """Who answers, and how that was verified: ``by`` for the record, the rest in the protocol's shape."""

    by: str | None = None
    """The person's name or address: verified if ``known_by`` is set, else a claim."""
    via: str = "web"
    responded_by: JsonObject | None = None
    """The verified person, for the caller. An unverified name is in ``claimed_by`` only."""
    context: JsonObject | None = None
    known_by: str | None = None
    """How they were verified, for the audit trail: ``"login"``, ``"email_code"`` or a messenger's name."""
    claimed_by: JsonObject | None = None
    """Who they claim to be: ``name`` and ``account``, where given."""
    surface: Surface = "page"
    account: str | None = None
    """The account that a messenger vouches for."""

    @classmethod
    def kept(cls, said: Mapping[str, Any]) -> Respondent:
        """The respondent of a held decision, as ``dataclasses.asdict`` wrote it down."""
        return cls(**said)

    @property
    def person(self) -> Person:
        """The person as `authorize` gets them."""
        known, claimed = self.responded_by or {}, self.claimed_by or {}
        return Person(
            surface=self.surface,
            name=_text(known.get("name")),
            email=_text(known.get("email")),
            known_by=self.known_by,
            account=self.account,
            claimed_name=_text(claimed.get("name")),
            claimed_account=_text(claimed.get("account")),
        )

    @property
    def claimed(self) -> str | None:
        """The claimed name in a line; None where there is none, or the person is verified."""
        said = self.claimed_by or {}
        name, account = _text(said.get("name")), _text(said.get("account"))
        if name and account:
            return f"{name} ({account})"
        return name or account or (None if self.known_by else self.by)

    @property
    def told(self) -> JsonObject:
        """The detail of the audit row: how they answered, and who they claim to be."""
        said: JsonObject = {"via": self.via}
        if self.known_by is not None:
            said["known_by"] = self.known_by
        if self.account is not None:
            said["account"] = self.account
        return said | claimed(self.claimed, self.actor)

    @property
    def actor(self) -> str:
        """The actor of the audit row: the verified person, else the kind of token that was used."""
        if self.surface == "terminal":
            return os_account()
        if self.by and self.known_by:
            return self.by
        return SUBMIT_TOKEN if self.surface == "inline" else REVIEWER


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


async def check_authorized(authorize: Authorize | None, who: Respondent, case: Case, action: str) -> None:
    """Raise `NotAuthorized` unless a person may answer so, and if `authorize` raises (fail closed).

    Whoever presses a button of a message that the service sent has to be on the list of that place.
    """
    if who.surface == "messenger" and who.known_by is None:
        raise NotAuthorized(case.case_id)
    if authorize is None:
        return
    try:
        said = await authorize(who.person, case, action)
    except Exception as error:
        logger.error("authorize failed for %s: %s", case.case_id, type(error).__name__)
        raise NotAuthorized(case.case_id) from error
    if said is not True:
        raise NotAuthorized(case.case_id, said if isinstance(said, str) else "")


# Finding out who answers.


MOST_CHARACTERS = 255

Identify = Callable[[Request], Awaitable[Mapping[str, str] | None]]
"""From a browser's request to the ``name`` and ``email`` of the person who is signed in, or None."""


async def respondent(
    case: Case, request: Request, identify: Identify | None, codes: EmailCodes | None, email_code: str
) -> Respondent:
    """Who answers on the page: by the host's login, or by an e-mail code. Nothing else in the form counts.

    Raises `NotIdentified` and `EmailCodeRefused`. Check the answer before: this uses up the code.
    """
    login = await login_of(case, request, identify)
    known_by = None if login is None else "login"
    if case.verify_email is not None:
        if codes is None:
            why = "This service can send no e-mail just now. Tell whoever runs it."
            raise EmailCodeRefused(case.case_id, "verification_failed", why)
        email = await codes.check(case, email_code, address_of(request))
        # A code may be passed on: the name of another person's login does not belong to this address.
        same = login is not None and str(login.get("email", "")).lower() == email.lower()
        login, known_by = {**(login or {} if same else {}), "email": email}, "email_code"
    return Respondent(
        by=_named(login), via="web", responded_by=login, context={"mode": "browser_submit"}, known_by=known_by
    )


async def messenger_user(
    case: Case, request: Request, identify: Identify | None, submission: SubmitRequest
) -> Respondent:
    """Who pressed a messenger's button. The request's own statement is a claim, for any holder of the submit token
    can write it. Only `identify` verifies the person. Raises `NotIdentified`.
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
    """The host's login of a request, if there is one; raises `NotIdentified` if `identify` fails (fail closed)."""
    if identify is None:
        return None
    try:
        given = await identify(request)
        return None if given is None else _checked(given)
    except Exception as error:
        logger.error("identify failed for %s: %s", case.case_id, type(error).__name__)
        raise NotIdentified(case.case_id) from error


def _checked(given: Mapping[str, str]) -> JsonObject:
    """``name`` and ``email`` as the protocol has them; raises `ValueError` for anything else."""
    said = RespondedBy.read(dict(given)).wire()
    if not said or not all(_fits(str(text)) for text in said.values()):
        raise ValueError(f"a name or an address has 1 to {MOST_CHARACTERS} printable characters")
    return said


def _fits(text: str) -> bool:
    return 0 < len(text) <= MOST_CHARACTERS and text.isprintable() and text == text.strip()
