"""Cases from end to end: opened, shown, answered, cancelled, expired; and agents' requests as cases."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from assent.clock import Clock, SystemClock
from assent.errors import (
    CaseClosed,
    CaseExpired,
    CaseNotFound,
    HitlInvalidAnswer,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    InlineRefused,
    InvalidProtocolObject,
    InvalidReview,
    NotAuthorized,
)
from assent.ids import fresh_write_id, new_id
from assent.messages import JsonObject
from assent.protocol import (
    Result,
    SigningKey,
    TokenScope,
    iso_duration,
    respondent_digest,
    shown_digest,
    sign_result,
)
from assent.service import transitions
from assent.service.adoption import Rounds, adopted, case_id_of
from assent.service.answers import check_size, clean_answer
from assent.service.budgets import Budgets
from assent.service.case import Case
from assent.service.executed import Executed
from assent.service.followers import Followers
from assent.service.heavy import apart
from assent.service.links import CaseLinks
from assent.service.person import Authorize, Respondent, check_authorized
from assent.service.review import ReviewRequest
from assent.service.rows import case_of, row_of
from assent.service.terms import Terms
from assent.service.transitions import entry
from assent.store.case_rows import CaseRow, Change, NewCase
from assent.store.case_store import CaseStore, Shown
from assent.store.cases import Decide
from assent.store.finish import finish
from assent.store.linking import link_all
from assent.store.recorded import case_content_sha256
from assent.store.rows import RequestRow

if TYPE_CHECKING:
    from assent.checkpointer.sql import SqlCheckpointer

logger = logging.getLogger("assent.service")
_PAGE = 100
TELL_MILLISECONDS = 60_000
"""How long a process has to tell of a case; if it dies, another does after that."""
TELL_AGAIN = (5_000, 3_600_000)
"""After how many milliseconds it is tried again where it failed: at first, and at most."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A case with the tokens that were just issued for it; they are kept nowhere."""

    case: Case
    tokens: Mapping[TokenScope, str]

    def __repr__(self) -> str:
        return f"Issued({self.case.case_id!r})"


@dataclass(frozen=True, slots=True)
class Untold:
    """A case of which somebody is being told, and its row as it was taken."""

    case: Case
    row: CaseRow


class Cases:
    """Everything that can happen to cases; each act is one transaction, and the first one counts."""

    def __init__(
        self,
        checkpointer: SqlCheckpointer,
        *,
        clock: Clock | None = None,
        signing_key: SigningKey | None = None,
        base_url: str = "",
        on_end: Callable[[Case], None] | None = None,
        budgets: Budgets | None = None,
        terms: Terms | None = None,
        authorize: Authorize | None = None,
        secret: str | None = None,
    ) -> None:
        self._engine = checkpointer.engine
        self.store = CaseStore(self._engine)
        self.links = CaseLinks(self.store, self.now, terms, secret)
        self._authorize = authorize
        self.followers = Followers()
        self._signing_key = signing_key
        self._signer = f"{base_url.rstrip('/')}/.well-known/jwks.json"
        self._clock = clock or SystemClock()
        self._on_end = on_end
        self._allowed = (budgets or Budgets()).allowance
        self._executed = Executed(self.store)
        self._left: set[tuple[str, str, int]] = set()

    def now(self) -> int:
        """Milliseconds since 1970."""
        return round(self._clock.now() * 1000)

    # Opening.

    async def create(self, key_id: str, review: ReviewRequest, idempotency_key: str | None = None) -> Issued:
        """Open a case for a caller; the same idempotency key with the same body gives the same case."""
        if review.unknown_actions:
            raise InvalidReview({"inline_actions": f"{review.type} has no {review.unknown_actions[0]!r}"})
        now = self.now()
        case = Case(
            case_id=f"review_{new_id()}",
            type=review.type,
            status="pending",
            version=1,
            prompt=review.prompt,
            created_at=now,
            expires_at=now + round(review.seconds * 1000),
            timeout=iso_duration(review.seconds),
            default_action=review.default_action,
            message=review.message,
            context=review.context,
            key_id=key_id,
            callback_url=review.hitl_callback_url,
            inline_actions=None if review.inline_actions is None else tuple(review.inline_actions),
            verification_policy=review.verification_policy,
            verify_email=review.addresses,
            previous_case_id=review.previous_case_id,
            reminder_at=review.reminders,
        )
        tokens, terms = self.links.fresh(case), self.links.terms
        once = None
        if idempotency_key is not None:
            once = hashlib.sha256(f"{key_id}\0{idempotency_key}".encode()).hexdigest()
        row = row_of(
            case,
            fresh_write_id(),
            idempotency=once,
            fingerprint=review.fingerprint,
            tell_at=now if terms.links == "service" else None,  # the host sends the link
        )
        previous = None if case.previous_case_id is None else (case.previous_case_id, key_id)
        acts = [entry(now, key_id, "created", case, {"content_sha256": case_content_sha256(row)})]
        if terms.links == "caller":
            acts.append(entry(now, key_id, "delivered", case, {"via": "link"}))
        made = case_of(await finish(self.store.create(NewCase(row, tokens, acts, previous, self._allowed))))
        if case.previous_case_id is not None:
            self.followers.wake(case.previous_case_id)
        if made.case_id != case.case_id:
            return Issued(made, await self.links.handed_again(made, key_id))
        return Issued(made, self.links.handed(tokens))

    async def adopt(self, limit: int = _PAGE) -> list[Case]:
        """Make cases of agents' open requests that are none yet; those that this call has made come back."""
        made: list[Case] = []
        threads: dict[str, Rounds] = {}
        for row in await self.store.unadopted(limit):
            try:
                case = await self._adopt(row, threads)
            except Exception as error:  # it is tried again; meanwhile the others go on
                threads.pop(row.thread_id, None)  # another process may have been at it
                self._leave(row, error)
                continue
            if case is not None:
                made.append(case)
        return made

    async def _adopt(self, row: RequestRow, threads: dict[str, Rounds]) -> Case | None:
        """Make a case of a request; ``threads`` has what is known of earlier rounds, so that it is read once."""
        rounds = None
        if row.kind == "approve":
            rounds = threads.get(row.thread_id) or await Rounds.of(self.store, row.thread_id)
            threads[row.thread_id] = rounds
        case = adopted(row, rounds)
        new = row_of(
            case,
            fresh_write_id(),
            question_id=row.question_id,
            round=row.round,
            idempotency=case.case_id,  # whoever comes second finds the first one's
            tell_at=self.now(),
        )
        previous = None if case.previous_case_id is None else (case.previous_case_id, None)
        content = {"content_sha256": case_content_sha256(new)}
        audit = (entry(row.created_at, transitions.AGENT, "created", case, content),)
        try:
            made = await finish(self.store.create(NewCase(new, (), audit, previous)))
        except HitlNoPendingRequest:
            return None  # it has gone with its thread
        if rounds is not None:
            rounds.add(row.question_id, row.round, case.case_id)
        if case.previous_case_id is not None:
            if rounds is not None:
                rounds.followed(case.previous_case_id)
            self.followers.wake(case.previous_case_id)
        return case if made.write_id == new.write_id else None

    async def case_for(self, row: RequestRow) -> Case:
        """The case of an agent's open request, which becomes one now if it is none yet. Raises `CaseNotFound`."""
        case_id = case_id_of(row.thread_id, row.question_id, row.round)
        if await self.store.get(case_id) is None:
            await self._adopt(row, {})
        return await self.get(case_id)

    def _leave(self, row: RequestRow, error: Exception) -> None:
        """Say once that a request cannot be shown."""
        key = (row.thread_id, row.question_id, row.round)
        if key not in self._left:
            self._left.add(key)
            logger.error("request %r cannot become a case: %s", row.question_id, type(error).__name__)

    async def take_untold(self) -> Untold | None:
        """A case of an agent's of which nobody has been told; to be `told` before another process takes it."""
        now = self.now()
        shown = await finish(self.store.take_untold(now, now + TELL_MILLISECONDS))
        return None if shown is None else Untold(case_of(*shown), shown[0])

    async def told(self, untold: Untold) -> None:
        """Somebody has been told."""
        await finish(self.store.told(untold.row))

    async def not_told(self, untold: Untold, error: str) -> int:
        """Nobody could be told, for an error of this type: it is tried again. Returns how often it was by now."""
        noted = await finish(self.store.not_told(untold.row, error[:255], self.now(), *TELL_AGAIN))
        return 0 if noted is None else noted.tries

    async def issue(
        self, case_id: str, scope: TokenScope = "review", *, by: str = "service", days: float | None = None
    ) -> str:
        """A new token that opens a case, besides those that do already; ``by`` is for the audit trail.

        It is good for ``days``, by default as long as the operator lets links live. Raises `CaseNotFound`.
        """
        return await self.links.issue(await self.get(case_id), scope, by, days)

    async def revoke_links(self, case_id: str, *, by: str) -> int:
        """End every link and submit token of a case, whoever has them; returns how many. Raises `CaseNotFound`."""
        return await self.links.revoke(await self.get(case_id), by)

    # Finding.

    async def get(self, case_id: str, key_id: str | None = None) -> Case:
        """A case as it stands; with ``key_id``, only one that this key opened. Raises `CaseNotFound`."""
        shown = await self.store.get(case_id, key_id)
        if shown is None:
            raise CaseNotFound(case_id)
        return case_of(*shown)

    async def with_token(self, case_id: str, token: str, scope: TokenScope) -> Case:
        """The case that a token opens; one that is wrong looks like a case that does not exist.

        Raises `CaseNotFound` and `LinkExpired`.
        """
        return await self.links.case_of(case_id, token, scope)

    async def events(self, case_id: str, after: int) -> list[tuple[int, str, str]]:
        """What happened to a case after one of its events: seq, event, data."""
        return await self.store.events(case_id, after)

    async def events_for(
        self, case_id: str, after: int, key_id: str | None
    ) -> list[tuple[int, str, str]] | None:
        """The same for a key; None if that has been revoked."""
        if key_id is None:
            return await self.store.events(case_id, after)
        return await self.store.events_for(case_id, after, key_id)

    # What happens to them.

    async def opened(self, case: Case) -> Case:
        """A person has opened the page."""
        return case if case.status != "pending" else await self._change(case, transitions.opened(self.now()))

    async def draft(self, case: Case, draft: JsonObject, progress: JsonObject | None = None) -> Case:
        """A person has filled in some of the form. Raises `InvalidReview` if it is more than a case can hold."""
        check_size(draft)
        done = await self._change(case, transitions.drafted(self.now(), draft, progress, case.viewer))
        return replace(done, viewer=case.viewer)

    async def answer(self, case: Case, action: str, data: Mapping[str, Any] | None, who: Respondent) -> Case:
        """A person decides. Raises `InvalidReview`, `CaseClosed`, `CaseExpired`; the first answer counts.

        This is the one place where it is asked whether they may, for every surface. Raises `NotAuthorized`.
        """
        clean = await apart(case.size, clean_answer, case, action, data)
        await self._check_authorized(case, action, who)
        now = self.now()
        result: JsonObject = {"action": action, "data": clean}
        if self._signing_key is not None:
            result = self._signed(result, case, who, self._signing_key, now)
        return await self._change(case, transitions.answered(now, result, who, fresh_write_id()))

    async def _check_authorized(self, case: Case, action: str, who: Respondent) -> None:
        """Raise `NotAuthorized` for whoever may not answer so, with a row in the audit trail."""
        try:
            await check_authorized(self._authorize, who, case, action)
        except NotAuthorized:
            refused = entry(self.now(), who.actor, "refused", case, {"action": action, **who.told})
            await finish(self.store.note([refused]))
            raise

    def _signed(
        self, result: JsonObject, case: Case, who: Respondent, key: SigningKey, now: int
    ) -> JsonObject:
        """The result with a signature over it, over who answered, and over what they were shown."""
        try:
            asked = case.digest or shown_digest(type=case.type, prompt=case.prompt, context=case.context)
            signed = sign_result(
                Result.model_validate(result),
                case_id=case.case_id,
                key=key,
                signed_at=datetime.fromtimestamp(now / 1000, UTC),
                signer=self._signer,
                who=respondent_digest(who.responded_by, who.context),
                shown=asked,
            )
        except InvalidProtocolObject as error:
            raise InvalidReview(error.faults) from None
        return signed.wire()

    async def check(
        self, case: Case, action: str, data: Mapping[str, Any] | None, *, inline: bool = False
    ) -> None:
        """Raise what can be told of an answer beforehand, so that no proof is used up for one that cannot be.

        ``inline`` is for a button in a messenger; `InlineRefused` says where that is not enough.
        """
        if case.status == "expired" or (not case.is_final and case.expires_at <= self.now()):
            raise CaseExpired(case.case_id)
        if case.is_final:
            raise CaseClosed(case.case_id, case.status)
        if inline and case.verify_email is not None:
            why = "A code that is sent by e-mail is needed, on the review page."
            raise InlineRefused(case.case_id, "verification_required", why)
        if inline and case.inline_actions is not None and action not in case.inline_actions:
            why = "This is to be done on the review page."
            raise InlineRefused(case.case_id, "action_not_inline", why)
        await apart(case.size, clean_answer, case, action, data)

    async def cancel(self, case: Case, reason: str, by: str, *, claims: str | None = None) -> Case:
        """Nobody is to decide any more. ``by`` is who is known to say so, ``claims`` the name that they give."""
        decide = transitions.cancelled(self.now(), reason, by, fresh_write_id(), claims)
        return await self._change(case, decide)

    async def cancel_opened_by(self, key_id: str, *, by: str, reason: str) -> int:
        """Cancel every open case that a key has opened; returns how many."""
        count = 0
        while found := await self.store.open_of_key(key_id, _PAGE):
            for case_id in found:
                try:
                    await self._decide(
                        case_id, transitions.cancelled(self.now(), reason, by, fresh_write_id())
                    )
                    count += 1
                except CaseExpired:  # nobody has swept as yet
                    await self._decide(case_id, transitions.expired(self.now(), fresh_write_id()))
                except (CaseClosed, CaseNotFound):
                    pass  # somebody ended or deleted it at this moment
        return count

    async def _change(self, case: Case, decide: Decide) -> Case:
        try:
            row = await self._decide(case.case_id, decide)
        except HitlInvalidAnswer as error:
            raise InvalidReview({"data": "; ".join(error.faults)}) from None
        except (HitlStaleAnswer, HitlNoPendingRequest):  # it was settled elsewhere: end as it did
            row = await self._decide(case.case_id, transitions.followed(self.now()))
            raise CaseClosed(case.case_id, row.status) from None
        return replace(case_of(row), request=case.request)

    async def _decide(self, case_id: str, decide: Decide) -> CaseRow:
        """Change a case, and let those know who follow it."""
        was_open = True

        def noting(row: CaseRow, request: RequestRow | None) -> Change | None:
            nonlocal was_open
            was_open = bool(row.is_open)
            return decide(row, request)

        row = await finish(self.store.change(case_id, noting, self.now()))
        self.followers.wake(case_id)
        if was_open and not row.is_open and self._on_end is not None:
            self._on_end(case_of(row))
        return row

    # What happens by itself.

    async def sweep(self) -> bool:
        """Do what is due: expire, remind, end what was settled elsewhere, note which calls have run; True if
        there may be more."""
        now = self.now()
        expired = await self._each(self.store.due(now, _PAGE), transitions.expired(now, fresh_write_id()))
        reminded = await self._each(self.store.to_remind(now, _PAGE), transitions.reminded(now))
        followed = await self._each(self.store.settled_elsewhere(_PAGE), transitions.followed(now))
        executed = await self._executed.note(now)
        return _PAGE in (expired, reminded, followed, executed)

    async def link(self) -> None:
        """Link the acts that are written into the audit trail."""
        await link_all(self._engine)

    async def _each(self, found: Awaitable[list[str]], decide: Decide) -> int:
        """Change cases one by one, and return how many could be; one that cannot be keeps none from it."""
        done = 0
        for case_id in await found:
            try:
                await self._decide(case_id, decide)
                done += 1
            except (HitlStaleAnswer, HitlNoPendingRequest, CaseNotFound):
                pass  # another settles or deletes it at this moment; the next sweep finds it as it is then
            except Exception:
                logger.exception("case %s could not be changed; it will be tried again", case_id)
        return done

    async def purge(self, older_than_days: float = 30) -> int:
        """Delete cases that ended longer ago, with all that belongs to them; returns how many."""
        before, count = self.now() - round(older_than_days * 86_400_000), 0
        while purged := await finish(self.store.purge(before, _PAGE, self.now())):
            count += purged
        return count


async def purge(checkpointer: SqlCheckpointer, older_than_days: float = 30) -> int:
    """Delete cases that ended longer ago; returns how many."""
    return await Cases(checkpointer).purge(older_than_days)


__all__ = ["CaseRow", "Cases", "Issued", "Respondent", "Shown", "purge"]
