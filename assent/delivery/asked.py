"""What a person is asked, in words for a terminal."""

from __future__ import annotations

import json

from assent.messages import JsonObject
from assent.requests import (
    ApproveRequest,
    AskRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
)


def heading(request: HitlRequest) -> str:
    """The kind, the id to answer by and the time there is."""
    limit = "" if request.timeout_seconds is None else f" within {request.timeout_seconds:g} s"
    return f"{request.payload.kind} {request.question_id}{limit}"


def asked(payload: HitlPayload, room: int | None) -> str:
    """What is asked, whole; ``room`` is how many cells a line has, None where nothing is wrapped."""
    lines: list[str] = []
    match payload:
        case ApproveRequest():
            lines.append(call_line(payload.tool_name, payload.args, room))
        case AskRequest():
            lines += [_question(question) for question in payload.questions]
        case EscalateRequest():
            lines.append(f"{', '.join(payload.choices)}? {payload.prompt}")
        case _:
            lines.append(payload.prompt)
    details = None if isinstance(payload, AskRequest) else payload.details
    if details:
        lines.append(f"details {json.dumps(details, ensure_ascii=False)}")
    return "\n".join(lines)


def call_line(name: str, args: JsonObject, room: int | None) -> str:
    """A call with its exact arguments, on one line if they fit there."""
    line = f"{name} {json.dumps(args, ensure_ascii=False)}"
    if room is None or len(line) <= room:
        return line
    return f"{name} {json.dumps(args, ensure_ascii=False, indent=2)}"


def option_line(option: Option) -> str:
    """A choice: the value that counts, and what it is called."""
    about = "" if option.description is None else f": {option.description}"
    typed = ", or a text of yours" if option.allow_input else ""
    return f"{option.value} ({option.label}{about}){typed}"


def _question(question: Question) -> str:
    if question.options is None:
        return f"{question.key}: {question.prompt}"
    offered = ", ".join(f"{option.value} ({option.label})" for option in question.options)
    return f"{question.key}: {question.prompt} {'any' if question.multi_select else 'one'} of: {offered}"
