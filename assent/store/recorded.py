"""What the audit trail says of requests and cases: hashes of what was asked, shown and answered.

The hashes are taken over the JSON as it was encoded, before anything is encrypted.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from assent.account import os_account
from assent.store.audit import CLOCK, Entry, claimed
from assent.store.case_rows import CaseRow
from assent.store.rows import RequestRow

Row = Mapping[str, Any]


def sha256_of(*parts: Any) -> str:
    """SHA-256 (hex) over the parts as a JSON array without spaces."""
    return hashlib.sha256(to_json(parts)).hexdigest()


def content_sha256(row: Row) -> str:
    """The hash of what is asked: of a request's row, or of what its row is made from."""
    return sha256_of(row["kind"], row["payload"], row["digest"], row["created_at"], row["expires_at"])


def result_sha256(row: Row) -> str:
    """The hash of how a request was settled, and by whom: of its row, or of a statement's parameters.

    The write's id is a random number that goes with the request: without it, nobody can guess a short answer.
    """
    names = ("write_id", "status", "answer", "reason", "answered_by", "via")
    return sha256_of(*(row[name] for name in names))


def opened(row: Row, now: int) -> Entry:
    """A request is opened."""
    detail = {"question_id": row["question_id"], "kind": row["kind"], "content_sha256": content_sha256(row)}
    if row["digest"] is not None:
        detail["digest"] = row["digest"]
    if row["run_id"] is not None:
        detail["run_id"] = row["run_id"]
    return Entry("request.opened", row["thread_id"], os_account(), now, detail)


def settled(params: Row, asked: RequestRow | None = None, actor: str | None = None) -> Entry:
    """A request is settled, as the statement's parameters say.

    ``asked`` is the request as it stood, where it was read. ``actor`` is who is known to have done it: else the
    account that runs this process, or the clock for a time-out.
    """
    status = params["status"]
    who = CLOCK if status == "timed_out" else actor or os_account()
    detail: dict[str, Any] = {
        "question_id": params["question_id"],
        "result_sha256": result_sha256(params),
        **claimed(params["answered_by"], who),
    }
    if params["via"] is not None:
        detail["via"] = params["via"]
    if params.get("shown") is not None:
        detail["shown"] = params["shown"]
    if asked is not None:
        detail["content_sha256"] = content_sha256(asked._asdict())
        detail["round"] = asked.round
        detail["kind"] = asked.kind
        if asked.kind == "approve" and params["answer"] is not None:
            detail["decision"] = from_json(params["answer"]).get("decision")
    return Entry(f"request.{status}", params["thread_id"], who, params["now"], detail)


def withdrawn(thread_id: str, question_id: str, now: int) -> Entry:
    """A request goes with its thread, unanswered."""
    return Entry("request.withdrawn", thread_id, os_account(), now, {"question_id": question_id})


def case_content_sha256(row: CaseRow) -> str:
    """The hash of what a case asks and shows, and how it may be answered."""
    names = ("type", "body", "key_id", "thread_id", "question_id", "round", "created_at", "expires_at")
    return sha256_of(*(getattr(row, name) for name in names))


def case_result_sha256(row: CaseRow) -> str:
    """The hash of how a case ended, and by whom: its facts, but for the case that follows it, which comes later.

    Among them is a random number, ``salt``, that goes with the case: without it, nobody can guess a short answer.
    """
    facts = from_json(row.facts)
    facts.pop("next_case_id", None)
    return sha256_of(row.status, row.ended_at, sorted(facts.items()))


def salted(row: CaseRow) -> CaseRow:
    """A case that ends, with the random number that its result is hashed with."""
    facts = {**from_json(row.facts), "salt": secrets.token_hex(16)}
    return row._replace(facts=to_json(facts).decode())
