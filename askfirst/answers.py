"""People's answers, to questions and about calls: their models, their JSON, and checks that every answer needs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from askfirst.errors import HitlError, HitlInvalidAnswer
from askfirst.json_schema import schema_faults
from askfirst.messages import JsonObject, Made

Decision = Literal["approve", "deny", "edit"]
Answers = dict[str, str | list[str]]
"""What `ask` gives: a string for each question, or a list of them for a multiple choice."""


class Frozen(Made):
    """A value that does not change and keeps fields that this version does not know."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)


class Option(Frozen):
    """One choice of a question. With ``allow_input`` the person may type a text instead of the value."""

    label: str
    value: str
    description: str | None = None
    allow_input: bool = False


class Question(Frozen):
    """One question: free text without ``options``, else one of them; with ``multi_select`` a list of either."""

    key: str
    prompt: str
    options: list[Option] | None = None
    multi_select: bool = False
    required: bool = True

    def faults(self, answer: Any) -> list[str]:
        """What is wrong with one answer. The text does not quote the answer, which may be a secret typed into the
        wrong field."""
        try:
            given = _TEXTS.validate_python(answer if self.multi_select else [answer], strict=True)
        except ValidationError:
            return ["a list of texts is expected" if self.multi_select else "one value is expected, as text"]
        if self.required and not any(given):
            return ["an answer is required"]
        faults = ["a choice is given twice"] if len(set(given)) < len(given) else []
        if not self.options or any(option.allow_input for option in self.options):
            return faults
        offered = [option.value for option in self.options]
        for number, value in enumerate(given, 1):
            if value not in offered and (value or self.required):
                which = f"choice {number}" if self.multi_select else "the answer"
                faults.append(f"{which} is not one of {', '.join(offered)}")
        return faults


_TEXTS: TypeAdapter[list[str]] = TypeAdapter(list[str], config=ConfigDict(defer_build=True))


class CallAnswer(Frozen):
    """A person's answer about a call, with the fields ``answered_by`` and ``via``: who answered, and where."""

    edits_in: ClassVar[str]
    """The name of the field with edited arguments."""

    @property
    @abstractmethod
    def about_call(self) -> Decision:
        """The decision about the call that this answer stands for."""


class ApproveAnswer(CallAnswer):
    """The answer to an approval: run the call, deny it, or run it with ``edited_args``.

    The channel fills in ``answered_by`` and ``via``: who answered, and where. What an answer itself claims there is
    ignored.
    """

    edits_in: ClassVar[str] = "edited_args"

    decision: Decision
    edited_args: JsonObject | None = Field(default=None, repr=False)  # a person may type a secret there
    reason: str | None = None
    answered_by: str | None = None
    via: str | None = None

    @property
    def about_call(self) -> Decision:
        return self.decision


class EscalateAnswer(CallAnswer):
    """The answer to an escalation: one of the request's choices. ``modified_params`` are other arguments for a
    retry."""

    edits_in: ClassVar[str] = "modified_params"

    action: str
    modified_params: JsonObject | None = Field(default=None, repr=False)
    reason: str | None = None
    answered_by: str | None = None
    via: str | None = None

    @property
    def about_call(self) -> Decision:
        """A retry of a call in doubt counts as an approval or an edit; ``skip`` and ``abort`` count as a denial."""
        if self.action != "retry":
            return "deny"
        return "approve" if self.modified_params is None else "edit"


Answer = bool | ApproveAnswer | Answers | EscalateAnswer
ArgsCheck = Callable[[Mapping[str, Any]], Sequence[str]]
"""A function of edited arguments that lists what is wrong with them."""


def plain_answer(answer: Answer) -> Any:
    """An answer as JSON; `askfirst.requests.fit_answer` reads it again."""
    return answer.model_dump(mode="json", exclude_none=True) if isinstance(answer, BaseModel) else answer


def attributed(answer: Any, by: str | None, via: str | None) -> Any:
    """An answer about a call, with who answered it (``answered_by``) and where (``via``) filled in. Other answers
    have no such fields and are returned unchanged."""
    attribution = {"answered_by": by, "via": via}
    if not isinstance(answer, CallAnswer) or attribution.items() <= vars(answer).items():
        return answer
    return answer.model_copy(update=attribution)


def decision_in(answer: Any) -> Decision | None:
    """The decision in an answer about a call; None for other answers."""
    return answer.about_call if isinstance(answer, CallAnswer) else None


def without_edits(answer: Any) -> Any:
    """An answer for the record, without edited arguments: a person may have typed a secret there."""
    if not isinstance(answer, CallAnswer):
        return answer
    edits = {each.edits_in for each in CallAnswer.__subclasses__()}
    return answer.model_dump(exclude=edits, exclude_none=True)


_LONGEST_SECONDS = 1e12
"""The longest time-out: every store can keep its deadline."""


def approval_seconds(given: Any) -> float | None:
    """A time-out for people, in seconds, from a number or a text such as ``"24h"``, ``"7d"`` or ``"PT30M"``.

    None means no limit. Raises `ValueError` with a sentence for anything else.
    """
    if given is None:
        return None
    if isinstance(given, str):
        from askfirst.errors import InvalidDuration
        from askfirst.protocol.case import parse_duration  # here, because it loads the whole protocol package

        try:
            return float(parse_duration(given))
        except InvalidDuration as error:
            raise ValueError(f"approval_timeout cannot be read: {error}") from None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= _LONGEST_SECONDS:
        wanted = 'a number of seconds above 0, a text such as "24h", or None for no limit'
        raise ValueError(f"approval_timeout is {wanted}, not {given!r}")
    return float(given)


# Checks that every answer needs.


UNWRITABLE = "something in it cannot be written as JSON, such as text that is not valid Unicode"
"""The fault of an answer that cannot be written as JSON: it has a lone surrogate, or a Python object."""


def check_names(question_id: str, by: Any, via: Any) -> None:
    """Raise `HitlInvalidAnswer` if ``by`` or ``via`` is not a text that can be stored."""
    faults = [f"{name} {fault}" for name, said in (("by", by), ("via", via)) if (fault := _text_fault(said))]
    if faults:
        raise HitlInvalidAnswer(question_id, faults)


def check_reason(reason: Any) -> None:
    """Raise `HitlError` if the reason for cancelling a request is not a text that can be stored."""
    if (fault := _text_fault(reason)) is not None:
        raise HitlError(f"the reason {fault}; nothing was ended")


def _text_fault(said: Any) -> str | None:
    """What is wrong with an optional value that has to be a text; None if nothing is."""
    if said is not None and not isinstance(said, str):
        return f"is a text, not {type(said).__name__}"
    return "is not valid Unicode" if said is not None and unwritable(said) else None


def unwritable(said: Any) -> list[str]:
    """The faults of a value: `UNWRITABLE` if it cannot be written as JSON, else none."""
    try:
        to_json(plain_answer(said))
    except PydanticSerializationError:
        return [UNWRITABLE]
    return []


def without_attribution(answer: Any) -> Any:
    """The fields of an answer without ``answered_by`` and ``via``: the channel fills them in, whatever the answer
    claims.

    Any model may be given, such as one of a subclass: its fields are read.
    """
    if isinstance(answer, CallAnswer):
        return answer.model_dump(exclude=_CLAIMS)
    plain = answer.model_dump() if isinstance(answer, BaseModel) else answer
    if not isinstance(plain, Mapping):
        return plain
    fields = cast("Mapping[str, Any]", plain)
    return {name: value for name, value in fields.items() if name not in _CLAIMS}


_CLAIMS = {"answered_by", "via"}


def schema_check(
    schema: Mapping[str, Any] | None, shown: Mapping[str, Any] | None = None
) -> ArgsCheck | None:
    """A function that checks edited arguments against a JSON Schema; None without a schema. Arguments that equal
    those ``shown`` to the person are not checked."""
    if schema is None:
        return None
    return lambda args: [f"{'.'.join(place)}: {why}" for place, why in schema_faults(schema, args, shown)]
