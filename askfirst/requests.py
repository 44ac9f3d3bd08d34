"""What a person is asked: the kinds of requests, what each of them needs, and whether an answer fits."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, cast, get_args

from pydantic import ConfigDict, Field, SkipValidation, TypeAdapter, ValidationError
from pydantic_core import from_json

from askfirst.answers import UNWRITABLE as UNWRITABLE
from askfirst.answers import (
    Answer,
    Answers,
    ApproveAnswer,
    ArgsCheck,
    CallAnswer,
    EscalateAnswer,
    Frozen,
    Question,
    schema_check,
    unwritable,
    without_attribution,
)
from askfirst.answers import Decision as Decision
from askfirst.answers import Option as Option
from askfirst.answers import approval_seconds as approval_seconds
from askfirst.answers import check_names as check_names
from askfirst.answers import check_reason as check_reason
from askfirst.answers import plain_answer as plain_answer
from askfirst.clock import SystemClock
from askfirst.digests import canonical_json
from askfirst.errors import HitlInvalidAnswer, HitlStaleAnswer
from askfirst.messages import JsonObject, call_digest

_ANSWERS: TypeAdapter[Answers] = TypeAdapter(Answers, config=ConfigDict(defer_build=True))
_ArgsSchema = Annotated[
    SkipValidation[dict[str, Any] | None], Field(repr=False, exclude_if=lambda schema: schema is None)
]
"""The part of the JSON Schema of a tool's arguments that is needed to check an edit."""
_Display = Annotated[
    SkipValidation[dict[str, Any] | None], Field(repr=False, exclude_if=lambda words: words is None)
]
"""The words of the tool's author for this call: see `askfirst.display.Display.shown`."""


class AskedCall(NamedTuple):
    """The call that a question is about, with its arguments as they are shown."""

    tool_name: str
    tool_call_id: str
    args: JsonObject


class Why(NamedTuple):
    """Why a person is asked about a call, and the policy's rule that requires it."""

    reason: str | None = None
    matched_rule_id: str | None = None


class _Payload(Frozen):
    """The base of the request kinds. It has all that other modules need to know of a kind: none branches on it.

    A new kind derives from this class, or from `_AboutCall` if it is about a call. It has a ``kind`` of its own and
    a place in `HitlPayload`.
    """

    written_by: ClassVar[Literal["agent", "side"]] = "side"
    """Who wrote the request's words: the model (``"agent"``), or the program around it (``"side"``)."""

    @property
    @abstractmethod
    def case_type(self) -> str:
        """The review type of HITL Protocol with which a service shows the request."""

    @property
    @abstractmethod
    def sentences(self) -> list[str]:
        """What is asked, in words."""

    @property
    @abstractmethod
    def agreement(self) -> Any:
        """An answer that agrees, as plain JSON: the answer of `NoopChannel` in tests."""

    @abstractmethod
    def fitted(self, answer: Any, check_args: ArgsCheck | None) -> tuple[Any, list[str]]:
        """The answer as its model, and its faults; see `fit_answer`. May raise `ValidationError`."""

    def decode_answer(self, text: str) -> Any:
        """An answer from its stored JSON. It was checked before it was stored, so it is not checked again."""
        return from_json(text)

    def is_same(self, known: HitlPayload) -> bool:
        """Whether an answer to the earlier request ``known`` also answers this one; see `same_question`."""
        return known == self

    @property
    def shown_digest(self) -> str | None:
        """The digest of what a person is shown: of the call that it is about, else of the question's own words."""
        call = self.call
        return _words_digest(self) if call is None else call_digest(call.tool_name, call.args)

    @property
    def recomputed_digest(self) -> str | None:
        """The digest of what is shown, computed anew: the request's ``digest`` is not trusted."""
        return self.shown_digest

    @property
    def approval_digest(self) -> str | None:
        """The digest of the call that waits to be approved, to which an approval is bound."""
        return None

    @property
    def questions_asked(self) -> Sequence[Question]:
        """The questions to answer one by one, if there are any."""
        return ()

    @property
    def choices_given(self) -> Sequence[str] | None:
        """The actions to choose from, if the request lists them; None if the case type determines them."""
        return None

    # About a call.

    @property
    def call(self) -> AskedCall | None:
        """The call that the request is about: a call to be approved, or a call in doubt."""
        return None

    @property
    def gated_call(self) -> AskedCall | None:
        """The call that waits at its gate to be approved; the request has the id of that call."""
        return None

    @property
    def shown_call(self) -> tuple[str, JsonObject] | None:
        """A tool's name and arguments to show as a call, even where no call's id is given."""
        call = self.call
        return None if call is None else (call.tool_name, call.args)

    @property
    def call_details(self) -> Sequence[str]:
        """The names of the details that are part of the call, and are shown with it."""
        return ()

    @property
    def why(self) -> Why:
        """Why a person is asked about the call, and the rule that requires it."""
        return Why()

    @property
    def words(self) -> JsonObject:
        """The words of the tool's author for the call; empty where there are none."""
        return {}

    @property
    def edit_schema(self) -> dict[str, Any] | None:
        """The JSON Schema that edited arguments have to fit."""
        return None

    @property
    def seal(self) -> str | None:
        """The seal of the call's arguments, if a part of them is hidden."""
        return None

    def sealed(self, seal: str | None) -> Self:
        """The same request with this seal; unchanged if it is not about a call."""
        return self


class ConfirmRequest(_Payload):
    """Asks yes or no."""

    kind: Literal["confirm"] = "confirm"
    prompt: str
    details: JsonObject | None = None

    @property
    def case_type(self) -> str:
        return "confirmation"

    @property
    def sentences(self) -> list[str]:
        return [self.prompt]

    @property
    def agreement(self) -> Any:
        return True

    def fitted(self, answer: Any, check_args: ArgsCheck | None) -> tuple[Any, list[str]]:
        return answer, [] if isinstance(answer, bool) else ["it takes true or false"]


_SEAL = "_seal"


class _AboutCall(_Payload):
    """A question about a call. Its seal binds the answer to the hidden parts of the call's arguments.

    The seal is kept with a stored request and is nowhere else: in no JSON, no ``repr`` and no event's fields.
    """

    answer_model: ClassVar[type[CallAnswer]]

    def decode_answer(self, text: str) -> Any:
        return self.answer_model.model_validate_json(text)

    @property
    def seal(self) -> str | None:
        return self.__dict__.get(_SEAL)

    def sealed(self, seal: str | None) -> Self:
        if seal == self.seal:
            return self
        question = self.model_copy()
        vars(question)[_SEAL] = seal  # not a field, so pydantic neither compares nor writes it
        return question


class ApproveRequest(_AboutCall):
    """Asks whether a tool may run with these arguments. ``digest`` binds the answer to exactly this call.

    With ``args_schema``, edited arguments are checked wherever the answer is given.
    """

    answer_model: ClassVar[type[CallAnswer]] = ApproveAnswer

    kind: Literal["approve"] = "approve"
    tool_name: str
    tool_call_id: str
    args: JsonObject
    details: JsonObject | None = None
    digest: str | None = None
    args_schema: _ArgsSchema = None
    display: _Display = None

    @property
    def case_type(self) -> str:
        return "approval"

    @property
    def sentences(self) -> list[str]:
        said = self.words.get("sentence")
        return [said if isinstance(said, str) else f"May {self.tool_name} run?"]

    @property
    def agreement(self) -> Any:
        return {"decision": "approve"}

    def fitted(self, answer: Any, check_args: ArgsCheck | None) -> tuple[Any, list[str]]:
        fitted = ApproveAnswer.model_validate(without_attribution(answer))
        edited, faults = fitted.edited_args, list[str]()
        if fitted.decision != "edit":
            faults += [] if edited is None else [f"edited_args go with an edit, not with {fitted.decision}"]
        elif edited is None:
            faults.append("an edit needs edited_args")
        elif check := check_args or schema_check(self.args_schema, self.args):
            faults += check(edited)
        if fitted.reason is not None or fitted.__pydantic_extra__:
            faults += unwritable(fitted)
        return fitted, faults

    def is_same(self, known: HitlPayload) -> bool:
        return _shows_call(known, self.digest) and known.seal in (None, self.seal)

    @property
    def shown_digest(self) -> str | None:
        return self.digest

    @property
    def recomputed_digest(self) -> str | None:
        return None if self.digest is None else call_digest(self.tool_name, self.args)

    @property
    def approval_digest(self) -> str | None:
        return self.digest

    @property
    def call(self) -> AskedCall:
        return AskedCall(self.tool_name, self.tool_call_id, self.args)

    @property
    def gated_call(self) -> AskedCall:
        return self.call

    @property
    def words(self) -> JsonObject:
        return self.display or {}

    @property
    def why(self) -> Why:
        """The reason and the rule in the details, which may hold any values if the request came through a channel."""
        if not self.details:
            return Why()
        reason, rule = self.details.get("reason"), self.details.get("matched_rule_id")
        return Why(reason if isinstance(reason, str) else None, rule if isinstance(rule, str) else None)

    @property
    def edit_schema(self) -> dict[str, Any] | None:
        return self.args_schema


class AskRequest(_Payload):
    """Asks one or more questions."""

    written_by: ClassVar[Literal["agent", "side"]] = "agent"

    kind: Literal["ask"] = "ask"
    questions: list[Question]

    @property
    def details(self) -> None:
        """None: a request with questions has no details."""

    @property
    def case_type(self) -> str:
        """A selection for one question whose options take no free text, else an input."""
        options = self.questions[0].options if len(self.questions) == 1 else None
        return "selection" if options and not any(it.allow_input for it in options) else "input"

    @property
    def sentences(self) -> list[str]:
        return [question.prompt for question in self.questions]

    @property
    def agreement(self) -> Any:
        firsts = {it.key: it.options[0].value if it.options else "" for it in self.questions}
        return {it.key: [firsts[it.key]] if it.multi_select else firsts[it.key] for it in self.questions}

    def fitted(self, answer: Any, check_args: ArgsCheck | None) -> tuple[Any, list[str]]:
        if not isinstance(answer, dict):
            return None, ["answer: an object with a value for each question is expected"]
        answers = cast("dict[Any, Any]", answer)
        known = {question.key: question for question in self.questions}
        faults = [f"{key}: no such question" for key in answers if key not in known]
        for key, question in known.items():
            if key in answers:
                faults += [f"{key}: {fault}" for fault in question.faults(answers[key])]
            elif question.required:
                faults.append(f"{key}: an answer is required")
        if faults:
            return None, faults
        fitted = _ANSWERS.validate_python(answer, strict=True)
        return fitted, unwritable(fitted)

    @property
    def questions_asked(self) -> Sequence[Question]:
        return self.questions


class EscalateRequest(_AboutCall):
    """Asks what to do about something that went wrong, or may have. ``args_schema`` is for the arguments of a
    retry."""

    answer_model: ClassVar[type[CallAnswer]] = EscalateAnswer

    kind: Literal["escalate"] = "escalate"
    prompt: str
    choices: list[str]
    details: JsonObject | None = None
    args_schema: _ArgsSchema = None
    display: _Display = None

    @property
    def case_type(self) -> str:
        return "escalation"

    @property
    def sentences(self) -> list[str]:
        return [self.prompt]

    @property
    def agreement(self) -> Any:
        """``skip``, else the last choice: agreeing does not repeat a call in doubt."""
        return "skip" if "skip" in self.choices else self.choices[-1]

    def fitted(self, answer: Any, check_args: ArgsCheck | None) -> tuple[Any, list[str]]:
        said = {"action": answer} if isinstance(answer, str) else without_attribution(answer)
        fitted = EscalateAnswer.model_validate(said)
        action, edited, faults = fitted.action, fitted.modified_params, list[str]()
        if action not in self.choices:
            faults.append(f"action is one of {', '.join(self.choices)}")
        if edited is not None and action in ("skip", "abort"):
            faults.append(f"modified_params go with a retry, not with {action}")
        elif edited is not None:
            call = self.call
            check = check_args or schema_check(self.args_schema, None if call is None else call.args)
            faults += check(edited) if check else []
        return fitted, faults + unwritable(fitted)

    def is_same(self, known: HitlPayload) -> bool:
        if not isinstance(known, EscalateRequest):
            return False
        # The tool's current schema and words are not part of the question.
        now = {"args_schema": self.args_schema, "display": self.display}
        again = known.model_copy(update=now).sealed(self.seal)
        return known.seal in (None, self.seal) and again == self

    @property
    def choices_given(self) -> Sequence[str]:
        return self.choices

    @property
    def words(self) -> JsonObject:
        return self.display or {}

    @property
    def call(self) -> AskedCall | None:
        """The call in doubt, if the details name one."""
        shown, call_id = self.shown_call, (self.details or {}).get("tool_call_id")
        return AskedCall(shown[0], call_id, shown[1]) if shown and isinstance(call_id, str) else None

    @property
    def shown_call(self) -> tuple[str, JsonObject] | None:
        told: Mapping[str, Any] = self.details or {}
        name, args = told.get("tool_name"), told.get("args")
        return (name, cast(JsonObject, args)) if isinstance(name, str) and isinstance(args, dict) else None

    @property
    def call_details(self) -> Sequence[str]:
        return () if self.shown_call is None else ("tool_name", "args")

    @property
    def why(self) -> Why:
        return Why() if self.call is None else Why(self.prompt)

    @property
    def edit_schema(self) -> dict[str, Any] | None:
        return self.args_schema


HitlPayload = Annotated[
    ConfirmRequest | ApproveRequest | AskRequest | EscalateRequest, Field(discriminator="kind")
]
KINDS: tuple[str, ...] = tuple(it.model_fields["kind"].default for it in get_args(get_args(HitlPayload)[0]))
"""The names of the kinds: ``"confirm"``, ``"approve"``, ``"ask"``, ``"escalate"``."""


class HitlRequest(Frozen):
    """The envelope of a request: ids and times around its payload. For an approve, ``question_id`` is the tool call's
    id."""

    question_id: str
    thread_id: str | None = None
    payload: HitlPayload
    created_at: float
    """Seconds since 1970 (UTC)."""
    timeout_seconds: float | None = None
    agent_path: list[str] | None = None
    """The agents from the root to the one that asks, where they are known."""

    @property
    def expires_at(self) -> float | None:
        """The deadline in seconds since 1970 (UTC); None without a time-out."""
        return None if self.timeout_seconds is None else self.created_at + self.timeout_seconds

    @property
    def agents(self) -> list[str]:
        """The agents from the root to the one that asks, as far as the request names them."""
        told: Any = (self.payload.details or {}).get("agent_path")
        if isinstance(told, list):
            return [it for it in cast("list[Any]", told) if isinstance(it, str)]
        return list(self.agent_path or ())

    @property
    def digest(self) -> str | None:
        """The digest that an answer names, so that it does not count for a later request under the same id.

        It is the digest of the call, or else of the question's words; None for an approve that was made without a
        digest.
        """
        return self.payload.shown_digest


def same_question(known: HitlRequest, asked: HitlPayload) -> bool:
    """Whether an answer to ``known`` also answers ``asked``: they have the same call, or the same words."""
    return asked.is_same(known.payload)


def approves(known: HitlRequest, digest: str | None, seal: str | None) -> bool:
    """Whether an answer to a request counts for the call with this digest and this seal of its hidden arguments."""
    return _shows_call(known.payload, digest) and known.payload.seal in (None, seal)


def asks_about(known: HitlRequest, digest: str | None) -> bool:
    """Whether a request is about the call with this digest."""
    return _shows_call(known.payload, digest)


def _shows_call(shown: HitlPayload, digest: str | None) -> bool:
    """Whether a request shows the call with this digest. The request's own digest counts only if it is the digest of
    the values that the person saw."""
    return digest is not None and shown.approval_digest == digest == shown.recomputed_digest


def seal_in(request: HitlRequest) -> str | None:
    """The seal of a request about a call, if it has one."""
    return request.payload.seal


def with_seal(request: HitlRequest, seal: str | None) -> HitlRequest:
    """The same request with this seal, if it is about a call."""
    payload = request.payload if seal is None else request.payload.sealed(seal)
    return request if payload is request.payload else request.model_copy(update={"payload": payload})


def _words_digest(payload: _Payload) -> str:
    """SHA-256 (hex) over the canonical JSON of a question, in the form in which a store returns it."""
    asked = HitlRequest(question_id="", payload=cast(HitlPayload, payload), created_at=0)
    told: Any = from_json(asked.model_dump_json(exclude_none=True))["payload"]
    for name in ("args_schema", "display"):  # the tool's current schema and words are not part of it
        told.pop(name, None)
    return hashlib.sha256(canonical_json(told)).hexdigest()


RequestStatus = Literal["pending", "answered", "cancelled", "timed_out", "aborted", "superseded"]


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request with its status. ``answer`` is set if, and only if, the status is ``"answered"``."""

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
    """The number of this request among those asked under the same id, from 1."""

    @property
    def question_id(self) -> str:
        """The request's id, unique in its thread."""
        return self.request.question_id

    @property
    def cursor(self) -> str:
        """The request's place in a checkpointer's ``pending``; pass it as ``after``."""
        ids = f"{len(self.thread_id)}:{self.thread_id}{self.question_id}"
        return f"{round(self.request.created_at * 1000)}:{ids}"


# Whether an answer fits what was asked.


def fit_answer(request: HitlRequest, answer: Any, check_args: ArgsCheck | None = None) -> Answer:
    """The answer as its model, whether it was given as a model or as plain JSON.

    Raises `HitlInvalidAnswer`, which names each fault and quotes no value, if it does not fit the request.
    ``check_args`` checks edited arguments, and the arguments of a retry. Without it, the request's own schema is
    used, if it has one.
    """
    fitted: Any = None
    try:
        fitted, faults = request.payload.fitted(answer, check_args)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'answer'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
    if faults:
        raise HitlInvalidAnswer(request.question_id, faults)
    return fitted


def check_seen(request: HitlRequest, digest: str | None, round: int = 1) -> None:
    """Raise `HitlStaleAnswer` if an answer is for another round of a request than this ``round``.

    ``digest`` is the digest of what the person saw. An answer without one counts for the first round only.
    """
    if digest is None and round > 1:
        raise HitlStaleAnswer(request.question_id, "superseded", is_unnamed=True)
    if digest is not None and digest != request.digest:
        raise HitlStaleAnswer(request.question_id, "superseded")


def check_in_time(request: HitlRequest) -> None:
    """Raise `HitlStaleAnswer` if a request that is not stored is past its deadline."""
    if request.expires_at is not None and request.expires_at <= SystemClock().now():
        raise HitlStaleAnswer(request.question_id, "timed_out")
