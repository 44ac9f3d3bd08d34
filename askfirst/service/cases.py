"""Cases: opened, adopted, answered, cancelled, expired and purged; their followers; approved calls that have run."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from askfirst.clock import DAY, HOUR, MINUTE, Clock, SystemClock, milliseconds, seconds, to_milliseconds
from askfirst.concurrency import finish
from askfirst.errors import (
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
from askfirst.ids import case_id_of, fresh_write_id, new_id
from askfirst.messages import JsonObject
from askfirst.protocol import (
    Result,
    SigningKey,
    TokenScope,
    iso_duration,
    respondent_digest,
    shown_digest,
    sign_result,
)
from askfirst.service import transitions
from askfirst.service.adoption import Rounds, adopted_case
from askfirst.service.answers import DECLINE, check_size, clean_answer, declining
from askfirst.service.budgets import Budgets
from askfirst.service.case import Case, case_of, row_of
from askfirst.service.links import CaseLinks, Terms
from askfirst.service.new_review import ReviewRequest
from askfirst.service.person import Authorize, Respondent, check_authorized
from askfirst.service.transitions import NO_FORM, Pressed, entry
from askfirst.service.worker_threads import run_by_size
from askfirst.store import audit, case_access, case_queues
from askfirst.store import cases as case_store
from askfirst.store.audit import Entry, case_content_sha256
from askfirst.store.audit_chain import link_all
from askfirst.store.case_queues import EndedEffect
from askfirst.store.case_rows import CaseRow, Change, NewCase
from askfirst.store.cases import Decide
from askfirst.store.engine import Engine
from askfirst.store.rows import RequestRow
from askfirst.store.statement import Transaction

if TYPE_CHECKING:
    from askfirst.checkpointer.sql import SqlCheckpointer


# The followers of a case in this process. They are woken when this or another process changes the case.


class Followers:
    """Wakes the event streams that wait for a case to change. They then read the change from the store."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    @property
    def any(self) -> bool:
        """Whether any case has a follower."""
        return bool(self._waiting)

    @contextmanager
    def follow(self, case_id: str) -> Generator[asyncio.Event]:
        """An event that is set whenever the case changes. Clear it before you read the case."""
        changed = asyncio.Event()
        self._waiting.setdefault(case_id, set()).add(changed)
        try:
            yield changed
        finally:
            followers = self._waiting[case_id]
            followers.discard(changed)
            if not followers:
                del self._waiting[case_id]

    def wake(self, case_id: str) -> None:
        """Wake the followers of a case, because it has changed or may have changed."""
        for changed in self._waiting.get(case_id, ()):
            changed.set()

    def follows(self, case_id: str) -> bool:
        """Whether this case has a follower."""
        return case_id in self._waiting

    def wake_all(self) -> None:
        """Wake the followers of all cases."""
        for case_id in list(self._waiting):
            self.wake(case_id)


# Approved calls that have run (they have ended effects in the ledger) are recorded in the audit trail.


NEAR = HOUR
"""Cases that ended within this many milliseconds are checked on every sweep, because most calls run soon."""
FAR = 7 * DAY
"""Older cases, up to this age in milliseconds, are checked every `FAR_EVERY` milliseconds."""
FAR_EVERY = MINUTE
_PAGE = 100


class Executed:
    """Records calls that have ended in the audit trail.

    Any number of processes may do so: each call is recorded once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._far_at = 0

    async def note(self, now: int) -> int:
        """Record a page of calls that have ended; returns how many were found."""
        age = NEAR
        if now >= self._far_at:
            self._far_at, age = now + FAR_EVERY, FAR
        found = await self._engine.read(partial(case_queues.executed, now - age, _PAGE))
        for case_id in found:
            await finish(self._engine.write(partial(case_queues.note_executed, case_id, _executed_entry)))
        return len(found)


def _executed_entry(row: CaseRow, effect: EndedEffect) -> Entry:
    """The audit row of a call that has ended, with the digest of the call that ran: an edited call's own digest."""
    detail = {
        "type": row.type,
        "digest": effect.digest,
        "tool_name": effect.tool_name,
        "attempt": effect.attempt,
        "started_at": effect.started_at,
        "ended_at": effect.ended_at,
    }
    return Entry(at=effect.ended_at, actor="agent", act="case.executed", subject=row.case_id, detail=detail)


logger = logging.getLogger("askfirst.service")
HOLD_MARGIN = 1_000
"""A hold ends at least this many milliseconds before the deadline of its case."""
ON_CASE_LEASE_MILLISECONDS = MINUTE
"""The lease on a call of ``on_case``, in milliseconds. If this process dies, another one calls it after that."""
ON_CASE_BACKOFF = (5_000, HOUR)
"""The back-off after ``on_case`` failed, in milliseconds: the first and the longest pause."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A case with the tokens that were just issued for it. The tokens themselves are not stored."""

    case: Case
    tokens: Mapping[TokenScope, str]

    def __repr__(self) -> str:
        return f"Issued({self.case.case_id!r})"


@dataclass(frozen=True, slots=True)
class OnCaseCall:
    """A call of ``on_case`` that this process has to make, under a lease: the case, and its row when it was taken."""

    case: Case
    row: CaseRow


class Cases:
    """All operations on cases. Each is one transaction; of several answers to a case the first one counts."""

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
        self.engine = checkpointer.engine
        self.links = CaseLinks(self.engine, self.now, terms, secret)
        self._authorize = authorize
        self.followers = Followers()
        self._signing_key = signing_key
        self._signer = f"{base_url.rstrip('/')}/.well-known/jwks.json"
        self._clock = clock or SystemClock()
        self._on_end = on_end
        self._allowance = (budgets or Budgets()).allowance
        self._executed = Executed(self.engine)
        self._logged_failures: set[tuple[str, str, int]] = set()

    def now(self) -> int:
        """The current time in the unit of rows: milliseconds since 1970 (UTC)."""
        return milliseconds(self._clock)

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
            created_at=seconds(now),
            expires_at=seconds(now) + review.seconds,
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
            shown=review.shown,
            reminder_at=review.reminders,
        )
        tokens, terms = self.links.new_rows(case), self.links.terms
        once = None
        if idempotency_key is not None:
            once = hashlib.sha256(f"{key_id}\0{idempotency_key}".encode()).hexdigest()
        row = row_of(
            case,
            fresh_write_id(),
            idempotency=once,
            fingerprint=review.fingerprint,
            tell_at=now if terms.links == "service" else None,  # on_case then has to send the link
            planned=int(terms.links == "service" or review.notify),
        )
        previous = None if case.previous_case_id is None else (case.previous_case_id, key_id)
        acts = [entry(now, key_id, "created", case, {"content_sha256": case_content_sha256(row)})]
        if terms.links == "caller":
            acts.append(entry(now, key_id, "delivered", case, {"via": "link"}))
        made = case_of(await self._create(NewCase(row, tokens, acts, previous, self._allowance)))
        if case.previous_case_id is not None:
            self.followers.wake(case.previous_case_id)
        if made.case_id != case.case_id:
            return Issued(made, await self.links.reissued(made, key_id))
        return Issued(made, self.links.tokens_of(tokens))

    async def _create(self, new: NewCase) -> CaseRow:
        landed = partial(case_store.changed, new.row.case_id, new.row.write_id)
        return await finish(self.engine.write(partial(case_store.create, new), landed))

    async def adopt(self, limit: int = _PAGE) -> list[Case]:
        """Make cases for open requests of agents that have no case yet; returns the cases that this call made."""
        made: list[Case] = []
        threads: dict[str, Rounds] = {}
        for row in await self.engine.read(partial(case_store.unadopted, limit)):
            try:
                case = await self._adopt(row, threads)
            except Exception as error:  # retried at the next interval; the other requests are not affected
                threads.pop(row.thread_id, None)  # the cached rounds may be out of date
                self._log_failed_adoption(row, error)
                continue
            if case is not None:
                made.append(case)
        return made

    async def _adopt(self, row: RequestRow, threads: dict[str, Rounds]) -> Case | None:
        """Make the case of a request; ``threads`` caches the earlier rounds of each thread."""
        rounds = None
        if row.kind == "approve":
            rounds = threads.get(row.thread_id) or await Rounds.of(self.engine, row.thread_id)
            threads[row.thread_id] = rounds
        case = adopted_case(row, rounds)
        new = row_of(
            case,
            fresh_write_id(),
            question_id=row.question_id,
            round=row.round,
            idempotency=case.case_id,  # so that a second process finds the case of the first
            tell_at=self.now(),
            planned=1,
        )
        previous = None if case.previous_case_id is None else (case.previous_case_id, None)
        content = {"content_sha256": case_content_sha256(new)}
        acts = (entry(row.created_at, transitions.AGENT, "created", case, content),)
        try:
            made = await self._create(NewCase(new, (), acts, previous))
        except HitlNoPendingRequest:
            return None  # the request was deleted with its thread
        if rounds is not None:
            rounds.add(row.question_id, row.round, case.case_id)
        if case.previous_case_id is not None:
            if rounds is not None:
                rounds.remove(case.previous_case_id)
            self.followers.wake(case.previous_case_id)
        return case if made.write_id == new.write_id else None

    async def case_for(self, row: RequestRow) -> Case:
        """The case of an agent's open request; it is made now if it does not exist yet. Raises `CaseNotFound`."""
        case_id = case_id_of(row.thread_id, row.question_id, row.round)
        if await self.engine.read(partial(case_store.get, case_id)) is None:
            await self._adopt(row, {})
        return await self.get(case_id)

    def _log_failed_adoption(self, row: RequestRow, error: Exception) -> None:
        """Log once that a request cannot become a case."""
        key = (row.thread_id, row.question_id, row.round)
        if key not in self._logged_failures:
            self._logged_failures.add(key)
            logger.error("request %r cannot become a case: %s", row.question_id, type(error).__name__)

    async def take_on_case_call(self) -> OnCaseCall | None:
        """Take, under a lease, a case for which ``on_case`` is due.

        Call `on_case_succeeded` or `on_case_failed` before the lease ends.
        """
        now = self.now()
        take = partial(case_queues.take_untold, now, now + ON_CASE_LEASE_MILLISECONDS)
        shown = await finish(self.engine.write(take))
        return None if shown is None else OnCaseCall(case_of(*shown), shown[0])

    async def on_case_succeeded(self, call: OnCaseCall) -> None:
        """Record that ``on_case`` succeeded for a case."""
        await finish(self.engine.write(partial(case_queues.told, call.row)))

    async def on_case_failed(self, call: OnCaseCall, error: str) -> int:
        """Record that ``on_case`` failed, with the type of its error.

        It is retried. Returns the number of attempts.
        """
        note = partial(case_queues.not_told, call.row, error[:255], self.now(), *ON_CASE_BACKOFF)
        noted = await finish(self.engine.write(note))
        return 0 if noted is None else noted.tries

    async def issue(
        self, case_id: str, scope: TokenScope = "review", *, by: str = "service", days: float | None = None
    ) -> str:
        """Issue a further token for a case; ``by`` is the actor for the audit trail.

        The token is valid for ``days``, by default for the operator's ``link_days``. Raises `CaseNotFound`.
        """
        return await self.links.issue(await self.get(case_id), scope, by, days)

    async def revoke_links(self, case_id: str, *, by: str) -> int:
        """Revoke every link and submit token of a case; returns how many. Raises `CaseNotFound`."""
        return await self.links.revoke(await self.get(case_id), by)

    # Reading.

    async def get(self, case_id: str, key_id: str | None = None) -> Case:
        """A case; with ``key_id``, only a case that this key opened. Raises `CaseNotFound`."""
        shown = await self.engine.read(partial(case_store.shown, case_id, key_id))
        if shown is None:
            raise CaseNotFound(case_id)
        return case_of(*shown)

    async def with_token(self, case_id: str, token: str, scope: TokenScope) -> Case:
        """The case that a token opens. Raises `CaseNotFound`, also for a wrong token, and `LinkExpired`."""
        return await self.links.case_of(case_id, token, scope)

    async def events(self, case_id: str, after: int) -> list[tuple[int, str, str]]:
        """The events of a case after the event number ``after``: each as number, name and data."""
        return await self.engine.read(partial(case_store.events, case_id, after))

    async def events_for(
        self, case_id: str, after: int, key_id: str | None
    ) -> list[tuple[int, str, str]] | None:
        """The same as `events`, for an API key; None if the key has been revoked."""
        if key_id is None:
            return await self.events(case_id, after)
        return await self.engine.read(partial(case_access.events_for, case_id, after, key_id))

    # Changing.

    async def opened(self, case: Case) -> Case:
        """Record that a person has opened the page."""
        return case if case.status != "pending" else await self._change(case, transitions.opened(self.now()))

    async def draft(self, case: Case, draft: JsonObject, progress: JsonObject | None = None) -> Case:
        """Store what a person has filled in so far. Raises `InvalidReview` if the draft is too large."""
        check_size(draft)
        done = await self._change(case, transitions.drafted(self.now(), draft, progress, case.viewer))
        known = ("viewer", "reader", "verify_email", "is_stepped_up")
        return replace(done, **{name: getattr(case, name) for name in known})

    async def answer(
        self,
        case: Case,
        action: str,
        data: Mapping[str, Any] | None,
        who: Respondent,
        pressed: Pressed = NO_FORM,
        hold_seconds: float = 0.0,
    ) -> Case:
        """Answer a case for a person; the first answer counts. Raises `InvalidReview`, `CaseClosed`, `CaseExpired`.

        Every surface answers through this method, and it checks whether the person may answer. Raises
        `NotAuthorized`. With ``hold_seconds`` the decision is held: it can be undone for that time, and counts after
        it, or a second before the deadline if that is earlier. Raises `CaseHeld` while another decision is held.
        """
        clean = await run_by_size(case.size, clean_answer, case, action, data)
        await self._check_authorized(case, action, who)
        now = self.now()
        result: JsonObject = {"action": action, "data": clean}
        if self._signing_key is not None:
            result = self._signed(result, case, who, self._signing_key, now)
        return await self._decided(case, result, who, pressed, hold_seconds)

    async def decline(
        self, case: Case, note: str | None, who: Respondent, pressed: Pressed, hold_seconds: float
    ) -> Case:
        """Cancel a case because a person cannot answer it, with their words as its reason. Raises `NotAuthorized`.

        Like an answer, it is held for ``hold_seconds``.
        """
        await self._check_authorized(case, DECLINE, who)
        return await self._decided(case, declining(note), who, pressed, hold_seconds)

    async def _decided(
        self, case: Case, result: JsonObject, who: Respondent, pressed: Pressed, hold_seconds: float
    ) -> Case:
        now = self.now()
        until = min(now + round(hold_seconds * 1000), to_milliseconds(case.expires_at) - HOLD_MARGIN)
        if until > now:
            return await self._change(case, transitions.held(now, until, result, who, pressed))
        return await self._change(case, transitions.answered(now, result, who, fresh_write_id(), pressed))

    async def undo(self, case: Case, mark: str) -> Case:
        """Undo the held decision of the browser with this mark, or of the login in ``case.reader``.

        Raises `CaseHeld` if somebody else made it.
        """
        return await self._change(case, transitions.undone(self.now(), mark, case.reader))

    async def _check_authorized(self, case: Case, action: str, who: Respondent) -> None:
        """Raise `NotAuthorized` if the person may not answer so, and write the refusal to the audit trail."""
        try:
            await check_authorized(self._authorize, who, case, action)
        except NotAuthorized:
            refused = entry(self.now(), who.actor, "refused", case, {"action": action, **who.audit_details})
            await finish(self.engine.write(partial(audit.append, [refused])))
            raise

    def _signed(
        self, result: JsonObject, case: Case, who: Respondent, key: SigningKey, now: int
    ) -> JsonObject:
        """The result with a signature. It covers the result, the person who answered, and what they were shown."""
        try:
            asked = case.digest or shown_digest(type=case.type, prompt=case.prompt, context=case.context)
            signed = sign_result(
                Result.model_validate(result),
                case_id=case.case_id,
                key=key,
                signed_at=datetime.fromtimestamp(seconds(now), UTC),
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
        """Check an answer before a proof or a code is used up for it; raises as `answer` does.

        ``inline`` is for a button in a messenger; then it raises `InlineRefused` if the page is needed.
        """
        if case.status == "expired" or (not case.is_final and case.expires_at <= seconds(self.now())):
            raise CaseExpired(case.case_id)
        if case.is_final:
            raise CaseClosed(case.case_id, case.status)
        if inline and case.verify_email is not None:
            why = "This needs a code by e-mail, so it is decided on the review page."
            raise InlineRefused(case.case_id, "verification_required", why)
        if inline and case.inline_actions is not None and action not in case.inline_actions:
            why = "This can only be decided on the review page."
            raise InlineRefused(case.case_id, "action_not_inline", why)
        await run_by_size(case.size, clean_answer, case, action, data)

    async def cancel(self, case: Case, reason: str, by: str, *, claims: str | None = None) -> Case:
        """Cancel a case. ``by`` is the verified actor, ``claims`` the name that they give for themselves."""
        decide = transitions.cancelled(self.now(), reason, by, fresh_write_id(), claims)
        return await self._change(case, decide)

    async def cancel_opened_by(self, key_id: str, *, by: str, reason: str) -> int:
        """Cancel every open case that a key has opened; returns how many."""
        count = 0
        while found := await self.engine.read(partial(case_store.open_of_key, key_id, _PAGE)):
            for case_id in found:
                try:
                    await self._apply(
                        case_id, transitions.cancelled(self.now(), reason, by, fresh_write_id())
                    )
                    count += 1
                except CaseExpired:  # its time is up, and no sweep has expired it yet
                    await self._apply(case_id, transitions.expired(self.now(), fresh_write_id()))
                except (CaseClosed, CaseNotFound):
                    pass  # ended or deleted concurrently
        return count

    async def _change(self, case: Case, decide: Decide) -> Case:
        try:
            row = await self._apply(case.case_id, decide)
        except HitlInvalidAnswer as error:
            raise InvalidReview({"data": "; ".join(error.faults)}) from None
        except (HitlStaleAnswer, HitlNoPendingRequest):  # settled elsewhere: the case ends as the request did
            row = await self._apply(case.case_id, transitions.settled_elsewhere(self.now()))
            raise CaseClosed(case.case_id, row.status) from None
        return replace(case_of(row), request=case.request)

    async def _apply(self, case_id: str, decide: Decide) -> CaseRow:
        """Run a transition of a case in a transaction, and wake the case's followers."""
        was_open = True

        def noting(row: CaseRow, request: RequestRow | None) -> Change | None:
            nonlocal was_open
            was_open = bool(row.is_open)
            return decide(row, request)

        write_id = fresh_write_id()
        change = partial(case_store.change, case_id, noting, self.now(), write_id)
        row = await finish(self.engine.write(change, partial(case_store.changed, case_id, write_id)))
        self.followers.wake(case_id)
        if was_open and not row.is_open and self._on_end is not None:
            self._on_end(case_of(row))
        return row

    # Sweeps.

    async def sweep(self) -> bool:
        """Do what is due for cases; True if there may be more.

        Answer cases with held decisions whose hold has ended, expire cases, send reminders, end cases whose requests
        were settled elsewhere, and record calls that have run.
        """
        now = self.now()
        held = partial(case_store.held, now, _PAGE)
        released = await self._change_each(held, transitions.hold_ended(now, fresh_write_id()))
        due = partial(case_store.due, now, _PAGE)
        expired = await self._change_each(due, transitions.expired(now, fresh_write_id()))
        reminded = await self._change_each(
            partial(case_store.to_remind, now, _PAGE), transitions.reminded(now)
        )
        followed = await self._change_each(
            partial(case_store.settled_elsewhere, _PAGE), transitions.settled_elsewhere(now)
        )
        executed = await self._executed.note(now)
        return _PAGE in (released, expired, reminded, followed, executed)

    async def link(self) -> None:
        """Link new acts into the audit chain."""
        await link_all(self.engine)

    async def _change_each(self, found: Callable[[], Transaction[list[str]]], decide: Decide) -> int:
        """Run a transition of each case, and return for how many. A case that fails does not stop the others."""
        done = 0
        for case_id in await self.engine.read(found):
            try:
                await self._apply(case_id, decide)
                done += 1
            except (HitlStaleAnswer, HitlNoPendingRequest, CaseNotFound):
                pass  # settled or deleted concurrently; the next sweep reads it again
            except Exception:
                logger.exception("case %s could not be changed; it will be tried again", case_id)
        return done

    async def purge(self, older_than_days: float = 30) -> int:
        """Delete the cases that ended more than ``older_than_days`` ago, with all their rows; returns how many."""
        before, count = self.now() - round(older_than_days * DAY), 0
        while purged := await finish(self.engine.write(partial(case_store.purge, before, _PAGE, self.now()))):
            count += purged
        return count


async def purge(checkpointer: SqlCheckpointer, older_than_days: float = 30) -> int:
    """Delete the cases that ended more than ``older_than_days`` ago; returns how many."""
    return await Cases(checkpointer).purge(older_than_days)


__all__ = ["CaseRow", "Cases", "Issued", "Respondent", "purge"]
