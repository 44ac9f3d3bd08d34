"""The person who answers a case: identified by a login, an e-mail code or a messenger, and authorized."""

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
"""The actor in the audit trail for an unverified person with a link."""
SUBMIT_TOKEN = "submit token"  # noqa: S105  (a name)
"""The actor in the audit trail for an unverified caller with a submit token."""
logger = logging.getLogger("askfirst.service")

Surface = Literal["page", "inline", "messenger", "terminal"]
"""Where a person answers: on the ``page`` (or with JSON, as the page does); with a button in a messenger of the
caller, who submits it (``inline``); with a button of the service's own message (``messenger``); in a ``terminal``."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person who answers, as far as the service knows them."""

    surface: Surface
    name: str | None = None
    """The name from `identify`; None for an unknown person."""
    email: str | None = None
    """The address from `identify`, or the address to which their e-mail code was sent."""
    known_by: str | None = None
    """How the person was verified: ``"login"``, ``"email_code"`` or the messenger's name; None if they were not."""
    account: str | None = None
    """Their account in a messenger, such as ``"telegram:1001"``, verified by the messenger."""
    claimed_name: str | None = None
    """Their name according to the caller: a claim, not verified."""
    claimed_account: str | None = None
    """Their account according to the caller, such as ``"telegram:7"``: a claim, not verified."""


Authorize = Callable[[Person, Case, str], Awaitable[bool | str]]
"""Decides whether a person may answer a case with an action. True allows, any other value refuses; a text is the
reason of the refusal."""


@dataclass(frozen=True, slots=True)
class Respondent:
    """The person who answers, and how they were verified. ``responded_by`` and ``context`` are protocol objects."""

    by: str | None = None
    """The person's name or address: verified if ``known_by`` is set, else a claim."""
    via: str = "web"
    responded_by: JsonObject | None = None
    """The verified person, for the caller. An unverified name is in ``claimed_by`` only."""
    context: JsonObject | None = None
    known_by: str | None = None
    """How the person was verified, for the audit trail: ``"login"``, ``"email_code"`` or a messenger's name."""
    claimed_by: JsonObject | None = None
    """The claimed identity, not verified: ``name`` and ``account``, if given."""
    surface: Surface = "page"
    account: str | None = None
    """The account that a messenger has verified."""

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Respondent:
        """The respondent of a held decision, from the dictionary that ``dataclasses.asdict`` made of it."""
        return cls(**said)

    @property
    def person(self) -> Person:
        """The person for the host's `authorize`."""
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
        """The claimed name and account in a line; None if there is no claim, or if the person is verified."""
        said = self.claimed_by or {}
        name, account = _text(said.get("name")), _text(said.get("account"))
        if name and account:
            return f"{name} ({account})"
        return name or account or (None if self.known_by else self.by)

    @property
    def audit_details(self) -> JsonObject:
        """The details for the audit row: how the person answered, how they were verified, and their claim."""
        said: JsonObject = {"via": self.via}
        if self.known_by is not None:
            said["known_by"] = self.known_by
        if self.account is not None:
            said["account"] = self.account
        return said | claimed(self.claimed, self.actor)

    @property
    def actor(self) -> str:
        """The actor for the audit row: the verified person, or the kind of token that was used."""
        if self.surface == "terminal":
            return os_account()
        if self.by and self.known_by:
            return self.by
        return SUBMIT_TOKEN if self.surface == "inline" else REVIEWER


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


async def check_authorized(authorize: Authorize | None, who: Respondent, case: Case, action: str) -> None:
    """Raise `NotAuthorized` unless the person may answer a case with this action.

    Also if the host's `authorize` raises (fail closed). A person who presses a button of the service's own message
    must be on the list of its place (`Place.deciders`).
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


# Identifying the person who answers.


MOST_CHARACTERS = 255

Identify = Callable[[Request], Awaitable[Mapping[str, str] | None]]
"""A function of the host that returns the ``name`` and ``email`` of the person who is signed in, or None."""


async def respondent(
    case: Case,
    request: Request,
    identify: Identify | None,
    codes: EmailCodes | None,
    email_code: str,
    data: Mapping[str, Any] | None = None,
) -> Respondent:
    """The person who answers on the page, identified by the host's login or by an e-mail code, by nothing else.

    ``data`` is that of the answer: a code counts for the arguments that it was sent for.

    Raises `NotIdentified` and `EmailCodeRefused`. Check the answer before: this call uses up the code.
    """
    login = await login_of(case, request, identify)
    known_by = None if login is None else "login"
    if case.verify_email is not None:
        if codes is None:
            why = "This service cannot send e-mail just now. Tell its operator."
            raise EmailCodeRefused(case.case_id, "verification_failed", why)
        email = await codes.check(case, email_code, data, address_of(request))
        # A person may pass a code on, so the login's name is kept only if its address is the code's address.
        same = login is not None and str(login.get("email", "")).lower() == email.lower()
        login, known_by = {**(login or {} if same else {}), "email": email}, "email_code"
    return Respondent(
        by=_name_in(login),
        via="web",
        responded_by=login,
        context={"mode": "browser_submit"},
        known_by=known_by,
    )


async def messenger_user(
    case: Case, request: Request, identify: Identify | None, submission: SubmitRequest
) -> Respondent:
    """The person who pressed a button in the caller's messenger. Raises `NotIdentified`.

    What the request says about the person is a claim: anybody with the submit token can write it. Only the host's
    `identify` verifies the person.
    """
    user, via = submission.submitted_by, submission.submitted_via
    account = f"{user.platform}:{user.platform_user_id}"
    for name, text in (("submitted_by", account), ("submitted_via", via)):
        if len(text) > MOST_CHARACTERS or not text.isprintable() or text.endswith(" "):
            raise InvalidReview({name: f"must have at most {MOST_CHARACTERS} characters, all printable"})
    login = await login_of(case, request, identify)
    claimed: JsonObject = {"account": account}
    if user.display_name:
        claimed["name"] = user.display_name[:MOST_CHARACTERS]
    return Respondent(
        by=_name_in(login),
        via=via,
        responded_by=login,
        context={"mode": "inline_submit", "submitted_via": via, "submitted_by": user.wire()},
        known_by=None if login is None else "login",
        claimed_by=claimed,
        surface="inline",
    )


def _name_in(login: JsonObject | None) -> str | None:
    return None if login is None else str(login.get("email") or login.get("name"))


async def login_of(case: Case, request: Request, identify: Identify | None) -> JsonObject | None:
    """The login of a request according to the host; None if nobody is signed in.

    Raises `NotIdentified` if `identify` fails (fail closed).
    """
    if identify is None:
        return None
    try:
        given = await identify(request)
        return None if given is None else _checked_login(given)
    except Exception as error:
        logger.error("identify failed for %s: %s", case.case_id, type(error).__name__)
        raise NotIdentified(case.case_id) from error


def _checked_login(given: Mapping[str, str]) -> JsonObject:
    """The ``name`` and ``email`` of a login, validated; raises `ValueError`."""
    said = RespondedBy.read(dict(given)).wire()
    if not said or not all(_is_valid_text(str(text)) for text in said.values()):
        raise ValueError(f"a name or an address must have 1 to {MOST_CHARACTERS} printable characters")
    return said


def _is_valid_text(text: str) -> bool:
    return 0 < len(text) <= MOST_CHARACTERS and text.isprintable() and text == text.strip()
