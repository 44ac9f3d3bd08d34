"""E-mail codes: kept as salted hashes, tried a few times, used once. A case's lock keeps its codes in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Integer, delete, func, insert, literal_column, select, update

from assent.errors import CaseNotFound
from assent.store import audit, cases
from assent.store.audit import Entry
from assent.store.case_tables import email_codes
from assent.store.statement import Statement, Transaction, param

_K = email_codes.c
_ONE = literal_column("1", Integer)
_OF_CASE = _K.case_id == param("case_id")


class CodeRow(NamedTuple):
    """A code's columns, in the order in which they are read."""

    case_id: str
    code_hash: str
    salt: str
    place: int
    """Which of the case's addresses it was sent to."""
    tries: int
    sent_at: int
    expires_at: int
    used_at: int | None


COLUMNS = tuple(_K[name] for name in CodeRow._fields)
_LIVE = (_OF_CASE, _K.used_at.is_(None), _K.expires_at > param("now"), _K.tries < param("most"))
INSERT = Statement(insert(email_codes).values({name: param(name) for name in CodeRow._fields}).inline())
FORGET = Statement(delete(email_codes).where(_OF_CASE, _K.sent_at <= param("since")))
COUNT = Statement(select(func.count()).select_from(email_codes).where(_OF_CASE))
LIVE = Statement(select(*COLUMNS).where(*_LIVE))
TRY = Statement(update(email_codes).where(*_LIVE).values(tries=_K.tries + _ONE))
USE = Statement(
    update(email_codes)
    .where(_OF_CASE, _K.code_hash == param("code_hash"), _K.used_at.is_(None))
    .values(used_at=param("now"))
)


def keep(code: CodeRow, since: int, most: int, entries: Sequence[Entry]) -> Transaction[bool]:
    """Keep a code, unless the case has ``most`` of them since then; older ones are forgotten."""
    yield from _locked(code.case_id)
    yield FORGET, {"case_id": code.case_id, "since": since}
    [(known,)] = yield COUNT, {"case_id": code.case_id}
    if known >= most:
        return False
    yield INSERT, code._asdict()
    yield from audit.append(entries)
    return True


def attempt(case_id: str, now: int, most: int) -> Transaction[list[CodeRow]]:
    """The codes that can be used now. The try counts for each before anybody knows whether it is right."""
    yield from _locked(case_id)
    live = {"case_id": case_id, "now": now, "most": most}
    codes = [CodeRow(*row) for row in (yield LIVE, live)]
    if codes:
        yield TRY, live
    return codes


def use(code: CodeRow, now: int) -> Transaction[bool]:
    """Use a code up; False if somebody was first."""
    return (yield USE, {"case_id": code.case_id, "code_hash": code.code_hash, "now": now}) == 1


def _locked(case_id: str) -> Transaction[None]:
    if (yield from cases.locked(case_id)) is None:
        raise CaseNotFound(case_id)
