"""Cards: an agent's requests, posted into its conversation, and updated when they are decided."""

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
from askfirst.service.notices import ended_of, message_digest, notice_of
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
    """A card in a chat: its case, its message, and the code with which it can be answered in plain text."""

    case_id: str
    asked_in: str
    """The thread of the agent that asks: the conversation's thread, or a subagent's."""
    question_id: str
    sent: Sent | None
    """The posted message; None while the card is being posted, also if the process died then."""
    code: str | None

    def stored(self) -> dict[str, Any]:
        """The card as JSON; `read` reads it back."""
        return {
            "case_id": self.case_id,
            "asked_in": self.asked_in,
            "question_id": self.question_id,
            "sent": None if self.sent is None else [self.sent.delivery, dict(self.sent.place)],
            "code": self.code,
        }

    @classmethod
    def read(cls, body: Any) -> Card:
        """The card from what `stored` returned."""
        known = body["sent"]
        sent = None if known is None else Sent(known[0], body["case_id"], known[1])
        return cls(body["case_id"], body["asked_in"], body["question_id"], sent, body["code"])


class Cards:
    """The cards of a store's conversations. A request is posted once, or again if a process died while posting."""

    def __init__(self, store: SqlCheckpointer, cases: Cases, service: str) -> None:
        self._store = store
        self._cases = cases
        self._service = service

    async def post(self, agent: Agent, conversation: Conversation) -> int:
        """Post a card for each open request without one; returns how many requests are open."""
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
        known = await self._store.get_checkpoint(_id(case_id), AGENT_ID)
        if known is not None and Card.read(known.body).sent is not None:
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
        if (
            not has_buttons
            and platform.deciders
            and notice.contents is not None
            and notice.contents.may_be_pressed
        ):
            code = secrets.token_hex(_CODE_BYTES)
            contents = replace(
                notice.contents, silence=f"{notice.contents.silence} {_reply_hint(case, code)}".strip()
            )
            notice = replace(notice, contents=contents, body=f"{notice.body}\n\n{_reply_hint(case, code)}")
        card = Card(case_id, stored.thread_id, stored.question_id, None, code)
        await self._keep(card, conversation.thread_id)
        sent = await platform.card_delivery(place).send(notice)
        await self._keep(replace(card, sent=sent), conversation.thread_id)

    async def record_message(self, press: Press) -> None:
        """Record a card's message from a press on it, if a process died before it could record the message."""
        known = await self._store.get_checkpoint(_id(press.case_id), AGENT_ID)
        if known is not None and press.sent is not None:
            card = Card.read(known.body)
            if card.sent is None:
                await self._keep(replace(card, sent=press.sent), known.thread_id)

    async def _keep(self, card: Card, thread_id: str | None) -> None:
        await self._store.save_checkpoint(_id(card.case_id), AGENT_ID, card.stored(), thread_id=thread_id)

    async def update(self, conversation: Conversation) -> None:
        """Update the cards of a conversation whose cases are settled: who decided, and the call's result."""
        for card in await self._of(conversation.thread_id):
            try:
                case = await self._decided(card)
                if case is None:
                    continue
                ended = ended_of(case, await self._outcome(card, case))
                if card.sent is not None:
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
            await self._cases.sweep()  # the request may have been settled directly in the store
            case = await self._cases.get(card.case_id)
        return case if case.is_final else None

    async def _outcome(self, card: Card, case: Case) -> str | None:
        """The call's result in one line, from the transcript; None if the call has no result or did not run."""
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

    async def decide_by_reply(
        self, said: Said, thread_id: str, presses: Presses, place: Place
    ) -> PressAnswer | None:
        """Decide by a message such as ``approve 3f2a9c``; None if the message has another form, or its code is
        unknown here.

        A code counts only in its own conversation, and only for people who may decide. `Presses` settles the request,
        as it does for every pressed button.
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
            shown=message_digest(case),
            data=data,
        )


def _reply_hint(case: Case, code: str) -> str:
    """The sentence that says how to answer in plain text."""
    yes, no = ("confirm", "cancel") if case.type == "confirmation" else ("approve", "deny")
    return f"To decide, reply: {yes} {code} or {no} {code}"


def _id(case_id: str) -> str:
    return f"card-{case_id}"
