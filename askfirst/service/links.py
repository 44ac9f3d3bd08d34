"""Links to cases: the operator's terms, and the tokens: issued, derived again, checked, expired and revoked."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from askfirst.clock import DAY, to_milliseconds
from askfirst.concurrency import finish
from askfirst.errors import CaseNotFound, InvalidDuration, LinkExpired, ServiceError
from askfirst.limits import LINK_DAYS
from askfirst.protocol import TokenScope, hash_token, issue_token, parse_duration, token_matches
from askfirst.protocol.case import token_prefix
from askfirst.service.case import Case, case_of
from askfirst.service.transitions import entry
from askfirst.store import cases as case_store
from askfirst.store.audit import Entry
from askfirst.store.case_rows import TokenRow
from askfirst.store.engine import Engine

LinkWay = Literal["caller", "service"]
"""Who delivers the link to the person: the caller who opened the case, or the service itself."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the operator allows callers. By default a caller gets the link, and no submit token."""

    inline: bool = False
    """Whether callers get a submit token, with which they can submit answers from a messenger."""
    links: LinkWay = "caller"
    least_timeout: float = 0.0
    """The shortest time-out of a case, in seconds."""
    allow_default_approve: bool = False
    """Whether a caller may have a case count as approved when it expires."""
    link_days: float = LINK_DAYS
    """How many days a link or a submit token is valid."""
    delivers: bool = False
    """Whether the service has deliveries of its own."""

    def __post_init__(self) -> None:
        """Raise `ServiceError` for invalid values."""
        if self.links not in ("caller", "service"):
            raise ServiceError(f'links must be "caller" or "service", not {self.links!r}')
        if not (0 < self.link_days <= 36_500):
            raise ServiceError(f"link_days must be more than 0 and at most 36500, not {self.link_days!r}")
        if not (0 <= self.least_timeout < math.inf):
            raise ServiceError(f"least_timeout must be a duration, not {self.least_timeout!r}")

    @property
    def scopes(self) -> tuple[TokenScope, ...]:
        """The scopes of the tokens that the caller who opens a case gets."""
        review: tuple[TokenScope, ...] = ("review",) if self.links == "caller" else ()
        submit: tuple[TokenScope, ...] = ("submit",) if self.inline else ()
        return review + submit

    def link_end(self, begin: int) -> int:
        """When a link made at ``begin`` expires; both in milliseconds since 1970."""
        return begin + round(self.link_days * DAY)


def seconds_of(least_timeout: str | float | None) -> float:
    """A shortest time-out in seconds; a text such as ``"5m"`` is parsed. Raises `ServiceError`."""
    if least_timeout is None:
        return 0.0
    if not isinstance(least_timeout, str):
        return float(least_timeout)
    try:
        return float(parse_duration(least_timeout))
    except InvalidDuration as error:
        raise ServiceError(f"least_timeout: {error}") from None


def page_pass(token: str) -> str:
    """The credential with which a page follows its case (a cookie). It is derived from the link's token, one-way."""
    return _pass_of(hash_token(token))


def _pass_of(token_hash: str) -> str:
    return hashlib.sha256(f"askfirst page\0{token_hash}".encode()).hexdigest()


class CaseLinks:
    """Issues tokens, finds cases by them, and revokes them. ``now`` gives milliseconds since 1970.

    A request that is repeated with its Idempotency-Key gets the tokens of the first 202 again. Only hashes of tokens
    are stored, so the tokens are derived again: each is the HMAC-SHA256 of its case, its scope and a random salt,
    under the service's secret. The salt is stored and the secret is not, so a reader of the database cannot make a
    token. After a change of the secret a repeated request gets one new token. If the operator set no secret, each
    process has a random one.
    """

    def __init__(
        self, engine: Engine, now: Callable[[], int], terms: Terms | None = None, secret: str | None = None
    ) -> None:
        self.terms = terms or Terms()
        self._engine = engine
        self._now = now
        self._secret = secrets.token_bytes(32) if secret is None else secret.encode()

    # Tokens for the caller who opens a case.

    def new_rows(self, case: Case) -> list[TokenRow]:
        """The rows of the tokens for the caller who opens a case."""
        ends = self.terms.link_end(to_milliseconds(case.created_at))
        salts = [(scope, secrets.token_hex(16)) for scope in self.terms.scopes]
        return [
            TokenRow(case.case_id, self._hashed(case.case_id, scope, salt), scope, salt, ends)
            for scope, salt in salts
        ]

    def tokens_of(self, rows: Sequence[TokenRow]) -> dict[TokenScope, str]:
        """The tokens of these rows, by scope."""
        return {
            cast(TokenScope, row.scope): self._token(row.case_id, row.scope, row.salt or "") for row in rows
        }

    async def reissued(self, case: Case, by: str) -> dict[TokenScope, str]:
        """The tokens of the first 202, derived again for a repeated request, without revoked ones."""
        if not (new_rows := self.new_rows(case)):
            return {}
        delivered = entry(self._now(), by, "delivered", case, {"via": "link"})

        def hashed(scope: str, salt: str) -> str:
            return self._hashed(case.case_id, scope, salt)

        again = partial(case_store.token_again, new_rows, hashed, [delivered])
        salts = await finish(self._engine.write(again))
        rows = [token._replace(salt=salts[token.scope]) for token in new_rows if token.scope in salts]
        return self.tokens_of(rows)

    def _token(self, case_id: str, scope: str, salt: str) -> str:
        told = f"askfirst token\0{scope}\0{case_id}\0{salt}".encode()
        made = hmac.new(self._secret, told, hashlib.sha256).digest()
        return token_prefix(cast(TokenScope, scope)) + base64.urlsafe_b64encode(made).decode().rstrip("=")

    def _hashed(self, case_id: str, scope: str, salt: str) -> str:
        return hash_token(self._token(case_id, scope, salt))

    # Tokens of messages that the service sends.

    def for_message(self, case_id: str, salt: str) -> TokenRow:
        """The row of the token in a message's link.

        It is derived from the salt: a repeated message has the same link.
        """
        return TokenRow(
            case_id, self._hashed(case_id, "review", salt), "review", salt, self.terms.link_end(self._now())
        )

    def message_token(self, case_id: str, salt: str) -> str:
        """The token in a message's link."""
        return self._token(case_id, "review", salt)

    # Further tokens.

    async def issue(self, case: Case, scope: TokenScope, by: str, days: float | None) -> str:
        """Issue one more token. It is random and cannot be derived again."""
        now = self._now()
        ends = self.terms.link_end(now) if days is None else now + round(days * DAY)
        token = issue_token(scope)
        delivered = [entry(now, by, "delivered", case, {"via": "link"})] if scope == "review" else []
        row = TokenRow(case.case_id, hash_token(token), scope, None, ends)
        await finish(self._engine.write(partial(case_store.add_token, [row], delivered)))
        return token

    async def case_of(self, case_id: str, token: str, scope: TokenScope) -> Case:
        """The case that a token opens. Raises `CaseNotFound` for a wrong token, as for an unknown case.

        The case is read only if the token is right. Otherwise the response time would reveal which cases exist.
        Raises `LinkExpired` for a right token that has expired.
        """
        stored = await self._engine.read(partial(case_store.token_of_scope, case_id, scope))
        matches = [token_matches(token, scope, each) for each in [row.token_hash for row in stored] or [None]]
        return await self._case_of_rows(case_id, stored, matches)

    async def case_of_pass(self, case_id: str, given: str) -> Case:
        """The case that a page may follow with its `page_pass`; raises as `case_of` does."""
        stored = await self._engine.read(partial(case_store.token_of_scope, case_id, "review"))
        hashes = [row.token_hash for row in stored] or [""]
        matches = [hmac.compare_digest(_pass_of(each).encode(), given.encode()) for each in hashes]
        return await self._case_of_rows(case_id, stored, matches if stored else [False])

    async def _case_of_rows(self, case_id: str, stored: Sequence[TokenRow], matches: Sequence[bool]) -> Case:
        shown = await self._engine.read(partial(case_store.shown, case_id)) if any(matches) else None
        if shown is None:
            raise CaseNotFound(case_id)
        case = case_of(*shown)
        ends = [row.expires_at for row, same in zip(stored, matches, strict=True) if same]
        if not any(
            self._now() < (self.terms.link_end(shown[0].created_at) if end is None else end) for end in ends
        ):
            raise LinkExpired(case_id)
        return case

    async def days_left(self, case: Case, token: str) -> float:
        """For how many days a link to a case is still valid; 0 for none that is."""
        stored = await self._engine.read(partial(case_store.token_of_scope, case.case_id, "review"))
        usual = self.terms.link_end(to_milliseconds(case.created_at))
        ends = [it.expires_at or usual for it in stored if token_matches(token, "review", it.token_hash)]
        return max((end - self._now() for end in ends), default=0) / DAY

    async def are_revoked(self, case_id: str) -> bool:
        """Whether links of a case were revoked. Then no other link may be exchanged for a new link to it."""
        return await self._engine.read(partial(case_store.has_revoked, case_id))

    async def revoke(self, case: Case, by: str) -> int:
        """Revoke every token of a case; returns how many there were."""
        now = self._now()

        def entry_of(count: int) -> Entry:
            return entry(now, by, "links_revoked", case, {"count": count})

        return await finish(
            self._engine.write(partial(case_store.revoke_tokens, case.case_id, now, entry_of))
        )
