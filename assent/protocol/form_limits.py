"""How large a form may be that somebody else has written; a form that was taken once is not measured again."""

from collections.abc import Iterator

from assent import limits
from assent.protocol.form import Form, FormField
from assent.protocol.patterns import size_fault, weight_of


def limit_faults(form: Form) -> dict[str, str]:
    """What is too much of a form: a sentence for each field, or under ``""`` for the whole of it."""
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
