"""Whether an answer fits what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from assent.clock import SystemClock
from assent.errors import HitlError, HitlInvalidAnswer, HitlStaleAnswer
from assent.requests import (
    Answer,
    Answers,
    ApproveAnswer,
    ApproveRequest,
    ArgsCheck,
    AskRequest,
    ConfirmRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlRequest,
    Question,
    asked_call,
    plain_answer,
)
from assent.schemas import schema_faults

_ANSWERS: TypeAdapter[Answers] = TypeAdapter(Answers, config=ConfigDict(defer_build=True))
_TEXTS: TypeAdapter[list[str]] = TypeAdapter(list[str], config=ConfigDict(defer_build=True))
UNWRITABLE = "something in it cannot be written as JSON, such as text that is not valid Unicode"
"""The fault of an answer with a lone surrogate, or an object in a field of the sender's own."""


def fit_answer(request: HitlRequest, answer: Any, check_args: ArgsCheck | None = None) -> Answer:
    """The answer as its model, whether it came as that or as plain JSON.

    Raises `HitlInvalidAnswer`, naming each fault and no value that was given, if it does not fit what was asked.
    ``check_args`` looks at edited arguments, or those of a retry, where the tool is known; else the request's own
    schema does, if it has one.
    """
    payload = request.payload
    faults: list[str] = []
    fitted: Answer | None = None
    try:
        if isinstance(payload, ConfirmRequest):
            if isinstance(answer, bool):
                return answer
            faults = ["it takes true or false"]
        elif isinstance(payload, ApproveRequest):
            fitted = ApproveAnswer.model_validate(_anonymous(answer))
            faults = _approve_faults(fitted, check_args or schema_check(payload.args_schema, payload.args))
            if fitted.reason is not None or fitted.__pydantic_extra__:
                faults += _unwritable(fitted)
        elif isinstance(payload, AskRequest):
            faults = _ask_faults(payload.questions, answer)
            fitted = None if faults else _ANSWERS.validate_python(answer, strict=True)
            faults += [] if fitted is None else _unwritable(fitted)
        else:
            said = {"action": answer} if isinstance(answer, str) else _anonymous(answer)
            fitted = EscalateAnswer.model_validate(said)
            faults = _escalate_faults(payload, fitted, check_args) + _unwritable(fitted)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'answer'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
    if faults or fitted is None:
        raise HitlInvalidAnswer(request.question_id, faults)
    return fitted


def check_seen(request: HitlRequest, digest: str | None, round: int = 1) -> None:
    """Raise `HitlStaleAnswer` if an answer is for something else than is asked by now, in this ``round`` of it.

    ``digest`` is that of what a person saw. An answer that names none counts for the first round alone.
    """
    if digest is None and round > 1:
        raise HitlStaleAnswer(request.question_id, "superseded", is_unnamed=True)
    if digest is not None and digest != request.digest:
        raise HitlStaleAnswer(request.question_id, "superseded")


def check_in_time(request: HitlRequest) -> None:
    """Raise `HitlStaleAnswer` if a request that is in no store is past its deadline."""
    if request.expires_at is not None and request.expires_at <= SystemClock().now():
        raise HitlStaleAnswer(request.question_id, "timed_out")


def check_names(question_id: str, by: Any, via: Any) -> None:
    """Raise `HitlInvalidAnswer` if who answered, or where, is no text that can be kept."""
    faults = [f"{name} {fault}" for name, said in (("by", by), ("via", via)) if (fault := _text_fault(said))]
    if faults:
        raise HitlInvalidAnswer(question_id, faults)


def check_reason(reason: Any) -> None:
    """Raise `HitlError` if what a request is to end for is no text that can be kept."""
    if (fault := _text_fault(reason)) is not None:
        raise HitlError(f"the reason {fault}; nothing was ended")


def _text_fault(said: Any) -> str | None:
    """What is wrong with what should be a text, if it is there."""
    if said is not None and not isinstance(said, str):
        return f"is a text, not {type(said).__name__}"
    return "is not valid Unicode" if said is not None and _unwritable(said) else None


def _unwritable(said: Any) -> list[str]:
    try:
        to_json(plain_answer(said))
    except PydanticSerializationError:
        return [UNWRITABLE]
    return []


def _anonymous(answer: Any) -> Any:
    """An answer's fields, without who it says gave it. Models of the same shape, such as a subclass or
    another version's, are read by their fields."""
    plain = answer.model_dump() if isinstance(answer, BaseModel) else answer
    if not isinstance(plain, Mapping):
        return plain
    fields = cast("Mapping[str, Any]", plain)
    return {name: value for name, value in fields.items() if name not in ("answered_by", "via")}


def _approve_faults(answer: ApproveAnswer, check_args: ArgsCheck | None) -> list[str]:
    if answer.decision == "edit":
        if answer.edited_args is None:
            return ["an edit needs edited_args"]
        return list(check_args(answer.edited_args)) if check_args else []
    return [] if answer.edited_args is None else [f"edited_args go with an edit, not with {answer.decision}"]


def _escalate_faults(
    payload: EscalateRequest, answer: EscalateAnswer, check_args: ArgsCheck | None
) -> list[str]:
    faults: list[str] = []
    if answer.action not in payload.choices:
        faults.append(f"action is one of {', '.join(payload.choices)}")
    if answer.modified_params is not None:
        if answer.action in ("skip", "abort"):
            faults.append(f"modified_params go with a retry, not with {answer.action}")
        else:
            call = asked_call(payload)
            check = check_args or schema_check(payload.args_schema, None if call is None else call.args)
            faults += check(answer.modified_params) if check else []
    return faults


def schema_check(
    schema: Mapping[str, Any] | None, shown: Mapping[str, Any] | None = None
) -> ArgsCheck | None:
    """How to check edited arguments by a schema, if there is one; what is as it was ``shown`` is not at fault."""
    if schema is None:
        return None
    return lambda args: [f"{'.'.join(place)}: {why}" for place, why in schema_faults(schema, args, shown)]


def _ask_faults(questions: Sequence[Question], answer: Any) -> list[str]:
    if not isinstance(answer, dict):
        return ["answer: an object with a value for each question is expected"]
    answers = cast("dict[Any, Any]", answer)
    known = {question.key: question for question in questions}
    faults = [f"{key}: no such question" for key in answers if key not in known]
    for key, question in known.items():
        if key not in answers:
            if question.required:
                faults.append(f"{key}: an answer is required")
        else:
            faults += [f"{key}: {fault}" for fault in _question_faults(question, answers[key])]
    return faults


def _question_faults(question: Question, answer: Any) -> list[str]:
    """What is wrong with one answer, without the answer: it may be a secret, typed into the wrong field."""
    try:
        given = _TEXTS.validate_python(answer if question.multi_select else [answer], strict=True)
    except ValidationError:
        return ["a list of texts is expected" if question.multi_select else "one value is expected, as text"]
    if question.required and not any(given):
        return ["an answer is required"]
    faults = ["a choice is given twice"] if len(set(given)) < len(given) else []
    if not question.options or any(option.allow_input for option in question.options):
        return faults
    offered = [option.value for option in question.options]
    for number, value in enumerate(given, 1):
        if value not in offered and (value or question.required):
            which = f"choice {number}" if question.multi_select else "the answer"
            faults.append(f"{which} is not one of {', '.join(offered)}")
    return faults
