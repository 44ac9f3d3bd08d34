"""The tokens of cases: those that a caller is handed, those that are made later, and how they end."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from typing import cast

from assent.errors import CaseNotFound, LinkExpired
from assent.protocol import TokenScope, hash_token, issue_token, token_matches
from assent.protocol.tokens import token_prefix
from assent.service.case import Case
from assent.service.rows import case_of
from assent.service.terms import Terms
from assent.service.transitions import entry
from assent.store.case_rows import TokenRow
from assent.store.case_store import CaseStore
from assent.store.finish import finish


class CaseLinks:
    """Makes tokens, finds cases by them, and ends them. ``now`` is in milliseconds since 1970.

    What a caller is handed with its 202 comes again, and nothing new, when the same request is repeated (with its
    Idempotency-Key). Only hashes of tokens are stored, so these are made again: each is the HMAC-SHA256 of its
    case, its scope and a random salt, which is stored, under the service's secret, which is not. Whoever reads the
    database has the salts without the secret, and whoever knows the secret has no salts. Under another secret there
    is one more token, once; without a secret of the operator's, each process has one that ends with it.
    """

    def __init__(
        self, store: CaseStore, now: Callable[[], int], terms: Terms | None = None, secret: str | None = None
    ) -> None:
        self.terms = terms or Terms()
        self._store = store
        self._now = now
        self._secret = secrets.token_bytes(32) if secret is None else secret.encode()

    # Those that a caller is handed.

    def fresh(self, case: Case) -> list[TokenRow]:
        """What whoever opens a case is handed, as it is stored."""
        ends = self.terms.link_end(case.created_at)
        salts = [(scope, secrets.token_hex(16)) for scope in self.terms.scopes]
        return [
            TokenRow(case.case_id, self._hashed(case.case_id, scope, salt), scope, salt, ends)
            for scope, salt in salts
        ]

    def handed(self, rows: Sequence[TokenRow]) -> dict[TokenScope, str]:
        """The tokens themselves, by scope."""
        return {
            cast(TokenScope, row.scope): self._token(row.case_id, row.scope, row.salt or "") for row in rows
        }

    async def handed_again(self, case: Case, by: str) -> dict[TokenScope, str]:
        """What a caller was handed before; without those that were revoked since."""
        if not (fresh := self.fresh(case)):
            return {}
        delivered = entry(self._now(), by, "delivered", case, {"via": "link"})

        def hashed(scope: str, salt: str) -> str:
            return self._hashed(case.case_id, scope, salt)

        salts = await finish(self._store.tokens_again(fresh, hashed, [delivered]))
        rows = [token._replace(salt=salts[token.scope]) for token in fresh if token.scope in salts]
        return self.handed(rows)

    def _token(self, case_id: str, scope: str, salt: str) -> str:
        told = f"assent token\0{scope}\0{case_id}\0{salt}".encode()
        made = hmac.new(self._secret, told, hashlib.sha256).digest()
        return token_prefix(cast(TokenScope, scope)) + base64.urlsafe_b64encode(made).decode().rstrip("=")

    def _hashed(self, case_id: str, scope: str, salt: str) -> str:
        return hash_token(self._token(case_id, scope, salt))

    # The others.

    async def issue(self, case: Case, scope: TokenScope, by: str, days: float | None) -> str:
        """A token that nobody had before and nobody can make again, besides those that there are."""
        now = self._now()
        ends = self.terms.link_end(now) if days is None else now + round(days * 86_400_000)
        token = issue_token(scope)
        delivered = [entry(now, by, "delivered", case, {"via": "link"})] if scope == "review" else []
        row = TokenRow(case.case_id, hash_token(token), scope, None, ends)
        await finish(self._store.add_tokens([row], delivered))
        return token

    async def case_of(self, case_id: str, token: str, scope: TokenScope) -> Case:
        """The case that a token opens; one that is wrong looks like a case that does not exist.

        The case is read only if the token is right: else how long it takes would tell that it is there. Raises
        `CaseNotFound`, and `LinkExpired` for one that was right until its time was over.
        """
        stored = await self._store.tokens(case_id, scope)
        matches = [token_matches(token, scope, each) for each in [row.token_hash for row in stored] or [None]]
        shown = await self._store.get(case_id) if any(matches) else None
        if shown is None:
            raise CaseNotFound(case_id)
        case = case_of(*shown)
        ends = [row.expires_at for row, same in zip(stored, matches, strict=True) if same]
        if not any(
            self._now() < (self.terms.link_end(case.created_at) if end is None else end) for end in ends
        ):
            raise LinkExpired(case_id)
        return case

    async def revoke(self, case: Case, by: str) -> int:
        """End every token of a case, whoever has it; returns how many there were."""
        now = self._now()
        return await finish(
            self._store.revoke_tokens(
                case.case_id, now, lambda count: entry(now, by, "links_revoked", case, {"count": count})
            )
        )
