"""The form of a case, in ``context.form``: its steps, fields and conditions."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from assent.protocol.scalars import Count, Flag, Json, Number, Text, Uri
from assent.protocol.wire import Opt, Wire

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
