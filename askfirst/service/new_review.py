"""The request to open a case: its fields, the limits of what a page can show, and the operator's terms."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import to_json

from askfirst import limits
from askfirst.display import CONSEQUENCES, LONGEST_BUTTON, Risk, is_consequence, is_link
from askfirst.errors import InvalidDuration, InvalidProtocolObject, InvalidReview
from askfirst.formats import is_known
from askfirst.messages import JsonObject
from askfirst.protocol import (
    ACTIONS,
    Context,
    DefaultAction,
    Form,
    VerificationPolicy,
    check_form,
    iso_duration,
    parse_duration,
)
from askfirst.protocol.wire import ServiceUrl, Time
from askfirst.service.answers import LISTS, count_values, depth_fault
from askfirst.service.links import Terms
from askfirst.smtp import is_mailable
from askfirst.visible_text import hides
from askfirst.wording import (
    MOST_LANGUAGES,
    TAG,
    Wording,
    in_languages,
    languages_of,
    texts_of,
    wording_faults,
    wording_in,
)

DEFAULT_TIMEOUT = "24h"
LONGEST_SECONDS = 366 * 86_400
_TYPES = rf"^({'|'.join(ACTIONS)}|x-[a-z0-9_-]{{1,60}})$"


def _known_type(given: str) -> str:
    if re.fullmatch(_TYPES, given):
        return given
    near = get_close_matches(given, ACTIONS, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"must be one of {', '.join(ACTIONS)}, or begin with x- and be in lower case{hint}")


_Type = Annotated[
    str,
    StringConstraints(max_length=64),
    AfterValidator(_known_type),
    WithJsonSchema({"type": "string", "pattern": _TYPES}),
]


def _mailable(address: str) -> str:
    if not is_mailable(address):
        raise ValueError("must not contain =?, which mail programs would decode")
    return address


# E-mail addresses as browsers accept them: no spaces, no quotes, nothing that could inject a mail header.
_Address = Annotated[
    str,
    StringConstraints(
        max_length=254,
        pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*$",
    ),
    AfterValidator(_mailable),
]
_Action = Annotated[str, StringConstraints(max_length=100)]
_CaseId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,128}$")]


def _checked_wording(longest: int, given: Any) -> Wording:
    """A text, or one for each language, each of at most ``longest`` characters."""
    if faults := wording_faults("", given):
        raise ValueError(faults[0].strip())
    if not all(0 < len(each) <= longest for each in texts_of(given)):
        raise ValueError(f"must have 1 to {longest} characters")
    return given


def _wording_schema(longest: int) -> WithJsonSchema:
    text = {"type": "string", "minLength": 1, "maxLength": longest}
    tags = {"propertyNames": {"pattern": f"^{TAG}$"}, "minProperties": 1, "maxProperties": MOST_LANGUAGES}
    return WithJsonSchema({"anyOf": [text, {"type": "object", "additionalProperties": text, **tags}]})


_Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]
_LONGEST_UNDO = 500
_Undo = Annotated[
    str | dict[str, str],
    PlainValidator(partial(_checked_wording, _LONGEST_UNDO)),
    _wording_schema(_LONGEST_UNDO),
]
_Label = Annotated[str | dict[str, str], PlainValidator(partial(_checked_wording, 100)), _wording_schema(100)]
_Button = Annotated[
    str | dict[str, str],
    PlainValidator(partial(_checked_wording, LONGEST_BUTTON)),
    _wording_schema(LONGEST_BUTTON),
]


class ReviewLink(BaseModel):
    """A link that the person may follow before they decide."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    title: _Label
    url: Annotated[str, StringConstraints(max_length=2_000)]

    @field_validator("url")
    @classmethod
    def _secure(cls, url: str) -> str:
        if not is_link(url):
            raise ValueError("must be an https address")
        return url


_SHOWN = (
    "labels",
    "formats",
    "important",
    "risk",
    "consequences",
    "approve_label",
    "reject_label",
    "links",
    "decline",
    "undo",
)
_NAMES = {"approve_label": "approve", "reject_label": "reject"}


class ReviewRequest(BaseModel):
    """The body of a request to open a case: what a person has to decide, and by when."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    type: _Type
    prompt: Annotated[str, StringConstraints(min_length=1, max_length=limits.PROMPT_CHARACTERS)]
    message: Annotated[str, StringConstraints(max_length=limits.MESSAGE_CHARACTERS)] | None = None
    context: dict[str, Any] = Field(default_factory=dict)
    timeout: Annotated[str, StringConstraints(max_length=64)] = DEFAULT_TIMEOUT
    default_action: DefaultAction = "skip"
    reminder_at: Time | Annotated[list[Time], Field(max_length=limits.REMINDERS)] | None = None
    hitl_callback_url: ServiceUrl | None = Field(default=None, repr=False)
    inline_actions: Annotated[list[_Action], Field(max_length=limits.INLINE_ACTIONS)] | None = None
    previous_case_id: _CaseId | None = None
    verification_policy: dict[str, Any] | None = None
    verify_email: (
        _Address | Annotated[list[_Address], Field(min_length=1, max_length=limits.ADDRESSES)] | None
    ) = None
    labels: Annotated[dict[str, _Label], Field(max_length=limits.CONTEXT_FACTS)] | None = None
    formats: Annotated[dict[str, _Name], Field(max_length=limits.CONTEXT_FACTS)] | None = None
    important: Annotated[list[_Name], Field(max_length=limits.CONTEXT_FACTS)] | None = None
    risk: Risk | None = None
    consequences: Annotated[list[_Label], Field(max_length=8)] | None = None
    approve_label: _Button | None = None
    reject_label: _Button | None = None
    links: Annotated[list[ReviewLink], Field(max_length=10)] | None = None
    decline: bool | None = None
    undo: _Undo | None = None
    notify: bool = False
    """Whether the service delivers the case to people itself."""

    @field_validator("timeout")
    @classmethod
    def _checked_timeout(cls, timeout: str) -> str:
        try:
            seconds = parse_duration(timeout)
        except InvalidDuration as error:
            raise ValueError(str(error)) from None
        if not 0 < seconds <= LONGEST_SECONDS:
            raise ValueError("must be more than 0 and at most 366 days")
        return timeout

    @field_validator("reminder_at")
    @classmethod
    def _checked_reminders(cls, given: datetime | list[datetime] | None) -> datetime | list[datetime] | None:
        times = [] if given is None else given if isinstance(given, list) else [given]
        if not all(1971 <= each.year <= 9998 for each in times):
            raise ValueError("must be a time between the years 1971 and 9998")
        return given

    @field_validator("context")
    @classmethod
    def _checked_context(cls, context: dict[str, Any]) -> dict[str, Any]:
        too_much = context_fault(
            context
        )  # checked first: the limits also bound the number of faults found below
        if too_much:
            raise ValueError(too_much)
        try:
            form: Form | None = Context.read(context).form
            if form is not None:
                check_form(form)
        except InvalidProtocolObject as error:
            raise ValueError(str(error)) from None
        if len(to_json(context)) > limits.CONTEXT_BYTES:
            raise ValueError(f"must be at most {limits.CONTEXT_BYTES} bytes")
        return context

    @field_validator("verification_policy")
    @classmethod
    def _checked_policy(cls, policy: dict[str, Any] | None) -> dict[str, Any] | None:
        if policy is None:
            return None
        if count_values(policy, limits.POLICY_VALUES) > limits.POLICY_VALUES:
            raise ValueError(f"must have at most {limits.POLICY_VALUES} values")
        try:
            VerificationPolicy.read(policy)
        except InvalidProtocolObject as error:
            raise ValueError(str(error)) from None
        return policy

    @field_validator("formats")
    @classmethod
    def _known_formats(cls, formats: dict[str, str] | None) -> dict[str, str] | None:
        strange = [form for form in (formats or {}).values() if not is_known(form)]
        if strange:
            raise ValueError(f"has the format {strange[0]!r}, which does not exist")
        return formats

    @field_validator("consequences")
    @classmethod
    def _known_consequences(cls, given: list[Wording] | None) -> list[Wording] | None:
        if not all(is_consequence(text) for each in given or () for text in texts_of(each)):
            raise ValueError(f"must be some of {', '.join(CONSEQUENCES)}, people:N and custom:text")
        return given

    @property
    def shown(self) -> JsonObject | None:
        """The caller's fields for showing the case, in the form that is stored; None if it gave none.

        Those in several languages are read with `askfirst.wording.words_in`.
        """
        dumped = self.model_dump(mode="json", include=set(_SHOWN), exclude_none=True)
        said = {_NAMES.get(name, name): value for name, value in dumped.items()}
        spoken = [
            *(self.labels or {}).values(),
            *(self.consequences or ()),
            self.approve_label,
            self.reject_label,
        ]
        tags = languages_of(*spoken, *(link.title for link in self.links or ()))
        return in_languages(_in_language(said, None), {tag: _in_language(said, tag) for tag in tags}) or None

    @property
    def seconds(self) -> int:
        """How long the case is open, in seconds."""
        return parse_duration(self.timeout)

    @property
    def reminders(self) -> tuple[float, ...]:
        """The times of reminders, in seconds since 1970, in order."""
        given = self.reminder_at
        times = [] if given is None else given if isinstance(given, list) else [given]
        return tuple(sorted(each.timestamp() for each in times))

    @property
    def addresses(self) -> tuple[str, ...] | None:
        """The e-mail addresses that a code may be sent to, without repetition."""
        given = self.verify_email
        return None if given is None else tuple(dict.fromkeys([given] if isinstance(given, str) else given))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the body, to compare requests with the same idempotency key."""
        # Unset fields that were added later are left out: fingerprints stored by older versions stay equal.
        later = {name for name in _SHOWN if getattr(self, name) is None}
        if not self.notify:
            later.add("notify")
        return hashlib.sha256(to_json(self.model_dump(mode="json", exclude=later))).hexdigest()

    @property
    def unknown_actions(self) -> list[str]:
        """Inline actions that the case type does not have."""
        known = ACTIONS.get(self.type, ("submit",))
        return [action for action in self.inline_actions or () if action not in known]


def _in_language(shown: JsonObject, tag: str | None) -> JsonObject:
    """The caller's fields in one language."""
    said: dict[str, Any] = dict(shown)
    for name in ("approve", "reject"):
        if name in said:
            said[name] = wording_in(said[name], tag)
    if "labels" in said:
        said["labels"] = {key: wording_in(it, tag) for key, it in said["labels"].items()}
    if "consequences" in said:
        said["consequences"] = [wording_in(it, tag) for it in said["consequences"]]
    if "links" in said:
        said["links"] = [{**it, "title": wording_in(it["title"], tag)} for it in said["links"]]
    return said


def check_terms(review: ReviewRequest, terms: Terms) -> None:
    """Raise `InvalidReview` for a case that the operator's terms do not allow.

    Also raised if labels, formats or important facts name a fact that the context does not have.
    """
    faults: dict[str, str] = {}
    if review.default_action == "approve" and not terms.allow_default_approve:
        faults["default_action"] = (
            "must not be approve here: a case that nobody answers would count as approved; the operator of the "
            "service can allow it (allow_default_approve)"
        )
    about = {"labels": review.labels, "formats": review.formats, "important": review.important}
    for name, named in ((name, given or ()) for name, given in about.items()):
        strange = [key for key in named if key not in review.context]
        if strange:
            faults[name] = f"names {strange[0]!r}, which is not a fact of the context"
    if review.seconds < terms.least_timeout:
        least = iso_duration(math.ceil(terms.least_timeout))
        faults["timeout"] = (
            f"must be at least {least} here; the operator of the service set that (least_timeout)"
        )
    if review.notify and not terms.delivers:
        faults["notify"] = (
            "is not possible here: this service has no deliveries; send the person the link yourself"
        )
    if faults:
        raise InvalidReview(faults)


# Limits of a case's context.


def context_fault(context: Mapping[str, Any]) -> str | None:
    """The first limit that a context exceeds, as a sentence; None if it exceeds none."""
    return next(_context_faults(context), None) or hidden_fault(context)


def _context_faults(context: Mapping[str, Any]) -> Iterator[str]:
    if len(context) > limits.CONTEXT_FACTS:
        yield f"must have at most {limits.CONTEXT_FACTS} facts"
    if count_values(context, limits.BODY_VALUES) > limits.BODY_VALUES:
        yield f"must have at most {limits.BODY_VALUES} values"
    deep = depth_fault(context)
    if deep:
        yield deep
    for name in LISTS.values():
        if _length(context.get(name)) > limits.CONTEXT_ITEMS:
            yield f"{name} must have at most {limits.CONTEXT_ITEMS} items"
    form: Any = context.get("form")
    if isinstance(form, dict):
        yield from _form_faults(cast("dict[str, Any]", form))


def _form_faults(form: Mapping[str, Any]) -> Iterator[str]:
    """The limits of a form that it exceeds. They are checked before the form is validated, to bound its faults."""
    steps: list[Any] = form["steps"] if isinstance(form.get("steps"), list) else []
    if len(steps) > limits.FORM_STEPS:
        yield f"form must have at most {limits.FORM_STEPS} steps"
    lists: list[Any] = [form.get("fields")]
    lists += [cast("dict[str, Any]", step).get("fields") for step in steps if isinstance(step, dict)]
    fields = [each for some in lists if isinstance(some, list) for each in cast("list[Any]", some)]
    if len(fields) > limits.FORM_FIELDS:
        yield f"form must have at most {limits.FORM_FIELDS} fields"
    options = [cast("dict[str, Any]", each).get("options") for each in fields if isinstance(each, dict)]
    if any(_length(each) > limits.FIELD_OPTIONS for each in options):
        yield f"a field of form must have at most {limits.FIELD_OPTIONS} options"
    if sum(map(_length, options)) > limits.FORM_OPTIONS:
        yield f"the fields of form must have at most {limits.FORM_OPTIONS} options together"
    wide = max((len(cast("dict[str, Any]", each)) for each in fields if isinstance(each, dict)), default=0)
    if max(wide, len(form)) > limits.OBJECT_FIELDS:
        yield f"form, and each field of it, must have at most {limits.OBJECT_FIELDS} names"


def hidden_fault(data: Any) -> str | None:
    """A sentence if a value has more hidden characters than a page can mark; otherwise None."""
    left = limits.HIDDEN_CHARACTERS
    for text in _strings(data):
        if text.isascii() and text.isprintable():
            continue
        letters = set(text)
        hidden = [each for each in letters if each != "\n" and hides(each)]
        left -= sum(text.count(each) for each in hidden[: limits.HIDDEN_CHARACTERS // 10])
        if left < 0 or len(hidden) > limits.HIDDEN_CHARACTERS // 10:
            return f"must not have more than {limits.HIDDEN_CHARACTERS} hidden characters"
    return None


def _strings(data: Any) -> Iterator[str]:
    waiting = [data]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            inner = cast("Mapping[str, Any]", each)
            waiting += [*inner, *inner.values()]
        elif isinstance(each, list):
            waiting += cast("list[Any]", each)


def _length(given: Any) -> int:
    return len(cast("list[Any]", given)) if isinstance(given, list) else 0
