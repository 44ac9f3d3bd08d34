"""The requests that were shown in a conversation of another protocol, and the answers that come from it.

A front end names a request by its case id. Such an id counts only in the conversation in which it was shown. The
gate's store has a list of the requests shown in each conversation. So a forged id, or an id from another
conversation, answers nothing, and any process can settle the request.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from askfirst.adapters.kept_state import keep, load
from askfirst.adapters.response_schemas import answer_in
from askfirst.errors import HitlError, HitlNoPendingRequest, HitlStaleAnswer, LeaseHeld, Pending
from askfirst.gate.gate import Gate
from askfirst.ids import case_id_of
from askfirst.messages import JsonObject, JsonValue
from askfirst.requests import StoredRequest, fit_answer

logger = logging.getLogger("askfirst.adapters")

Waiting = Pending | StoredRequest
WaitingGiven = Iterable[Waiting] | Mapping[str, Waiting]
"""Open requests; as a mapping, by the protocol's ids of their tool calls."""
ABANDONED = object()
"""Given in place of a payload: the person who was asked abandoned the request, so it is cancelled."""
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Shown:
    """An open request that was shown in a conversation."""

    case: str
    stored: StoredRequest
    call_id: str | None
    """The protocol's id of the tool call, if the request is about a call."""
    link: str | None
    """The address of the request's page, if the gate knows it."""

    @property
    def message(self) -> str:
        """What is asked, in words."""
        return "\n".join(self.stored.request.payload.sentences)

    @property
    def facts(self) -> JsonObject:
        """What a front end needs to show the request itself, with all arguments of the call."""
        request = self.stored.request
        facts: JsonObject = {"case": self.case, "kind": request.payload.kind, "digest": request.digest}
        if (called := request.payload.shown_call) is not None:
            facts |= {"tool": called[0], "args": called[1]}
        display: Any = getattr(request.payload, "display", None)
        if display is not None:
            facts["display"] = display
        if self.link is not None:
            facts["link"] = self.link
        return facts


class ShownRequests:
    """The requests that were shown in the conversations of one protocol, kept in a gate's store."""

    def __init__(self, gate: Gate, protocol: str) -> None:
        self._gate = gate
        self._protocol = protocol

    async def show(self, conversation: str, waiting: WaitingGiven) -> list[Shown]:
        """Let a conversation answer these requests; returns them, and the earlier requests that are still open.

        A given request that was settled meanwhile is returned too, because the conversation has to go on from it.
        """
        await self._gate.ready()
        new: JsonObject = dict(map(_entry, _pairs(waiting)))
        for _ in range(_TRIES):
            kept = await load(self._gate.checkpointer, self._protocol, conversation)
            entries: JsonObject = {**(kept.state or {}), **new}
            shown = await self._open(entries, also=new)
            if not shown:
                raise HitlError("none of the given requests waits for a person, so there is nothing to show")
            left: JsonObject = {it.case: entries[it.case] for it in shown}
            if await keep(self._gate.checkpointer, kept, left) is not None:
                return shown
        raise LeaseHeld(f"{self._protocol}:{conversation}", "other processes, one after another", 0)

    async def open(self, conversation: str) -> list[Shown]:
        """The requests that were shown in a conversation and are still pending."""
        return await self._open(await self._entries(conversation))

    async def settle(self, conversation: str, payloads: Mapping[str, Any], *, by: str) -> list[str]:
        """Answer requests by their case ids; returns the ids that were not shown in this conversation.

        ``by`` is the user that the host has verified. A request that is settled already stays unchanged. Raises
        `HitlInvalidAnswer` if a payload does not fit, and then none of them counts.
        """
        if not by:
            raise HitlError("by is empty: pass the user that your server has verified")
        entries = await self._entries(conversation)
        shown = {it.case: it for it in await self._open(entries)}
        answers = {
            case: ABANDONED
            if payload is ABANDONED
            else fit_answer(it.stored.request, answer_in(it.stored.request, payload))
            for case, payload in payloads.items()
            if (it := shown.get(case)) is not None
        }
        for case, answer in answers.items():
            await self._settle(shown[case].stored, answer, by)
        unknown = [case for case in payloads if case not in entries]
        for case in unknown:
            logger.warning(
                "%s: an answer names %.80r, which this conversation was not shown", self._protocol, case
            )
        return unknown

    async def _settle(self, stored: StoredRequest, answer: Any, by: str) -> None:
        try:
            if answer is ABANDONED:
                await self._gate.cancel(stored, "the person who was asked abandoned it", by=by)
            else:
                await self._gate.answer(stored, answer, by=by, via=self._protocol)
        except (HitlStaleAnswer, HitlNoPendingRequest) as error:  # somebody else was first
            logger.info("%s: %s", self._protocol, error)

    async def _entries(self, conversation: str) -> JsonObject:
        await self._gate.ready()
        return (await load(self._gate.checkpointer, self._protocol, conversation)).state or {}

    async def _open(self, entries: JsonObject, also: Container[str] = ()) -> list[Shown]:
        shown: list[Shown] = []
        for case, entry in entries.items():
            thread_id, question_id, call_id, link = cast("tuple[str, str, str | None, str | None]", entry)
            stored = await self._gate.checkpointer.request(thread_id, question_id)
            if stored is not None and stored.status == "pending" and stored.request.expires_at is not None:
                # If the deadline has passed, the request is settled as timed out.
                stored = await self._gate.checkpointer.expire(thread_id, question_id)
            if stored is None or _case_id(stored) != case:
                continue
            if stored.status == "pending" or case in also:
                shown.append(Shown(case, stored, call_id, link))
        return shown


def _pairs(waiting: WaitingGiven) -> Iterable[tuple[str | None, Waiting]]:
    if isinstance(waiting, Mapping):
        return cast("Mapping[str, Waiting]", waiting).items()
    return ((None, it) for it in waiting)


def _entry(pair: tuple[str | None, Waiting]) -> tuple[str, JsonValue]:
    call_id, it = pair
    if isinstance(it, StoredRequest):
        return _case_id(it), [it.thread_id, it.question_id, call_id, None]
    return it.case, [it.request.thread_id, it.request.question_id, call_id, it.link]


def _case_id(stored: StoredRequest) -> str:
    return case_id_of(stored.thread_id, stored.question_id, stored.round)
