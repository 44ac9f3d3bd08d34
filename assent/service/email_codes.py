"""Codes that are sent by e-mail: whoever enters one can read the mail of that address."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from typing import Literal
from urllib.parse import urlsplit

from assent.errors import EmailCodeRefused
from assent.service.case import Case
from assent.service.cases import Cases
from assent.service.mail import Mailer
from assent.service.mailboxes import masked_address
from assent.service.spending import Spending
from assent.service.transitions import entry
from assent.store.email_codes import CodeRow
from assent.store.finish import finish
from assent.visible import visible

CODE_DIGITS = 6
CODE_MINUTES = 10
MOST_TRIES = 5
"""For each code."""
LONGEST_PROMPT = 300
"""How much of what is decided stands in the mail."""
_HOUR = 3_600_000
_WRONG = "This is not the code that was sent. Look again, or have another sent."
_TEXT = """\
Your code is {code}

It can be used once within {minutes} minutes, for one decision at {domain}
(case {case_id}):

    {prompt}

Somebody who has the link to that case asked for the code. If that was not you,
or you do not want this decided, give the code to nobody; without it nothing is.
"""

Sending = Literal["sent", "too_many", "not_sent"]


class EmailCodes:
    """Sends codes to the addresses that a case names, and tells whose a code is. ``domain`` is where we are."""

    def __init__(self, cases: Cases, mailer: Mailer, domain: str, spending: Spending) -> None:
        self._cases = cases
        self._mailer = mailer
        self._domain = domain
        self._spending = spending

    async def send(self, case: Case, place: int, wished_from: str | None = None) -> Sending:
        """Send a new code to one of the case's addresses; those sent before stay good.

        ``wished_from`` is the network address of whoever asks for it. Raises `OverBudget`, before anything is hashed.
        """
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
            prompt=_shown(case.prompt),
        )
        host = urlsplit(f"//{self._domain}").hostname or "localhost"
        mail = self._mailer.written(address, f"Your code for {self._domain}", text, domain=host)
        if mail is None:  # nothing is counted or recorded that was never sent
            return "not_sent"
        await self._spending.code(case, address, wished_from)
        row = CodeRow(
            case_id=case.case_id,
            code_hash=await asyncio.to_thread(_hashed, case.case_id, salt, code),
            salt=salt,
            place=place,
            tries=0,
            sent_at=now,
            expires_at=now + CODE_MINUTES * 60_000,
            used_at=None,
        )
        most = self._spending.budgets.codes_per_case
        audit = (entry(now, "reviewer", "code_sent", case, {"to": masked_address(address)}),)
        if not await finish(self._cases.store.keep_code(row, now - _HOUR, most, audit)):
            return "too_many"
        sent = await self._mailer.send(mail, domain=host)
        return "sent" if sent else "not_sent"

    async def check(self, case: Case, entered: str, tried_from: str | None = None) -> str:
        """The address that a code was sent to, which is used up by that; raises `EmailCodeRefused`.

        Raises `OverBudget`, before anything is hashed, if too many were tried.
        """
        code = read_code(case, entered)
        await self._spending.code_try(case, tried_from)
        known = await finish(self._cases.store.try_codes(case.case_id, self._now(), MOST_TRIES))
        if not known:
            why = "There is no code that can be used now. Have a new one sent."
            raise EmailCodeRefused(case.case_id, "verification_failed", why)
        matching = await asyncio.to_thread(_matching, known, code)
        for row in matching:
            if await finish(self._cases.store.use_code(row, self._now())):
                return (case.verify_email or ())[row.place]
        raise EmailCodeRefused(case.case_id, "verification_failed", _WRONG)

    def _now(self) -> int:
        return self._cases.now()


def read_code(case: Case, entered: str) -> str:
    """The digits that were entered; raises `EmailCodeRefused` for what no code is."""
    code = "".join(entered.split()).replace("-", "")
    if not code:
        raise EmailCodeRefused(
            case.case_id, "verification_required", "Enter the code that was sent to you by e-mail."
        )
    if len(code) != CODE_DIGITS or not (code.isascii() and code.isdigit()):
        raise EmailCodeRefused(case.case_id, "verification_failed", _WRONG)
    return code


def _shown(prompt: str) -> str:
    """What is decided, in one line in which nothing hides."""
    shown = visible(prompt)
    return shown if len(shown) <= LONGEST_PROMPT else f"{shown[:LONGEST_PROMPT]}… (more on the page)"


def _matching(known: list[CodeRow], code: str) -> list[CodeRow]:
    """Those of the codes that this is; every one is compared, and each in constant time."""
    found = [hmac.compare_digest(_hashed(row.case_id, row.salt, code), row.code_hash) for row in known]
    return [row for row, same in zip(known, found, strict=True) if same]


def _hashed(case_id: str, salt: str, code: str) -> str:
    """Slow on purpose: there are only so many codes, and whoever reads the database could try them all."""
    salted = f"{salt}\0{case_id}".encode()
    return hashlib.scrypt(code.encode(), salt=salted, n=2**14, r=8, p=1, dklen=32).hex()
