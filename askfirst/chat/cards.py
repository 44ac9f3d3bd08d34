"""Cards: what an agent asks, posted into its conversation, and brought up to date when it is decided."""

from __future__ import annotations

import logging
import re
import secrets
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from askfirst.agent.agent import Agent
from askfirst.chat.base import Conversation, Said
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.delivery.base import Press, PressAnswer, Sent
from askfirst.delivery.text import cut
from askfirst.errors import CaseNotFound, DeliveryError
from askfirst.ids import case_id_of, child_thread_id
from askfirst.messages import ToolResultMessage
from askfirst.requests import StoredRequest
from askfirst.service.case import Case
from askfirst.service.cases import Cases
from askfirst.service.notices import ended_of, notice_of, shown_of
from askfirst.service.places import Place
from askfirst.service.presses import Presses
from askfirst.store import cases as case_store

logger = logging.getLogger("askfirst.chat")
AGENT_ID = "askfirst.chat.cards"
_PAGE = 100
_RESULT = 300
_CODE_BYTES = 3
_PLAIN = re.compile(
    r"(approve|confirm|deny|reject|cancel)\s+([0-9a-f]{6})\b[\s:,.]*(.*)", re.IGNORECASE | re.DOTALL
)
_ACTIONS = {"deny": "reject"}


@dataclass(frozen=True, slots=True)
class Card:
    """A card in a chat: its case, where its message is, and the code by which it can be answered in plain text."""

    case_id: str
    asked_in: str
    """The thread of the agent that asks: the conversation's, or a subagent's."""
    question_id: str
    sent: Sent
    code: str | None

    def stored(self) -> dict[str, Any]:
        """As JSON; `read` is the way back."""
        return {
            "case_id": self.case_id,
            "asked_in": self.asked_in,
            "question_id": self.question_id,
            "sent": {"delivery": self.sent.delivery, "place": dict(self.sent.place)},
            "code": self.code,
        }

    @classmethod
    def read(cls, body: Any) -> Card:
        """From what `stored` gave."""
        sent = Sent(body["sent"]["delivery"], body["case_id"], body["sent"]["place"])
        return cls(body["case_id"], body["asked_in"], body["question_id"], sent, body["code"])


class Cards:
    """The cards of a store's conversations. Each question is posted once, unless its poster died right then."""

    def __init__(self, store: SqlCheckpointer, cases: Cases, service: str) -> None:
        self._store = store
        self._cases = cases
        self._service = service

    async def post(self, agent: Agent, conversation: Conversation) -> int:
        """Post what an agent asks and has no card yet; returns how many questions are open."""
        open_ = 0
        for approval in await agent.pending_approvals():
            thread_id = conversation.thread_id
            for call in approval.call_path:
                thread_id = child_thread_id(thread_id, call)
            stored = await self._store.request(thread_id, approval.question_id)
            if stored is not None and stored.status == "pending":
                await self._post(stored, conversation)
                open_ += 1
        return open_

    async def _post(self, stored: StoredRequest, conversation: Conversation) -> None:
        case_id = case_id_of(stored.thread_id, stored.question_id, stored.round)
        if await self._store.get_checkpoint(_id(case_id), AGENT_ID) is not None:
            return
        read = partial(case_store.request, stored.thread_id, stored.question_id, stored.round)
        row = await self._store.engine.read(read)
        if row is None:
            return
        case = await self._cases.case_for(row)
        platform, place = conversation.platform, conversation.place
        has_buttons = platform.delivery.shows_buttons and bool(platform.deciders)
        notice = notice_of(
            case,
            "review",
            service=self._service,
            link=None,
            with_buttons=has_buttons,
            follows=platform.thread_of(place),
        )
        code = None
        if not has_buttons and platform.deciders and notice.asked is not None and notice.asked.may_be_pressed:
            code = secrets.token_hex(_CODE_BYTES)
            asked = replace(notice.asked, silence=f"{notice.asked.silence} {_how(case, code)}".strip())
            notice = replace(notice, asked=asked, body=f"{notice.body}\n\n{_how(case, code)}")
        sent = await platform.card_delivery(place).send(notice)
        card = Card(case_id, stored.thread_id, stored.question_id, sent, code)
        await self._store.save_checkpoint(
            _id(case_id), AGENT_ID, card.stored(), thread_id=conversation.thread_id
        )

    async def update(self, conversation: Conversation) -> None:
        """Bring the cards of a conversation up to date: who decided, and what came of it."""
        for card in await self._of(conversation.thread_id):
            try:
                case = await self._decided(card)
                if case is None:
                    continue
                ended = ended_of(case, await self._outcome(card, case))
                await conversation.platform.card_delivery(conversation.place).update(card.sent, ended)
            except CaseNotFound:
                pass  # deleted with its thread
            except DeliveryError as error:
                logger.warning("a card could not be updated: %s", error)
                if not error.permanent:
                    continue
            await self._store.delete_checkpoint(_id(card.case_id), AGENT_ID)

    async def _decided(self, card: Card) -> Case | None:
        case = await self._cases.get(card.case_id)
        if not case.is_final:
            await self._cases.sweep()  # it may have been settled where nobody knows of cases
            case = await self._cases.get(card.case_id)
        return case if case.is_final else None

    async def _outcome(self, card: Card, case: Case) -> str | None:
        """What came of the call, in a line, as the transcript says."""
        if case.payload is None or case.payload.gated_call is None:
            return None
        thread = await self._store.load(card.asked_in)
        if thread is None:
            return None
        for message in reversed(thread.messages):
            if isinstance(message, ToolResultMessage) and message.tool_call_id == card.question_id:
                word = "It failed" if message.is_error else "It ran"
                ran = (case.result or {}).get("action") in ("approve", "edit")
                return f"{word}: {cut(message.text, _RESULT)}" if ran else None
        return None

    async def _of(self, thread_id: str) -> list[Card]:
        found = await self._store.list_checkpoints(AGENT_ID, thread_id=thread_id, limit=_PAGE)
        return [Card.read(each.body) for each in found]

    # Answers in plain text.

    async def answered(
        self, said: Said, thread_id: str, presses: Presses, place: Place
    ) -> PressAnswer | None:
        """Take ``approve 3f2a9c`` as an answer; None if it is none, or names no code that was printed here.

        The code counts in the conversation where it was printed, and for those who may decide; it is settled where
        every press is (`Presses`).
        """
        found = _PLAIN.fullmatch(said.text.strip())
        if found is None:
            return None
        for card in await self._of(thread_id):
            if card.code is not None and secrets.compare_digest(card.code, found[2].lower()):
                return await presses.decide(place, await self._press(card, said, found))
        return None

    async def _press(self, card: Card, said: Said, found: re.Match[str]) -> Press:
        action = found[1].lower()
        platform, _, user = said.account.partition(":")
        case = await self._cases.get(card.case_id)
        data = {"feedback": found[3].strip()} if found[3].strip() and case.type == "approval" else {}
        return Press(
            card.case_id,
            _ACTIONS.get(action, action),
            submitted_via=f"{platform}_reply",
            platform=platform,
            platform_user_id=user,
            shown=shown_of(case),
            data=data,
        )


def _how(case: Case, code: str) -> str:
    """How to answer in plain text."""
    yes, no = ("confirm", "cancel") if case.type == "confirmation" else ("approve", "deny")
    return f"To decide, reply: {yes} {code} or {no} {code}"


def _id(case_id: str) -> str:
    return f"card-{case_id}"
