"""The tokens of cases: added, given again, revoked. They are stored as hashes, and end by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Integer, exists, insert, literal_column, select, update

from assent.store import audit
from assent.store.audit import Entry
from assent.store.case_rows import TokenRow
from assent.store.case_tables import case_tokens, cases
from assent.store.service_tables import keys
from assent.store.statement import Statement, Transaction, param

_T = case_tokens.c
_OF_CASE = _T.case_id == param("case_id")
COLUMNS = tuple(_T[name] for name in TokenRow._fields)
INSERT = Statement(insert(case_tokens).values({name: param(name) for name in TokenRow._fields}).inline())
OF_CASE = Statement(select(*COLUMNS).where(_OF_CASE))
OF_SCOPE = Statement(select(*COLUMNS).where(_OF_CASE, _T.scope == param("scope"), _T.revoked_at.is_(None)))
_KEY_IS_REVOKED = exists(
    select(literal_column("1", Integer))
    .select_from(cases.join(keys, keys.c.key_id == cases.c.key_id))
    .where(cases.c.case_id == param("case_id"), keys.c.revoked_at.is_not(None))
)
OF_KEY = Statement(
    select(*COLUMNS).where(_OF_CASE, _T.scope == param("scope"), _T.revoked_at.is_(None), ~_KEY_IS_REVOKED)
)
LOCK_CASE = Statement(select(cases.c.case_id).where(cases.c.case_id == param("case_id")).with_for_update())
REVOKE = Statement(
    update(case_tokens).where(_OF_CASE, _T.revoked_at.is_(None)).values(revoked_at=param("revoked_at"))
)

Hashed = Callable[[str, str], str]
"""What the token of a scope and a salt hashes to, under the secret of the service that asks."""


def add(tokens: Sequence[TokenRow], entries: Sequence[Entry]) -> Transaction[None]:
    """Let these tokens open their case, besides those that do already; the last part of a transaction."""
    for token in tokens:
        yield INSERT, token._asdict()
    yield from audit.append(entries)


def of_scope(case_id: str, scope: str) -> Transaction[list[TokenRow]]:
    """The tokens of a scope that were not revoked; some may be past their time. The case itself is not read.

    A submit token ends with the key whose holder it was given to.
    """
    statement = OF_KEY if scope == "submit" else OF_SCOPE
    return [TokenRow(*row) for row in (yield statement, {"case_id": case_id, "scope": scope})]


def again(fresh: Sequence[TokenRow], hashed: Hashed, entries: Sequence[Entry]) -> Transaction[dict[str, str]]:
    """The salts, by scope, of tokens that a caller was handed before and is handed again.

    Of ``fresh``, which are all of one case, those are added whose scope has none that this service can make: it
    has another secret now. What was revoked does not come back: then the scope has no salt.
    """
    case_id = fresh[0].case_id
    yield LOCK_CASE, {"case_id": case_id}
    stored = [TokenRow(*row) for row in (yield OF_CASE, {"case_id": case_id})]
    salts: dict[str, str] = {}
    added: list[TokenRow] = []
    for token in fresh:
        known = [each for each in stored if each.scope == token.scope]
        if any(each.revoked_at is not None for each in known):
            continue
        mine = [
            each.salt for each in known if each.salt and hashed(token.scope, each.salt) == each.token_hash
        ]
        if not mine:
            added.append(token)
        salts[token.scope] = mine[0] if mine else token.salt or ""
    yield from add(added, entries if any(each.scope == "review" for each in added) else ())
    return salts


def revoke(case_id: str, now: int, entry_of: Callable[[int], Entry]) -> Transaction[int]:
    """End all tokens of a case; returns how many there were, of which ``entry_of`` makes a row of the trail."""
    count = len((yield from _living(case_id)))
    if count:
        yield REVOKE, {"case_id": case_id, "revoked_at": now}
        yield from audit.append([entry_of(count)])
    return count


def _living(case_id: str) -> Transaction[list[TokenRow]]:
    rows = yield OF_CASE, {"case_id": case_id}
    return [token for token in map(TokenRow._make, rows) if token.revoked_at is None]
