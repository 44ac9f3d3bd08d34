"""A thread: its transcript, what is open in it, and the pure functions that read a transcript."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from pydantic import BaseModel

from askfirst.checkpointer.base import Settlement, StoredEffect
from askfirst.messages import NO_USAGE, AssistantMessage, Message, ToolCall, ToolResultMessage, Usage
from askfirst.requests import HitlRequest, StoredRequest

_LONGEST_ID = 40  # OpenAI takes no longer one
_LONGEST_ASKED = 200  # question ids are longer than the call's id, and have to fit the store's column


class Thread:
    """One conversation: its transcript, which only ever grows at its end, and what is open in it.

    ``requests`` are those of calls without a result, by question id. ``effects`` are the tool bodies that were
    started and have not ended, by tool call id; ``ledger`` has the ids of those whose start is stored. ``returned``
    has the results of subagents that ended on their own threads. ``at_gate`` has the latest arguments of calls at
    the gate.
    """

    __slots__ = ("_call_ids", "at_gate", "effects", "ledger", "messages", "requests", "returned", "thread_id")

    def __init__(self, thread_id: str, messages: Iterable[Message] = ()) -> None:
        self.thread_id = thread_id
        self.messages = list(messages)
        self.requests: dict[str, StoredRequest] = {}
        self.effects: dict[str, StoredEffect] = {}
        self.ledger: set[str] = set()
        self.returned: dict[str, ToolResultMessage] = {}
        self.at_gate: dict[str, BaseModel] = {}
        self._call_ids: set[str] | None = None  # found when the first call is added

    def add(self, message: Message) -> Message:
        """Append a message and return it as it stands in the transcript, its calls' ids made unique."""
        if message.role == "assistant":
            message = self._with_unique_calls(message)
        elif message.role == "tool":
            self.effects.pop(message.tool_call_id, None)
            self.at_gate.pop(message.tool_call_id, None)
        self.messages.append(message)
        if self.requests and not unresolved_calls(self.messages):
            self.requests.clear()
        return message

    def know(self, settled: Sequence[Settlement], opened: Sequence[HitlRequest], run_id: str) -> None:
        """Update the requests with what a step of a run has settled and opened."""
        known = self.requests
        for it in settled:
            if it.question_id in known:
                known[it.question_id] = replace(known[it.question_id], status=it.status, reason=it.reason)
        for it in opened:
            before = known.get(it.question_id)
            number = 1 if before is None else before.round + 1
            known[it.question_id] = StoredRequest(it, self.thread_id, run_id, "pending", round=number)

    @property
    def pending(self) -> StoredRequest | None:
        """The first pending request, as far as this process knows."""
        for known in self.requests.values():
            if known.status == "pending":
                return known
        return None

    def _with_unique_calls(self, message: AssistantMessage) -> AssistantMessage:
        """The message with call ids that are unique in the thread and that every store accepts.

        Some models restart their numbering in each message, but results, answers and effects are found by call id.
        """
        renamed: dict[int, ToolCall] = {}
        for index, part in enumerate(message.content):
            if isinstance(part, ToolCall):
                if self._call_ids is None:
                    self._call_ids = call_ids(self.messages)
                unique = _unique(part.id, self._call_ids)
                self._call_ids.add(unique)
                if unique != part.id:
                    renamed[index] = part.model_copy(update={"id": unique})
        if not renamed:
            return message
        content = tuple(renamed.get(index, part) for index, part in enumerate(message.content))
        return message.model_copy(update={"content": content})


def unresolved_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The tool calls without a result, in order; only the last assistant message can have any."""
    resolved: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool":
            resolved.add(message.tool_call_id)
        elif message.role == "assistant":
            calls: list[ToolCall] = []
            for part in message.content:  # not `tool_calls`: this function is called often
                if isinstance(part, ToolCall) and part.id not in resolved:
                    calls.append(part)  # noqa: PERF401
            return calls
        else:
            break
    return []


def is_finished(messages: Sequence[Message]) -> bool:
    """Whether nothing is left to do: the last message is the model's, without calls. A failure is not an end."""
    if not messages:
        return True
    last = messages[-1]
    if last.role != "assistant" or last.stop_reason == "error":
        return False
    for part in last.content:  # noqa: SIM110  (this function is called often)
        if isinstance(part, ToolCall):
            return False
    return True


def has_failed(messages: Sequence[Message]) -> bool:
    """Whether the last message is a failure of the model."""
    last = messages[-1]
    return last.role == "assistant" and last.stop_reason == "error"


def answers(messages: Sequence[Message]) -> Iterator[AssistantMessage]:
    """The model's messages since the last user message, latest first."""
    for message in reversed(messages):
        if message.role == "user":
            return
        if message.role == "assistant":
            yield message


def last_answer(messages: Sequence[Message]) -> AssistantMessage | None:
    """The model's latest message since the last user message."""
    for message in reversed(messages):
        if message.role == "assistant":
            return message
        if message.role == "user":
            break
    return None


def iterations(messages: Sequence[Message]) -> int:
    """How often the model has answered since the last user message."""
    count = 0
    for message in reversed(messages):
        if message.role == "assistant":
            count += message.stop_reason != "error"
        elif message.role == "user":
            break
    return count


def usage(messages: Sequence[Message]) -> Usage:
    """The tokens used since the last user message."""
    total = NO_USAGE
    for message in reversed(messages):
        if message.role == "assistant":
            if message.usage is not NO_USAGE:
                total = message.usage if total is NO_USAGE else total + message.usage
        elif message.role == "user":
            break
    return total


def call_ids(messages: Sequence[Message]) -> set[str]:
    """The ids of all tool calls."""
    return {
        part.id
        for message in messages
        if message.role == "assistant"
        for part in message.content
        if isinstance(part, ToolCall)
    }


def _unique(call_id: str, taken: Set[str]) -> str:
    """An id that is not taken; the given one, if it is short enough and every store accepts it."""
    kept, count = _kept(call_id), 1
    unique = kept if len(kept) <= _LONGEST_ASKED else _kept(kept[: _LONGEST_ID - 5])
    while unique in taken:
        count += 1
        unique = f"{_kept(kept[: _LONGEST_ID - 5])}-{count}"
    return unique


def _kept(call_id: str) -> str:
    """An id without what some store refuses: NUL, lone surrogates, trailing spaces; never empty."""
    plain = call_id if call_id.isascii() else call_id.encode(errors="ignore").decode()
    return plain.replace("\0", "").rstrip(" ") or "call"
