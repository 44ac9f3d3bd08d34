"""What waits for a person, whoever asks: an agent's request, or a case that another service opened."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from assent.checkpointer.sql import SqlCheckpointer
from assent.ids import NONCE_DIGITS
from assent.requests import ApproveRequest, AskRequest, HitlRequest
from assent.service.adoption import adopted, case_id_of
from assent.service.case import Case
from assent.service.rows import case_of
from assent.store import open_items as store
from assent.store.rows import decode_request, decode_text

if TYPE_CHECKING:
    from assent.store.case_rows import CaseRow
    from assent.store.open_items import AskedRow, CaseAndKey
    from assent.store.rows import RequestRow

_PAGE = 100
_PREFIX = "review_"


def digits_of(id: str, nonce: int | None) -> str:
    """The digits that a short id begins with: the request's own random ones, else those of the whole id.

    What an agent asks has a whole id that follows from names which its model chooses; its beginning could be made to
    equal another's. A service's case has a random id; what an earlier version opened has none of its own digits.
    """
    return id.removeprefix(_PREFIX) if nonce is None else f"{nonce:0{NONCE_DIGITS}x}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of an Assent agent. ``id`` stands for this round of it and no other."""

    id: str
    row: RequestRow
    request: HitlRequest
    agent_id: str | None

    @property
    def digits(self) -> str:
        """What its short id begins with."""
        return digits_of(self.id, self.row.nonce)

    @property
    def kind(self) -> str:
        """What is asked: ``confirm``, ``approve``, ``ask`` or ``escalate``."""
        return self.row.kind

    @property
    def asker(self) -> str:
        """The agent, or the thread of one that is not known."""
        return self.agent_id or self.row.thread_id

    @property
    def tool(self) -> str | None:
        """The tool that waits to be run."""
        payload = self.request.payload
        return payload.tool_name if isinstance(payload, ApproveRequest) else None

    @property
    def prompt(self) -> str:
        """What is asked, in words."""
        payload = self.request.payload
        if isinstance(payload, ApproveRequest):
            return f"May {payload.tool_name} run?"
        if isinstance(payload, AskRequest):
            return " / ".join(question.prompt for question in payload.questions)
        return payload.prompt

    @property
    def created_at(self) -> int:
        """Since when, in milliseconds since 1970."""
        return self.row.created_at

    @property
    def expires_at(self) -> int | None:
        """Until when; None for a request without a time-out."""
        return self.row.expires_at

    @property
    def case(self) -> Case:
        """The request as the service shows it."""
        return adopted(self.row)

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints of it in a list."""
        row = self.row
        return {
            **_common(self, "agent"),
            "status": row.status,
            "tool": self.tool,
            "digest": row.digest,
            "thread_id": row.thread_id,
            "question_id": row.question_id,
            "round": row.round,
        }


@dataclass(frozen=True, slots=True)
class Opened:
    """A case that a service opened with an API key."""

    id: str
    case: Case
    key_name: str | None

    @property
    def digits(self) -> str:
        """What its short id begins with."""
        return digits_of(self.id, None)

    @property
    def kind(self) -> str:
        """The case's type, in the protocol's word."""
        return self.case.type

    @property
    def asker(self) -> str:
        """Whose key it was opened with."""
        return self.key_name or self.case.key_id or "unknown"

    @property
    def prompt(self) -> str:
        """What is asked, in words."""
        return self.case.prompt

    @property
    def created_at(self) -> int:
        """Since when, in milliseconds since 1970."""
        return self.case.created_at

    @property
    def expires_at(self) -> int | None:
        """Until when."""
        return self.case.expires_at

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints of it in a list; the fields of an agent's request are null."""
        nothing: dict[str, Any] = dict.fromkeys(("tool", "digest", "thread_id", "question_id", "round"))
        return {**_common(self, "service"), "status": self.case.status, **nothing}


Item = Asked | Opened


def _common(item: Item, source: str) -> dict[str, Any]:
    return {
        "id": item.id,
        "is_open": True,
        "source": source,
        "kind": item.kind,
        "from": item.asker,
        "prompt": item.prompt,
        "created_at": item.created_at,
        "expires_at": item.expires_at,
    }


def asked_of(found: AskedRow) -> Asked:
    """A request from its row."""
    row = found.request
    case_id = case_id_of(row.thread_id, row.question_id, row.round)
    return Asked(case_id, row, decode_request(row), found.agent_id)


def opened_of(found: CaseAndKey) -> Opened:
    """A service's case from its row."""
    return Opened(found.case.case_id, case_of(found.case), decode_text(found.key_name))


async def pending_items(checkpointer: SqlCheckpointer) -> AsyncGenerator[Item]:
    """All that is open, oldest first."""
    heads: list[tuple[Item, AsyncGenerator[Item]]] = []
    streams: tuple[AsyncGenerator[Item], ...] = (_requests(checkpointer), _cases(checkpointer))
    for stream in streams:
        first = await anext(stream, None)
        if first is not None:
            heads.append((first, stream))
    while heads:
        place = min(range(len(heads)), key=lambda place: heads[place][0].created_at)
        item, stream = heads.pop(place)
        yield item
        following = await anext(stream, None)
        if following is not None:
            heads.insert(place, (following, stream))


async def _requests(checkpointer: SqlCheckpointer) -> AsyncGenerator[Item]:
    last: RequestRow | None = None
    while True:
        page = await checkpointer.engine.read(partial(store.request_page, _PAGE, last))
        for found in page:
            yield asked_of(found)
        if len(page) < _PAGE:
            return
        last = page[-1].request


async def _cases(checkpointer: SqlCheckpointer) -> AsyncGenerator[Item]:
    last: CaseRow | None = None
    while True:
        page = await checkpointer.engine.read(partial(store.case_page, _PAGE, last))
        for found in page:
            yield opened_of(found)
        if len(page) < _PAGE:
            return
        last = page[-1].case
