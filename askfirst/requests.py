"""What a person is asked and may answer, and whether an answer fits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from askfirst.clock import SystemClock
from askfirst.digests import canonical_json
from askfirst.errors import HitlError, HitlInvalidAnswer, HitlStaleAnswer
from askfirst.json_schema import schema_faults
from askfirst.messages import JsonObject, call_digest

Decision = Literal["approve", "deny", "edit"]
Answers = dict[str, str | list[str]]
"""What `ask` gives: a string for each question, or a list of them for a multiple choice."""


_ArgsSchema = Annotated[
    SkipValidation[dict[str, Any] | None], Field(repr=False, exclude_if=lambda schema: schema is None)
]
"""What a tool's arguments have to be like: as much of their JSON Schema as it takes to check an edit."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True, hide_input_in_errors=True)


class Option(_Frozen):
    """One choice of a question. With ``allow_input`` the person may type a text instead of the value."""

    label: str
    value: str
    description: str | None = None
    allow_input: bool = False


class Question(_Frozen):
    """One question: free text without ``options``, else one of them; with ``multi_select`` a list of either."""

    key: str
    prompt: str
    options: list[Option] | None = None
    multi_select: bool = False
    required: bool = True


class ConfirmRequest(_Frozen):
    """Yes or no?"""

    kind: Literal["confirm"] = "confirm"
    prompt: str
    details: JsonObject | None = None


_SEAL = "_seal"


class _AboutCall(_Frozen):
    """A question about a call. Its seal binds the answer to what is not shown of the call's arguments.

    The seal is kept with a stored request and is nowhere else: in no JSON, no ``repr`` and no event's fields.
    """

    @property
    def seal(self) -> str | None:
        """The seal, if the arguments are not shown whole."""
        return self.__dict__.get(_SEAL)

    def sealed(self, seal: str | None) -> Self:
        """The same question, with this seal."""
        if seal == self.seal:
            return self
        question = self.model_copy()
        vars(question)[_SEAL] = seal  # beside the fields, as a cached property is: pydantic passes it over
        return question


class ApproveRequest(_AboutCall):
    """May this tool run with these arguments? ``digest`` binds the answer to exactly this call.

    With ``args_schema``, edited arguments are checked wherever the answer is given.
    """

    kind: Literal["approve"] = "approve"
    tool_name: str
    tool_call_id: str
    args: JsonObject
    details: JsonObject | None = None
    digest: str | None = None
    args_schema: _ArgsSchema = None


class AskRequest(_Frozen):
    """Some questions to answer."""

    kind: Literal["ask"] = "ask"
    questions: list[Question]


class EscalateRequest(_AboutCall):
    """Something went wrong, or may have: what now? ``args_schema`` is for the arguments of a retry."""

    kind: Literal["escalate"] = "escalate"
    prompt: str
    choices: list[str]
    details: JsonObject | None = None
    args_schema: _ArgsSchema = None


HitlPayload = Annotated[
    ConfirmRequest | ApproveRequest | AskRequest | EscalateRequest, Field(discriminator="kind")
]


class HitlRequest(_Frozen):
    """The envelope of what a person is asked. For an approve, ``question_id`` is the tool call's id."""

    question_id: str
    thread_id: str | None = None
    payload: HitlPayload
    created_at: float
    """Seconds since 1970 (UTC)."""
    timeout_seconds: float | None = None

    @property
    def expires_at(self) -> float | None:
        """When nobody can answer any more, in seconds since 1970; None if that never comes."""
        return None if self.timeout_seconds is None else self.created_at + self.timeout_seconds

    @property
    def digest(self) -> str | None:
        """What an answer names to count for this, and not for what is asked later under the same id.

        Of a call it is the call's digest, else that of the question's words; None for a call that was asked about
        without one.
        """
        return shown_digest(self.payload)


class ApproveAnswer(_Frozen):
    """Run it, do not, or run it with ``edited_args``.

    ``answered_by`` and ``via`` are filled in by the channel with what it knows of who answered and where; what
    an answer itself claims there is not believed.
    """

    decision: Decision
    edited_args: JsonObject | None = Field(default=None, repr=False)  # a person may type a secret there
    reason: str | None = None
    answered_by: str | None = None
    via: str | None = None


class EscalateAnswer(_Frozen):
    """What to do now, one of the request's choices; ``modified_params`` where a retry should differ."""

    action: str
    modified_params: JsonObject | None = Field(default=None, repr=False)
    reason: str | None = None
    answered_by: str | None = None
    via: str | None = None


_LONGEST_SECONDS = 1e12
"""The longest time-out: every store can keep its deadline."""


def approval_seconds(given: Any) -> float | None:
    """How long people have to decide, in seconds: a number, or a text such as ``"24h"``, ``"7d"`` or ``"PT30M"``.

    None is for ever. Raises `ValueError` with a sentence for anything else.
    """
    if given is None:
        return None
    if isinstance(given, str):
        from askfirst.errors import InvalidDuration
        from askfirst.protocol.case import (
            parse_duration,
        )  # seldom needed, and all of the protocol comes with it

        try:
            return float(parse_duration(given))
        except InvalidDuration as error:
            raise ValueError(f"approval_timeout cannot be read: {error}") from None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= _LONGEST_SECONDS:
        wanted = 'a number of seconds above 0, a text such as "24h", or None for no limit'
        raise ValueError(f"approval_timeout is {wanted}, not {given!r}")
    return float(given)


Answer = bool | ApproveAnswer | Answers | EscalateAnswer
ArgsCheck = Callable[[Mapping[str, Any]], Sequence[str]]
"""A function of edited arguments that lists what is wrong with them."""


def same_question(known: HitlRequest, asked: HitlPayload) -> bool:
    """Whether an answer to the one answers the other: the same call to the letter, or the same words."""
    shown = known.payload
    if isinstance(asked, ApproveRequest):
        return approves(known, asked.digest, asked.seal)
    if isinstance(shown, EscalateRequest) and isinstance(asked, EscalateRequest):
        if not _is_sealed_like(shown, asked.seal):
            return False
        # What the tool takes by now is no part of the question.
        shown = shown.model_copy(update={"args_schema": asked.args_schema}).sealed(asked.seal)
    return shown == asked


def approves(known: HitlRequest, digest: str | None, seal: str | None) -> bool:
    """Whether an answer to a request is about the very call with this digest, and this seal."""
    return asks_about(known, digest) and _is_sealed_like(known.payload, seal)


def _is_sealed_like(known: HitlPayload, seal: str | None) -> bool:
    """Whether what is not shown is the same too, as far as that is on record."""
    return isinstance(known, _AboutCall) and known.seal in (None, seal)


def asks_about(known: HitlRequest, digest: str | None) -> bool:
    """Whether a request is about the very call with this digest."""
    shown = known.payload
    # The digest on record is believed only if it is that of what the person saw.
    return isinstance(shown, ApproveRequest) and (
        call_digest(shown.tool_name, shown.args) == shown.digest == digest
    )


def seal_in(request: HitlRequest) -> str | None:
    """The seal of a request about a call, if it has one."""
    payload = request.payload
    return payload.seal if isinstance(payload, _AboutCall) else None


def with_seal(request: HitlRequest, seal: str | None) -> HitlRequest:
    """The same request, if it is about a call with this seal."""
    payload = request.payload
    if seal is None or not isinstance(payload, _AboutCall):
        return request
    return request.model_copy(update={"payload": payload.sealed(seal)})


class AskedCall(NamedTuple):
    """The call that a question is about, with its arguments as they are shown."""

    tool_name: str
    tool_call_id: str
    args: JsonObject


def asked_call(payload: HitlPayload) -> AskedCall | None:
    """The call that is to be approved, or that is in doubt; None for other questions."""
    if isinstance(payload, ApproveRequest):
        return AskedCall(payload.tool_name, payload.tool_call_id, payload.args)
    if not isinstance(payload, EscalateRequest):
        return None
    told = payload.details or {}
    name, call_id, args = told.get("tool_name"), told.get("tool_call_id"), told.get("args")
    if not (isinstance(name, str) and isinstance(call_id, str) and isinstance(args, dict)):
        return None  # an escalation of the asker's own
    return AskedCall(name, call_id, cast(JsonObject, args))


def shown_digest(payload: HitlPayload) -> str | None:
    """The digest of what a person is shown: of the call that it is about, else of the question's own words."""
    if isinstance(payload, ApproveRequest):
        return payload.digest
    call = asked_call(payload)
    return _words_digest(payload) if call is None else call_digest(call.tool_name, call.args)


def _words_digest(payload: HitlPayload) -> str:
    """SHA-256 (hex) over the canonical JSON of a question, as a store gives it back."""
    asked = HitlRequest(question_id="", payload=payload, created_at=0)
    told: Any = from_json(asked.model_dump_json(exclude_none=True))["payload"]
    told.pop("args_schema", None)  # what a tool takes by now is no part of the question
    return hashlib.sha256(canonical_json(told)).hexdigest()


def plain_answer(answer: Answer) -> Any:
    """An answer as JSON; `askfirst.requests.fit_answer` reads it again."""
    return answer.model_dump(mode="json", exclude_none=True) if isinstance(answer, BaseModel) else answer


RequestStatus = Literal["pending", "answered", "cancelled", "timed_out", "aborted", "superseded"]


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request as the store knows it. ``answer`` is there if, and only if, the status is ``"answered"``."""

    request: HitlRequest
    thread_id: str
    run_id: str | None
    status: RequestStatus
    answer: Answer | None = None
    reason: str | None = None
    answered_by: str | None = None
    via: str | None = None
    settled_at: float | None = None
    """Seconds since 1970 (UTC)."""
    round: int = 1
    """1, or more if something was asked under the same id before."""

    @property
    def question_id(self) -> str:
        """The request's id, unique in its thread."""
        return self.request.question_id

    @property
    def cursor(self) -> str:
        """Where this request stands in a checkpointer's ``pending``; hand it in as ``after``."""
        ids = f"{len(self.thread_id)}:{self.thread_id}{self.question_id}"
        return f"{round(self.request.created_at * 1000)}:{ids}"


# Whether an answer fits what was asked.


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
