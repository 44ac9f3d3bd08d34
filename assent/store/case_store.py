"""An open store of cases: the transactions, each handed to the engine. What it returns are futures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from assent.store import callbacks, cases, email_codes, executed, keys, polls, telling
from assent.store.audit import Entry
from assent.store.case_rows import CallbackRow, CaseRow, NewCase
from assent.store.email_codes import CodeRow
from assent.store.engine import Engine
from assent.store.rows import RequestRow, fresh_write_id
from assent.store.statement import Transaction
from assent.store.store import Job

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

    def get(self, case_id: str) -> Job[Shown | None]:
        """A case as it stands."""
        return self._engine.read(partial(_shown, case_id))

    def with_tokens(self, case_id: str, scope: str) -> Job[tuple[Shown | None, list[str]]]:
        """A case, and what the tokens of a scope hash to that open it."""
        return self._engine.read(partial(_shown_with_tokens, case_id, scope))

    def add_tokens(
        self, case_id: str, tokens: Sequence[tuple[str, str]], entries: Sequence[Entry]
    ) -> Job[None]:
        """Let more tokens open a case."""
        return self._engine.write(partial(cases.add_tokens, case_id, tokens, entries))

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

    def rounds(self, thread_id: str) -> Job[list[tuple[CaseRow, RequestRow]]]:
        """The cases of a thread's calls."""
        return self._engine.read(partial(cases.rounds, thread_id))

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

    def purge(self, before: int, limit: int) -> Job[int]:
        """Delete cases that ended before then."""
        return self._engine.write(partial(cases.purge, before, limit))

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

    def take_callbacks(self, now: int, until: int, limit: int) -> Job[list[CallbackRow]]:
        """Take callbacks that are due."""
        return self._engine.write(partial(callbacks.take, now, until, limit, fresh_write_id()))

    def callback_done(self, row: CallbackRow, due_at: int | None, outcome: str) -> Job[bool]:
        """Note how an attempt went."""
        return self._engine.write(partial(callbacks.done, row, due_at, outcome))


def _shown(case_id: str) -> Transaction[Shown | None]:
    row = yield from cases.get(case_id)
    return None if row is None else (row, (yield from cases.request_of(row)))


def _shown_with_tokens(case_id: str, scope: str) -> Transaction[tuple[Shown | None, list[str]]]:
    row, hashes = yield from cases.with_tokens(case_id, scope)
    return (None if row is None else (row, (yield from cases.request_of(row)))), hashes


def _events_for(case_id: str, after: int, key_id: str) -> Transaction[list[tuple[int, str, str]] | None]:
    found = yield from cases.events(case_id, after)
    return None if (yield from keys.is_revoked(key_id)) else found
