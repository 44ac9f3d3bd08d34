"""The dialogue about a request with the person at the keyboard."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from pydantic_core import from_json

from askfirst.delivery.terminal_keyboard import Keyboard
from askfirst.messages import JsonObject
from askfirst.requests import (
    Answers,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
)
from askfirst.visible_text import escaped, numbered, pieces, visible

# A request as text for a terminal.


def request_heading(request: HitlRequest) -> str:
    """The heading of a request: its kind, its id, and its time-out."""
    limit = "" if request.timeout_seconds is None else f" within {request.timeout_seconds:g} s"
    return f"{request.payload.kind} {request.question_id}{limit}"


def request_text(payload: HitlPayload, room: int | None) -> str:
    """The whole request as text; ``room`` is how many cells a line has, None if nothing is wrapped."""
    lines = payload.sentences
    if payload.gated_call is not None:
        said = lines if payload.words.get("sentence") else []
        lines = [
            *map(visible, said),
            *call_lines(payload.gated_call.tool_name, payload.gated_call.args, room),
        ]
    elif payload.questions_asked:
        lines = [_question(question) for question in payload.questions_asked]
    elif payload.choices_given is not None:
        lines = [f"{', '.join(payload.choices_given)}? {' '.join(lines)}"]
    if payload.details:
        lines = [*lines, f"details {json.dumps(payload.details, ensure_ascii=False)}"]
    return "\n".join(lines)


def call_line(name: str, args: JsonObject, room: int | None) -> str:
    """A call with its exact arguments, on one line if they fit there."""
    line = f"{name} {json.dumps(args, ensure_ascii=False)}"
    if room is None or len(line) <= room:
        return line
    return f"{name} {json.dumps(args, ensure_ascii=False, indent=2)}"


def call_lines(name: str, args: JsonObject, room: int | None) -> list[str]:
    """A call with its exact arguments; arguments of several lines follow as numbered lines."""
    texts = {key: value for key, value in args.items() if isinstance(value, str) and "\n" in value}
    rest = {key: value for key, value in args.items() if key not in texts}
    if not texts:
        return [call_line(name, args, room)]
    blocks = [
        f"{visible(key)} ({value.count(chr(10)) + 1} lines)\n{numbered(value)}"
        for key, value in texts.items()
    ]
    return [call_line(name, rest, room), *blocks]


def option_line(option: Option) -> str:
    """A choice: its value, its label and its description."""
    about = "" if option.description is None else f": {option.description}"
    typed = ", or a text of yours" if option.allow_input else ""
    return f"{option.value} ({option.label}{about}){typed}"


def _question(question: Question) -> str:
    if question.options is None:
        return f"{question.key}: {question.prompt}"
    offered = ", ".join(f"{option.value} ({option.label})" for option in question.options)
    return f"{question.key}: {question.prompt} {'any' if question.multi_select else 'one'} of: {offered}"


_ASKS = "bold yellow"


class Dialogue:
    """The dialogue about one request with the person who has to decide it."""

    def __init__(self, keyboard: Keyboard, request: HitlRequest) -> None:
        self._keyboard = keyboard
        self._request = request

    def show(self) -> None:
        """Draw the whole request."""
        column, payload = self._keyboard.column, self._request.payload
        told = request_heading(self._request)
        if not payload.questions_asked:  # questions are drawn one by one
            told += f"\n{request_text(payload, column.room)}"
        column.block("asks", told, label_style=_ASKS)

    def end(self, label: str, text: str) -> None:
        """Write how the request was settled, or what is wrong with the answer."""
        self._say(label, f"{self._request.question_id}: {text}", "bold red" if label == "error" else _ASKS)

    async def answer(self) -> Any:
        """Ask for the person's answer, and return it as plain JSON. Raises `Left`."""
        payload = self._request.payload
        return await _DIALOGUES[payload.kind](self, payload)

    async def confirmation(self, payload: ConfirmRequest) -> bool:
        """Yes or no."""
        return (await self._choice(["yes", "no"]))[0] == "yes"

    async def approval(self, payload: ApproveRequest) -> JsonObject:
        """Approve, deny with a reason, or edit."""
        while True:
            decision, reason = await self._choice(
                ["approve", "deny", "edit"], f"{payload.tool_name}: approve, deny or edit?", reasons=["deny"]
            )
            if decision == "approve":
                return {"decision": "approve"}
            if decision == "deny":
                reason = reason or await self._line("why? (may be empty)")
                return {"decision": "deny", "reason": reason or None}
            edited = await self._edited(payload.args)
            if edited is not None:
                return {"decision": "edit", "edited_args": edited}

    async def escalation(self, payload: EscalateRequest) -> JsonObject:
        """One of the choices; a retry with the same arguments or with edited ones."""
        while True:
            reasons = [choice for choice in payload.choices if choice != "retry"]
            action, reason = await self._choice(payload.choices, reasons=reasons)
            answer: JsonObject = {"action": action, "reason": reason}
            params: Any = (payload.details or {}).get("args")
            if action != "retry" or not isinstance(params, dict):
                return answer
            how, _ = await self._choice(["same", "edit"], "with the same arguments, or edit them?")
            if how == "same":
                return answer
            edited = await self._edited(cast("JsonObject", params))
            if edited is not None:
                return {**answer, "modified_params": edited}

    async def answers(self, payload: AskRequest) -> Answers:
        """An answer for each question; several answers are shown again before they are sent."""
        while True:
            answers: Answers = {}
            for question in payload.questions:
                answer = await self._question(question)
                if answer is not None:
                    answers[question.key] = answer
            if len(payload.questions) == 1:
                return answers
            self._say("yours", "\n".join(f"{key}: {_listed(answer)}" for key, answer in answers.items()))
            if (await self._choice(["send", "again"], "send these answers, or begin again?"))[0] == "send":
                return answers

    async def _question(self, question: Question) -> str | list[str] | None:
        """The answer to one question; None if an optional question was left out."""
        self._say("asks", _question_text(question), _ASKS)
        if not question.multi_select:
            while True:
                picked = _chosen_values(question, await self._line(_hint(question)))
                if picked == [] and not question.required:
                    return None
                if picked is not None and len(picked) == 1:
                    return picked[0]
                self._say("", "please choose one" if question.options else "an answer is required")
        chosen: list[str] = []
        while True:
            picked = _chosen_values(question, await self._line(f"{_hint(question)}, an empty line to end"))
            if picked == [] and (chosen or not question.required):
                return chosen or None
            if not picked:
                self._say("", "please choose at least one" if picked == [] else "there is no such choice")
            chosen += [each for each in picked or () if each not in chosen]
            if chosen:
                self._say("yours", _listed(chosen))

    async def _edited(self, args: JsonObject) -> JsonObject | None:
        """The arguments that the person edited and confirmed; None if they went back."""
        text = _editable(args)
        while True:
            text = await self._keyboard.line("arguments", default=text)
            try:
                edited: Any = from_json(text, allow_inf_nan=False)
            except ValueError as error:
                self._say("", f"this is not valid JSON: {error}")
                continue
            if not isinstance(edited, dict):
                self._say("", "arguments must be a JSON object")
                continue
            self._say("changes", _difference(args, cast("JsonObject", edited)))
            choice, _ = await self._choice(["send", "edit", "back"], "send, edit again or go back?")
            if choice == "send":
                return cast("JsonObject", edited)
            if choice == "back":
                return None

    async def _choice(
        self, words: Sequence[str], prompt: str | None = None, *, reasons: Sequence[str] = ()
    ) -> tuple[str, str | None]:
        """Ask for one of the words, or an unambiguous beginning of one, and return it with its reason.

        A reason may follow only the words in ``reasons``. "approve but ..." is not accepted, neither as an approval
        nor as anything else.
        """
        offered = " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
        while True:
            line = await self._line(prompt or f"{offered}?")
            for length in range(len(line), 0, -1):  # a word may contain spaces
                word, rest = _matching_word(line[:length], words), line[length:]
                if word is not None and (not rest or (word in reasons and rest[0].isspace())):
                    return word, rest.strip() or None
            self._say("", f"please type {offered}")

    async def _line(self, prompt: str) -> str:
        return (await self._keyboard.line(prompt)).strip()

    def _say(self, label: str, text: str, style: str = "bold") -> None:
        self._keyboard.column.block(label, text, label_style=style)


_DIALOGUES: Mapping[str, Callable[[Dialogue, Any], Awaitable[Any]]] = {
    "confirm": Dialogue.confirmation,
    "approve": Dialogue.approval,
    "ask": Dialogue.answers,
    "escalate": Dialogue.escalation,
}
"""The method that asks for the answer, by request kind."""


def _matching_word(typed: str, words: Sequence[str]) -> str | None:
    """The word that was typed, or whose beginning was typed unambiguously; None if there is none."""
    exact = [word for word in words if word.casefold() == typed.casefold()]
    begun = exact or [word for word in words if word.casefold().startswith(typed.casefold())]
    return begun[0] if len(begun) == 1 else None


def _has_numbers(question: Question) -> bool:
    """Whether choices can be chosen by number: not if the value of a choice is itself a number."""
    return not any(option.value.strip().isdecimal() for option in question.options or ())


def _question_text(question: Question) -> str:
    lines = [f"{question.key}: {question.prompt}{'' if question.required else ' (may be left out)'}"]
    for number, option in enumerate(question.options or (), 1):
        lines.append(f"{f'{number}. ' if _has_numbers(question) else '- '}{option_line(option)}")
    return "\n".join(lines)


def _hint(question: Question) -> str:
    if not question.options:
        return "your answer"
    return "its number or value" if _has_numbers(question) else "its value"


def _chosen_values(question: Question, line: str) -> list[str] | None:
    """The values of the choices that a line names; empty for an empty line, None for an unknown choice."""
    if not line:
        return []
    options = question.options or []
    for option in options:
        if line in (option.value, option.label):
            return [option.value]
    numbers = line.replace(",", " ").split()
    if options and _has_numbers(question) and all(number.isdecimal() for number in numbers):
        places = [int(number) for number in numbers]
        if all(1 <= place <= len(options) for place in places):
            return [options[place - 1].value for place in places]
        return None
    return [line] if not options or any(option.allow_input for option in options) else None


def _listed(answer: str | list[str]) -> str:
    return answer if isinstance(answer, str) else ", ".join(answer)


def _editable(args: JsonObject) -> str:
    """Arguments as JSON on one line, with control, hidden and deceptive characters escaped."""
    return "".join(
        part.text if part.note is None else escaped(part.text)
        for part in pieces(json.dumps(args, ensure_ascii=False))
    )


def _difference(before: JsonObject, after: JsonObject) -> str:
    """The removed and added lines of the arguments as indented JSON."""
    old, new = (json.dumps(each, ensure_ascii=False, indent=2).splitlines() for each in (before, after))
    changes = [line for line in difflib.unified_diff(old, new, n=0) if not line.startswith("@@")][2:]
    return "\n".join(changes) if changes else "nothing is changed; the call runs as it is"
