"""The form of a case: fields, options, and their limits."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from askfirst import limits
from askfirst.protocol.patterns import size_fault, weight_of
from askfirst.protocol.wire import Count, Flag, Json, Number, Opt, Text, Uri, Wire

FieldKey = Annotated[Text, StringConstraints(pattern=r"^[a-zA-Z][a-zA-Z0-9_]*$")]
FIELD_TYPES = (
    "text",
    "textarea",
    "number",
    "date",
    "email",
    "url",
    "boolean",
    "select",
    "multiselect",
    "range",
)
"""The protocol's own field types; any other is shown and read as text."""

Operator = Literal["eq", "neq", "in", "gt", "lt"]


class FieldOption(Wire):
    """One choice of a select or multiselect field."""

    value: Text
    label: Text


class FieldValidation(Wire):
    """Bounds of a field's value. On the wire, and in Python's calls, the first two are camel case."""

    min_length: Opt[Count] = Field(default=None, alias="minLength")
    max_length: Opt[Count] = Field(default=None, alias="maxLength")
    pattern: Opt[Text] = None
    min: Opt[Number] = None
    max: Opt[Number] = None


class Condition(Wire):
    """When a field is shown: what an earlier field's value must be like."""

    field: Text
    operator: Operator
    value: Json


class FormField(Wire):
    """One field. ``sensitive`` values are shown masked and never logged."""

    key: FieldKey
    label: Annotated[Text, StringConstraints(max_length=200)]
    type: Text
    required: Flag = False
    placeholder: Opt[Text] = None
    hint: Opt[Text] = None
    default: Json = Field(default=None, exclude_if=lambda value: value is None)
    default_ref: Opt[Uri] = None
    sensitive: Flag = False
    options: Opt[list[FieldOption]] = None
    validation: Opt[FieldValidation] = None
    conditional: Opt[Condition] = None


class FormStep(Wire):
    """One page of a form in several steps; without fields it is a summary."""

    title: Text
    description: Opt[Text] = None
    fields: list[FormField]


class Form(Wire):
    """A form of one step (``fields``) or of several (``steps``), never both."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["fields"]}, {"required": ["steps"]}]},
    )

    fields: Opt[list[FormField]] = None
    steps: Opt[list[FormStep]] = None
    session_id: Opt[Text] = None

    @model_validator(mode="after")
    def _fields_or_steps(self) -> Self:
        if (self.fields is None) == (self.steps is None):
            raise ValueError("a form has either fields or steps")
        return self

    @property
    def all_fields(self) -> list[FormField]:
        """Every field, in the order in which a person meets them."""
        if self.steps is None:
            return list(self.fields or ())
        return [field for step in self.steps for field in step.fields]


# Limits of a form, checked once, when a case is opened.


def limit_faults(form: Form) -> dict[str, str]:
    """The limits that a form exceeds: a sentence for each field, or under ``""`` for the whole form."""
    fields = form.all_fields
    whole = next(_whole(form, fields), None)
    if whole is not None:
        return {"": whole}
    found = {field.key: "; ".join(_field(field)) for field in fields}
    faults = {key: fault for key, fault in found.items() if fault}
    patterns = [field.validation.pattern for field in fields if field.validation and field.validation.pattern]
    if not faults and sum(map(weight_of, patterns)) > limits.FORM_PATTERN_WEIGHT:
        return {"": "its patterns repeat too much together"}
    return faults


def _whole(form: Form, fields: list[FormField]) -> Iterator[str]:
    if len(fields) > limits.FORM_FIELDS:
        yield f"a form has at most {limits.FORM_FIELDS} fields"
    if len(form.steps or ()) > limits.FORM_STEPS:
        yield f"a form has at most {limits.FORM_STEPS} steps"
    if sum(len(field.options or ()) for field in fields) > limits.FORM_OPTIONS:
        yield f"the fields of a form have at most {limits.FORM_OPTIONS} options together"
    if sum(field.validation is not None and field.validation.pattern is not None for field in fields) > (
        limits.PATTERNS
    ):
        yield f"a form has at most {limits.PATTERNS} patterns"
    told = [text for step in form.steps or () for text in (step.title, step.description or "")]
    if any(len(text) > limits.HINT_CHARACTERS for text in told):
        yield f"a step's title and description have at most {limits.HINT_CHARACTERS} characters"


def _field(field: FormField) -> Iterator[str]:
    options = field.options or ()
    if len(options) > limits.FIELD_OPTIONS:
        yield f"has more than {limits.FIELD_OPTIONS} options"
    texts = [field.key, field.type, field.hint or "", field.placeholder or ""]
    texts += [text for option in options for text in (option.value, option.label)]
    if any(len(text) > limits.HINT_CHARACTERS for text in texts):
        yield f"has a text of more than {limits.HINT_CHARACTERS} characters"
    compared = None if field.conditional is None else field.conditional.value
    if isinstance(compared, list) and len(compared) > limits.CONDITION_VALUES:
        yield f"its condition names more than {limits.CONDITION_VALUES} values"
    pattern = None if field.validation is None else field.validation.pattern
    too_large = None if pattern is None else size_fault(pattern)
    if too_large is not None:
        yield f"its pattern {too_large}"
