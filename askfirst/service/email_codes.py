"""Codes sent by e-mail. Entering a code proves that a person can read the mail of its address."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from email.utils import make_msgid
from functools import partial
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from askfirst.clock import HOUR, MINUTE
from askfirst.concurrency import finish
from askfirst.errors import EmailCodeRefused, ServiceError
from askfirst.service.budgets import Spending
from askfirst.service.case import Case
from askfirst.service.cases import Cases
from askfirst.service.friction import changed_digest, edited_args
from askfirst.service.notices import contents_of, fact_text
from askfirst.service.pages.decision import words_for
from askfirst.service.pages.edits import editable_of
from askfirst.service.pages.subject import differ
from askfirst.service.transitions import entry
from askfirst.smtp import Mail, NotComposed, NotSent, SmtpServer, compose, masked_address
from askfirst.store import case_access
from askfirst.store.case_access import CodeRow
from askfirst.visible_text import visible

logger = logging.getLogger("askfirst.service")


class Mailer(SmtpServer):
    """Sends mail through an SMTP server given as ``smtp://user:password@host:587?from=me@a.example``.

    `SmtpServer` describes when the connection is encrypted.
    """

    extra = "service"

    def __init__(self, url: str, *, in_clear: bool = False) -> None:
        try:
            super().__init__(url, in_clear=in_clear)
        except ValueError as error:
            raise ServiceError(f"smtp_url {error}") from None

    def compose_mail(self, to: str, subject: str, text: str, *, domain: str) -> Mail | None:
        """Compose a mail; None, with a warning in the log, if that fails. ``domain`` is the service's domain."""
        try:
            message_id = make_msgid(domain=domain.encode("idna").decode())
            return compose(self.sender, [to], subject, text, message_id=message_id)
        except (NotComposed, UnicodeError) as error:
            logger.warning("a mail could not be written: %s", type(error).__name__)
            return None

    async def send(self, mail: Mail, *, domain: str) -> bool:
        """Send a mail; False, with a warning in the log, if that fails. ``domain`` is the service's domain."""
        try:
            await self.hand_over(mail, domain=domain)
        except NotSent as error:
            logger.warning("a mail could not be sent through %s: %s", self.host, error)
            return False
        return True


CODE_DIGITS = 6
CODE_MINUTES = 10
MOST_TRIES = 5
"""How many entered codes are compared with one stored code."""
LONGEST_PROMPT = 300
"""The most characters of the decision's sentence in the mail."""
_MOST_CHANGES = 10
_WRONG = "This is not the code that was sent. Look again, or have another sent."
_TEXT = """\
Your code is {code}

It can be used once within {minutes} minutes, for one decision at {domain}
(case {case_id}):

    {sentence}
{changes}
Somebody who has the link to that case asked for the code. If that was not you,
or you do not want this decided, give the code to nobody; without it nothing is.
"""

Sending = Literal["sent", "too_many", "not_sent"]


class EmailCodes:
    """Sends codes to the addresses that a case names, and checks entered codes.

    ``domain`` is the service's domain, ``language`` the language of the sentence in the mail.
    """

    def __init__(
        self, cases: Cases, mailer: Mailer, domain: str, spending: Spending, language: str | None = None
    ) -> None:
        self._cases = cases
        self._mailer = mailer
        self._domain = domain
        self._spending = spending
        self._language = language

    async def send(
        self, case: Case, place: int, data: Mapping[str, Any] | None = None, requested_from: str | None = None
    ) -> Sending:
        """Send a new code to the case's address at index ``place``; earlier codes stay valid.

        If the answer's ``data`` changes arguments, the mail says so, and the code counts for these arguments alone.
        ``requested_from`` is the client's network address. Raises `OverBudget` before the costly hash is computed.
        """
        changed = changed_digest(case, data)
        address = (case.verify_email or ())[place]
        code, salt, now = (
            f"{secrets.randbelow(10**CODE_DIGITS):0{CODE_DIGITS}}",
            secrets.token_hex(16),
            self._now(),
        )
        text = _TEXT.format(
            code=code,
            case_id=case.case_id,
            domain=self._domain,
            minutes=CODE_MINUTES,
            sentence=_in_one_line(contents_of(case, self._domain, language=self._language).said),
            changes=_changes(case, edited_args(case, data)),
        )
        host = urlsplit(f"//{self._domain}").hostname or "localhost"
        mail = self._mailer.compose_mail(address, f"Your code for {self._domain}", text, domain=host)
        if mail is None:  # a mail that was never sent is neither counted nor recorded
            return "not_sent"
        await self._spending.code(case, address, requested_from)
        row = CodeRow(
            case_id=case.case_id,
            code_hash=await asyncio.to_thread(_hashed, _subject(case.case_id, changed), salt, code),
            salt=salt,
            place=place,
            tries=0,
            sent_at=now,
            expires_at=now + CODE_MINUTES * MINUTE,
            used_at=None,
        )
        most = self._spending.budgets.codes_per_case
        audit = (entry(now, "reviewer", "code_sent", case, {"to": masked_address(address)}),)
        keep = partial(case_access.keep_code, row, now - HOUR, most, audit)
        if not await finish(self._cases.engine.write(keep)):
            return "too_many"
        sent = await self._mailer.send(mail, domain=host)
        return "sent" if sent else "not_sent"

    async def check(
        self,
        case: Case,
        entered: str,
        data: Mapping[str, Any] | None = None,
        tried_from: str | None = None,
    ) -> str:
        """Use up a code for an answer's ``data``, and return the address that the code was sent to.

        Raises `EmailCodeRefused`, also for a code that was sent for other changes of the arguments; raises
        `OverBudget` if too many codes were tried, before the costly hash is computed.
        """
        code, changed = read_code(case, entered), changed_digest(case, data)
        await self._spending.code_try(case, tried_from)
        try_codes = partial(case_access.try_codes, case.case_id, self._now(), MOST_TRIES)
        known = await finish(self._cases.engine.write(try_codes))
        if not known:
            why = "There is no code that can be used now. Have a new one sent."
            raise EmailCodeRefused(case.case_id, "verification_failed", why)
        matching = await asyncio.to_thread(_matching, known, code, changed)
        for row in matching:
            if await finish(self._cases.engine.write(partial(case_access.use_code, row, self._now()))):
                return (case.verify_email or ())[row.place]
        raise EmailCodeRefused(case.case_id, "verification_failed", _WRONG)

    def _now(self) -> int:
        return self._cases.now()


def read_code(case: Case, entered: str) -> str:
    """The digits that were entered; raises `EmailCodeRefused` for a text that cannot be a code."""
    code = "".join(entered.split()).replace("-", "")
    if not code:
        raise EmailCodeRefused(
            case.case_id, "verification_required", "Enter the code that was sent to you by e-mail."
        )
    if len(code) != CODE_DIGITS or not (code.isascii() and code.isdigit()):
        raise EmailCodeRefused(case.case_id, "verification_failed", _WRONG)
    return code


def _in_one_line(prompt: str) -> str:
    """The prompt on one line, with its hidden characters made visible."""
    shown = visible(prompt)
    return shown if len(shown) <= LONGEST_PROMPT else f"{shown[:LONGEST_PROMPT]}… (more on the page)"


def _changes(case: Case, edited: Any) -> str:
    """The arguments that a person has changed, a line each; empty if they changed none."""
    if not isinstance(edited, Mapping):
        return ""
    editable = editable_of(case)
    values, formats = (editable.values, editable.formats) if editable else ({}, dict[str, str]())
    labels: Any = words_for(case).get("labels")
    after = cast("Mapping[str, Any]", edited)
    names = [name for name in {**values, **after} if name not in after or _differ(values, after, name)]
    lines = [
        f"    {_named(name, labels)}: {_new_value(after, name, formats.get(name, ''))}"
        for name in names[:_MOST_CHANGES]
    ]
    rest = [f"    and {len(names) - len(lines)} more (on the page)"] if len(names) > len(lines) else []
    return "\n".join(["", "Changed, before it is decided, to:", "", *lines, *rest, ""]) if names else ""


def _differ(values: Mapping[str, Any], after: Mapping[str, Any], name: str) -> bool:
    return name not in values or differ({"": values[name]}, {"": after[name]})


def _named(name: str, labels: Any) -> str:
    """An argument's name, after the label that the tool's author gave it."""
    label = cast("Mapping[str, Any]", labels).get(name) if isinstance(labels, Mapping) else None
    return _in_one_line(f"{label} ({name})" if isinstance(label, str) else name)


def _new_value(after: Mapping[str, Any], name: str, form: str) -> str:
    """A changed value in its format, followed by the value itself if that differs. A secret is not shown."""
    return _in_one_line(fact_text(after[name], form)) if name in after else "(left out)"


def _matching(known: list[CodeRow], code: str, changed: str) -> list[CodeRow]:
    """The stored codes that equal the entered one. All of them are compared, each in constant time."""
    found = [
        hmac.compare_digest(_hashed(_subject(row.case_id, changed), row.salt, code), row.code_hash)
        for row in known
    ]
    return [row for row, same in zip(known, found, strict=True) if same]


def _subject(case_id: str, changed: str) -> str:
    """What a code is for: a case, with the digest of the arguments if they were changed."""
    return f"{case_id}\0{changed}" if changed else case_id


def _hashed(subject: str, salt: str, code: str) -> str:
    """A slow hash (scrypt).

    There are only a million codes: with a fast hash, a reader of the database could try all.
    """
    salted = f"{salt}\0{subject}".encode()
    return hashlib.scrypt(code.encode(), salt=salted, n=2**14, r=8, p=1, dklen=32).hex()
