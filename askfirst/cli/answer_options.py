"""The options of ``askfirst answer``, converted to the answer that each kind of request takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import click
from pydantic_core import from_json

from askfirst.cli.find import AgentRequest, Item
from askfirst.errors import InvalidReview
from askfirst.protocol import FormField
from askfirst.requests import ApproveRequest, Question
from askfirst.service.answers import clean_answer
from askfirst.service.case import Case

_CALL = "--approve | --deny [REASON] | --edit FILE | --set NAME=VALUE ..."
_FILLED = "--set NAME=VALUE ... | --edit FILE"
_PICKED = "--choose VALUE ..."
_NEXT = "--choose {choices} [--set NAME=VALUE ... | --edit FILE]"


@dataclass(frozen=True, slots=True)
class Said:
    """The options of the command; ``edit`` is the JSON object in the file."""

    approve: bool = False
    deny: str | None = None
    edit: Mapping[str, Any] | None = None
    sets: Sequence[tuple[str, str]] = ()
    chosen: Sequence[str] = ()

    @property
    def given(self) -> set[str]:
        """The names of the options that were given."""
        has = {
            "approve": self.approve,
            "deny": self.deny is not None,
            "edit": self.edit is not None,
            "set": bool(self.sets),
            "choose": bool(self.chosen),
        }
        return {name for name, there in has.items() if there}


class WrongOptions(click.ClickException):
    """The options do not fit the request."""

    exit_code = 2


def how_to_answer(item: Item) -> str:
    """The options that answer an item, as a usage line."""
    how = _REQUESTS[item.kind].how if isinstance(item, AgentRequest) else _type_of(item).how
    if _single(item) is not None:
        how = f"{_PICKED} | {how}"
    return how if how != _NEXT else how.replace("{choices}", " | --choose ".join(item.case.actions))


def request_answer(item: AgentRequest, said: Said) -> Any:
    """The answer to an agent's request, to be checked when it is settled. Raises `WrongOptions`."""
    return _REQUESTS[item.kind].answer(item, said)


def case_answer(item: Item, said: Said) -> tuple[str, dict[str, Any]]:
    """The action, and its data, that answer a service's case. Raises `WrongOptions`."""
    return _type_of(item).answer(item, said)


class _Row(NamedTuple):
    """The options that answer a kind of request, or a type of case, and the answer that they make."""

    how: str
    answer: Callable[[Any, Said], Any]


# Agents' requests, by their kind.


def _confirm(item: AgentRequest, said: Said) -> bool:
    _check(item, said, "approve", "deny")
    if said.deny:
        raise WrongOptions("a yes-or-no question of an agent keeps no reason: say --deny alone.")
    return said.approve


def _approve(item: AgentRequest, said: Said) -> dict[str, Any]:
    _check(item, said, "approve", "deny", "edit", "set")
    if said.approve:
        return {"decision": "approve"}
    if said.deny is not None:
        return {"decision": "deny"} | ({"reason": said.deny} if said.deny else {})
    shown = cast(ApproveRequest, item.request.payload).args
    edits = _changed(shown, said)
    if edits == shown:
        raise WrongOptions("nothing is changed by that: say --approve to let it run as it is.")
    clean_answer(item.case, "edit", {"edits": edits})
    return {"decision": "edit", "edited_args": edits}


def _ask(item: AgentRequest, said: Said) -> dict[str, Any]:
    single = _single(item)
    _check(item, said, "set", "edit", *(["choose"] if single else []))
    if said.edit is not None:
        return dict(said.edit)
    if single is not None and said.chosen:
        return {single.key: _several(said.chosen, single.multi_select)}
    multiple = {each.key: each.multi_select for each in item.request.payload.questions_asked}
    return {key: _several(texts, multiple.get(key, False)) for key, texts in _by_name(said.sets).items()}


def _single(item: Item) -> Question | None:
    """The request's only question, if it has one and that has choices."""
    asked = item.request.payload.questions_asked if isinstance(item, AgentRequest) else ()
    return asked[0] if len(asked) == 1 and asked[0].options else None


def _several(texts: Sequence[str], multiple: bool) -> str | list[str]:
    """One text or a list of texts. Several texts for a question that takes one are refused later, when the answer is
    checked."""
    return texts[0] if len(texts) == 1 and not multiple else list(texts)


def _escalate(item: AgentRequest, said: Said) -> dict[str, Any]:
    action, changed = _next(item, said)
    return {"action": action} | ({} if changed is None else {"modified_params": changed})


_REQUESTS: Mapping[str, _Row] = {
    "confirm": _Row("--approve | --deny", _confirm),
    "approve": _Row(_CALL, _approve),
    "ask": _Row(_FILLED, _ask),
    "escalate": _Row(_NEXT, _escalate),
}


# Services' cases, by their type.


def _approval(item: Item, said: Said) -> tuple[str, dict[str, Any]]:
    _check(item, said, "approve", "deny", "edit", "set")
    if said.approve:
        return "approve", {}
    if said.deny is not None:
        return "reject", {"feedback": said.deny} if said.deny else {}
    return "edit", {"edits": _changed({}, said)}


def _confirmation(item: Item, said: Said) -> tuple[str, dict[str, Any]]:
    if said.given == {"approve", "choose"}:
        return "confirm", {"confirmed_items": list(said.chosen)}
    _check(item, said, "approve", "deny")
    if said.deny is not None:
        return "cancel", {"note": said.deny} if said.deny else {}
    if item.case.context.get("items_to_confirm"):
        raise WrongOptions("say what is confirmed: --approve with --choose ITEM for each.")
    return "confirm", {}


def _selection(item: Item, said: Said) -> tuple[str, dict[str, Any]]:
    _check(item, said, "choose")
    return "select", {"selected": list(said.chosen)}


def _escalation(item: Item, said: Said) -> tuple[str, dict[str, Any]]:
    action, changed = _next(item, said)
    return action, {} if changed is None else {"modified_params": changed}


def _input(item: Item, said: Said) -> tuple[str, dict[str, Any]]:
    _check(item, said, "set", "edit")
    return "submit", _filled(item.case, said)


_TYPES: Mapping[str, _Row] = {
    "approval": _Row(_CALL, _approval),
    "selection": _Row(_PICKED, _selection),
    "confirmation": _Row("--approve [--choose ITEM ...] | --deny [REASON]", _confirmation),
    "escalation": _Row(_NEXT, _escalation),
    "input": _Row(_FILLED, _input),
}


def _type_of(item: Item) -> _Row:
    """The row of a case's type; one of a service's own is answered like an input."""
    return _TYPES.get(item.case.type, _TYPES["input"])


def _filled(case: Case, said: Said) -> dict[str, Any]:
    if said.edit is not None:
        return dict(said.edit)
    fields = {} if case.form is None else {field.key: field for field in case.form.all_fields}
    faults: dict[str, str] = {}
    data: dict[str, Any] = {}
    for key, texts in _by_name(said.sets).items():
        try:
            data[key] = _field_value(fields.get(key), texts)
        except ValueError as error:
            faults[f"data.{key}"] = str(error)
    if faults:
        raise InvalidReview(faults)
    return data


def _field_value(field: FormField | None, texts: Sequence[str]) -> Any:
    kind = "text" if field is None else field.type
    if kind == "multiselect":
        return list(texts)
    if len(texts) > 1:
        raise ValueError("is given twice")
    if kind == "boolean":
        if texts[0] not in ("true", "false"):
            raise ValueError("is true or false")
        return texts[0] == "true"
    return _like(0, texts[0]) if kind in ("number", "range") else texts[0]


# Both.


def _next(item: Item, said: Said) -> tuple[str, dict[str, Any] | None]:
    """The choice of an escalation, and other arguments for a retry if there are any."""
    from askfirst.service.pages.edits import editable_of

    if said.given - {"set", "edit"} != {"choose"} or {"set", "edit"} <= said.given or len(said.chosen) != 1:
        raise _wrong(item)
    if said.given == {"choose"}:
        return said.chosen[0], None
    editable = editable_of(item.case)
    return said.chosen[0], _changed({} if editable is None else editable.values, said)


def _changed(shown: Mapping[str, Any], said: Said) -> dict[str, Any]:
    """The edited arguments: those in the file, or those shown with the values of ``--set``."""
    if said.edit is not None:
        return dict(said.edit)
    values, faults = dict(shown), dict[str, str]()
    for name, texts in _by_name(said.sets).items():
        try:
            if len(texts) > 1:
                raise ValueError("is given twice")
            values[name] = _like(shown.get(name, ""), texts[0])
        except ValueError as error:
            faults[name] = str(error)
    if faults:
        raise InvalidReview(faults)
    return values


def _like(shown: Any, text: str) -> Any:
    """The value of ``--set``: text where the argument shown is text, else parsed as JSON; for null either is
    accepted."""
    if isinstance(shown, str):
        return text
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        if shown is None:
            return text
        is_number = isinstance(shown, int | float) and not isinstance(shown, bool)
        raise ValueError("is a number" if is_number else "is JSON, like the value shown") from None


def _by_name(sets: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for name, text in sets:
        texts.setdefault(name, []).append(text)
    return texts


def _check(item: Item, said: Said, *allowed: str) -> None:
    """Check that exactly one of these options was given, and no other."""
    if len(said.given) != 1 or not said.given <= set(allowed):
        raise _wrong(item)


def _wrong(item: Item) -> WrongOptions:
    return WrongOptions(f"this is of the kind {item.kind}, which is answered with: {how_to_answer(item)}")
