"""An open store of cases: the transactions, each handed to the engine. What it returns are futures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from assent.store import (
    audit,
    callbacks,
    case_tokens,
    cases,
    counts,
    email_codes,
    executed,
    keys,
    polls,
    streams,
    telling,
)
from assent.store.audit import Entry
from assent.store.case_rows import CallbackRow, CaseRow, NewCase, Round, TokenRow
from assent.store.counts import Refused, Use
from assent.store.email_codes import CodeRow
from assent.store.engine import Engine
from assent.store.rows import RequestRow, fresh_write_id
from assent.store.statement import Transaction
from assent.store.store import Job
from assent.store.streams import StreamRow
from assent.store.telling import FailedNotice

Shown = tuple[CaseRow, RequestRow | None]
"""A case, and the request that it shows."""


class CaseStore:
    """Everything that can be done to the service's tables, over an engine that is open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, new: NewCase) -> Job[CaseRow]:
        """Open a case."""
        landed = partial(cases.changed, new.row.case_id, new.row.write_id)
        return self._engine.write(partial(cases.create, new), landed)

    def change(self, case_id: str, decide: cases.Decide, now: int) -> Job[CaseRow]:
        """Change a case as a function of how it stands."""
        write_id = fresh_write_id()
        return self._engine.write(
            partial(cases.change, case_id, decide, now, write_id), partial(cases.changed, case_id, write_id)
        )

    def get(self, case_id: str, key_id: str | None = None) -> Job[Shown | None]:
        """A case as it stands; with ``key_id``, only one that this key opened."""
        return self._engine.read(partial(_shown, case_id, key_id))

    def tokens(self, case_id: str, scope: str) -> Job[list[TokenRow]]:
        """The tokens of a scope that open a case, or did until their time was over."""
        return self._engine.read(partial(case_tokens.of_scope, case_id, scope))

    def add_tokens(self, tokens: Sequence[TokenRow], entries: Sequence[Entry]) -> Job[None]:
        """Let more tokens open a case."""
        return self._engine.write(partial(case_tokens.add, tokens, entries))

    def tokens_again(
        self, fresh: Sequence[TokenRow], hashed: case_tokens.Hashed, entries: Sequence[Entry]
    ) -> Job[dict[str, str]]:
        """The salts of the tokens that a caller was handed before."""
        return self._engine.write(partial(case_tokens.again, fresh, hashed, entries))

    def revoke_tokens(self, case_id: str, now: int, entry_of: Callable[[int], Entry]) -> Job[int]:
        """End all tokens of a case."""
        return self._engine.write(partial(case_tokens.revoke, case_id, now, entry_of))

    def note(self, entries: Sequence[Entry]) -> Job[None]:
        """Note in the audit trail what changed nothing."""
        return self._engine.write(partial(audit.append, entries))

    def open_of_key(self, key_id: str, limit: int) -> Job[list[str]]:
        """Cases that are open and that a key has opened."""
        return self._engine.read(partial(cases.open_of_key, key_id, limit))

    def asked_by_key(self, case_id: str, key_hash: str) -> Job[polls.Asked | None]:
        """What whoever shows a key finds under a case's id; None if the key is not good."""
        return self._engine.read(partial(polls.by_key, case_id, key_hash))

    def asked_by_owner(self, case_id: str, owner: str) -> Job[polls.Asked]:
        """What an owner finds under a case's id."""
        return self._engine.read(partial(polls.by_owner, case_id, owner))

    def count(
        self,
        case_id: str,
        kind: str,
        kept: Sequence[int],
        now: int,
        limit: polls.Limit,
        *,
        one_more: bool = True,
    ) -> Job[int | None]:
        """Count that a case is asked for; or after how many milliseconds it may be."""
        counting = partial(polls.count, case_id, kind, kept, now, limit, one_more=one_more)
        return self._engine.write(counting)

    def busy(self, since: int, kind: str) -> Job[list[str]]:
        """Cases that were often asked for since then."""
        return self._engine.read(partial(polls.busy, since, kind))

    def of_request(self, thread_id: str, question_id: str, round: int) -> Job[CaseRow | None]:
        """The case that shows a request."""
        return self._engine.read(partial(cases.of_request, thread_id, question_id, round))

    def unadopted(self, limit: int) -> Job[list[RequestRow]]:
        """Open requests that are no cases yet."""
        return self._engine.read(partial(cases.unadopted, limit))

    def rounds(self, thread_id: str) -> Job[list[Round]]:
        """The cases of a thread's calls."""
        return self._engine.read(partial(cases.rounds, thread_id))

    def request(self, thread_id: str, question_id: str, round: int) -> Job[RequestRow | None]:
        """One round of a request."""
        return self._engine.read(partial(cases.request, thread_id, question_id, round))

    def open_count(self) -> Job[int]:
        """How many cases are open."""
        return self._engine.read(cases.open_count)

    def settled_elsewhere(self, limit: int) -> Job[list[str]]:
        """Open cases whose requests are settled, or gone."""
        return self._engine.read(partial(cases.settled_elsewhere, limit))

    def due(self, now: int, limit: int) -> Job[list[str]]:
        """Open cases whose time is up."""
        return self._engine.read(partial(cases.due, now, limit))

    def to_remind(self, now: int, limit: int) -> Job[list[str]]:
        """Open cases of which somebody is to be reminded."""
        return self._engine.read(partial(cases.to_remind, now, limit))

    def events(self, case_id: str, after: int) -> Job[list[tuple[int, str, str]]]:
        """What happened to a case after one of its events."""
        return self._engine.read(partial(cases.events, case_id, after))

    def events_for(self, case_id: str, after: int, key_id: str) -> Job[list[tuple[int, str, str]] | None]:
        """The same for a key; None if it is revoked."""
        return self._engine.read(partial(_events_for, case_id, after, key_id))

    def recent(self, since: int) -> Job[list[tuple[str, int]]]:
        """Which cases had events since then."""
        return self._engine.read(partial(cases.recent, since))

    def purge(self, before: int, limit: int, now: int) -> Job[int]:
        """Delete cases that ended before then."""
        return self._engine.write(partial(cases.purge, before, limit, now))

    def spend(self, digest: str, now: int) -> Job[bool]:
        """Use something up that counts once; False if it was used before."""
        return self._engine.write(partial(cases.spend, digest, now))

    def keep_code(self, code: CodeRow, since: int, most: int, entries: Sequence[Entry]) -> Job[bool]:
        """Keep an e-mail code; False if there were too many since then."""
        return self._engine.write(partial(email_codes.keep, code, since, most, entries))

    def try_codes(self, case_id: str, now: int, most: int) -> Job[list[CodeRow]]:
        """The e-mail codes that a try may be compared with; it counts for each."""
        return self._engine.write(partial(email_codes.attempt, case_id, now, most))

    def use_code(self, code: CodeRow, now: int) -> Job[bool]:
        """Use an e-mail code up; False if it was used before."""
        return self._engine.write(partial(email_codes.use, code, now))

    def executed(self, since: int, limit: int) -> Job[list[str]]:
        """Cases whose calls have run to their end."""
        return self._engine.read(partial(executed.ended, since, limit))

    def note_executed(self, case_id: str, entry_of: executed.EntryOf) -> Job[bool]:
        """Note that a case's call has run to its end; False if that was noted before."""
        return self._engine.write(partial(executed.note, case_id, entry_of))

    def take_untold(self, now: int, until: int) -> Job[Shown | None]:
        """Take a case of which nobody has been told."""
        return self._engine.write(partial(telling.take, now, until))

    def told(self, row: CaseRow) -> Job[bool]:
        """Note that somebody was told of a case."""
        return self._engine.write(partial(telling.told, row))

    def not_told(
        self, row: CaseRow, error: str, now: int, first: int, longest: int
    ) -> Job[FailedNotice | None]:
        """Note that nobody could be told of a case, and when to try again."""
        return self._engine.write(partial(telling.failed, row, error, now, first, longest))

    def take_callbacks(
        self, now: int, until: int, limit: int, busy: Mapping[str, int]
    ) -> Job[list[CallbackRow]]:
        """Take callbacks that are due, of each key its share."""
        return self._engine.write(partial(callbacks.take, now, until, limit, busy, fresh_write_id()))

    def callback_done(
        self, row: CallbackRow, due_at: int | None, outcome: str | None, *, counts: bool = True
    ) -> Job[bool]:
        """Note how an attempt went."""
        return self._engine.write(partial(callbacks.done, row, due_at, outcome, counts=counts))

    def spend_all(self, uses: Sequence[Use], now: int) -> Job[Refused | None]:
        """Use all of these allowances, or none of them."""
        return self._engine.write(partial(counts.spend, uses, now))

    def forget_counts(self, before: int) -> Job[int]:
        """Forget what was not used since then."""
        return self._engine.write(partial(counts.forget, before))

    def begin_stream(self, row: StreamRow, now: int, of_key: int, of_address: int) -> Job[str | None]:
        """Note an open stream; or the budget that has none left."""
        return self._engine.write(partial(streams.begin, row, now, of_key, of_address))

    def renew_streams(self, process: str, until: int) -> Job[int]:
        """Say that a process's streams are open still."""
        return self._engine.write(partial(streams.renew, process, until))

    def end_stream(self, stream_id: str) -> Job[None]:
        """Note that a stream has ended."""
        return self._engine.write(partial(streams.end, stream_id))

    def forget_streams(self, now: int) -> Job[int]:
        """Forget the streams of processes that died."""
        return self._engine.write(partial(streams.forget, now))


def _shown(case_id: str, key_id: str | None = None) -> Transaction[Shown | None]:
    row = yield from cases.get(case_id, key_id)
    return None if row is None else (row, (yield from cases.request_of(row)))


def _events_for(case_id: str, after: int, key_id: str) -> Transaction[list[tuple[int, str, str]] | None]:
    found = yield from cases.events(case_id, after)
    return None if (yield from keys.is_revoked(key_id)) else found
