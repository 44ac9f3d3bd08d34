"""Editing the arguments of a call: the form fields for the values, and the values from the posted fields.

A plain value has one field, ``arg.2``, named by the index of its argument. An object, or a list with other than
plain values, is a tree of fields, ``arg.2.0.1``. Its hidden field ``arg.2.base`` has the value that the tree was made
of, so that the server can read the tree without state. If ``arg.2`` itself is posted for such a value, it is JSON,
because the person chose to edit it so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, cast

from pydantic_core import from_json

from askfirst.display import parts
from askfirst.formats import CODE, Style, style_for
from askfirst.messages import JsonObject
from askfirst.service.case import Case
from askfirst.service.pages.decision import words_for
from askfirst.service.pages.difference import DiffLine
from askfirst.service.pages.edit_kinds import (
    Control,
    Kind,
    Unread,
    blank,
    children,
    inside,
    is_tree,
    json_in,
    kind_of,
    lines_in,
    resolved,
    text_in,
    unit_of,
    value_in,
)
from askfirst.service.pages.inert_text import Html, Passage, clipped, passage
from askfirst.service.pages.language import Language
from askfirst.service.pages.page_size import EDITED, Room, size_of
from askfirst.service.pages.rows import ROWS, text_of
from askfirst.service.pages.subject import LONGEST_NAME, Compared, changes, differ
from askfirst.visible_text import visible

_SURELY = 20
"""How many fields always fit on a page, unless they are very long."""
_LONGEST_FIELD = 30_000
"""The largest field that can be edited, in bytes: the page that shows the changes has to post them again."""
_FIELD, _OPTION = 900, 60
"""The markup of a field and of an option, in bytes."""
_LONGEST_UNIT = 20
_STEP = re.compile(r"(json|fields|add|remove|putback)\.(\d{1,4}(?:\.\d{1,4}){0,8})")


@dataclass(frozen=True, slots=True)
class Mistyped:
    """A tree of fields, some of which could not be parsed: the value it was made of, and the texts by field."""

    base: Any
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AsJson:
    """A value that the person wants to edit as JSON."""

    value: Any


@dataclass(frozen=True, slots=True)
class Editable:
    """The values that a person may change, with the action and the key of the data that the answer then has."""

    action: Literal["edit", "retry"]
    key: Literal["edits", "modified_params"]
    values: JsonObject
    formats: Mapping[str, str] = field(default_factory=dict[str, str])
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The JSON Schema of all values; empty if none is known."""

    @property
    def secret_names(self) -> set[str]:
        """The names of the secret values, which no page shows."""
        return {name for name in self.values if self.formats.get(name) == "secret"}


@dataclass(frozen=True, slots=True)
class EditOption:
    """One option of a choice. ``value`` is its index."""

    value: str
    label: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class EditField:
    """The field of one value. ``word`` is the tool author's label, ``unit`` the text after a number."""

    name: str
    key: str
    label: Passage
    control: Control
    text: str
    fault: str | None = None
    word: Html | None = None
    hint: Html | None = None
    """What the argument means, in the words of the tool's author."""
    unit: str = ""
    is_code: bool = False
    options: tuple[EditOption, ...] = ()
    fields: tuple[EditField, ...] = ()
    """The inner fields of a tree."""
    base: str = ""
    """The value that a tree was made of, as JSON."""
    is_list: bool = False
    is_item: bool = False
    """Whether it is an item of a list, and so can be removed."""
    may_be_tree: bool = False
    """Whether a value that is edited as JSON can be edited as a tree of fields instead."""
    was: str = ""
    """The text of the original value."""
    is_changed: bool = False
    difference: tuple[DiffLine, ...] = ()

    @property
    def place(self) -> str:
        """The path of indexes, which the buttons beside the field post: ``2.0.1``."""
        return self.name.removeprefix("arg.")


def editable_of(case: Case) -> Editable | None:
    """The values that may be edited: the call's arguments, or the ``params`` of a service's escalation."""
    payload = case.payload
    call = None if payload is None else payload.shown_call
    forms = formats_of(case)
    schema = (None if payload is None else payload.edit_schema) or {}
    if case.type == "approval" and call is not None:
        return Editable("edit", "edits", call[1], forms, schema)
    if case.type != "escalation":
        return None
    params: Any = case.context.get("params") if call is None else call[1]
    if not isinstance(params, dict) or not params:
        return None
    return Editable("retry", "modified_params", cast("JsonObject", params), forms, schema)


def formats_of(case: Case) -> dict[str, str]:
    """The formats of a case's values, by name."""
    given: Any = words_for(case).get("formats")
    if not isinstance(given, dict):
        return {}
    return {name: form for name, form in cast("dict[str, Any]", given).items() if isinstance(form, str)}


# From values to fields.


def edit_fields(
    editable: Editable,
    values: Mapping[str, Any],
    faults: Mapping[str, str],
    words: Mapping[str, Any],
    language: Language,
    room: Room,
    first: int = 0,
) -> list[EditField]:
    """The fields from the value at ``first`` on, as many as the page has room for.

    They are filled with ``values``, else with the original values. ``words`` are those of the tool's author.
    """
    maker, style = _Fields(editable.schema, faults, language), style_for(language.tag)
    found: list[EditField] = []
    given = islice(enumerate(editable.values.items()), first, first + ROWS)
    for place, (name, original) in room.some(given, _FIELD):
        form = editable.formats.get(name, "")
        value = values.get(name, original)
        made = maker.field(f"arg.{place}", name, original, value, form, f"{editable.key}.{name}")
        size = _weight(made)
        if size > min(_LONGEST_FIELD, room.left):
            made, size = replace(made, control="fixed", text="", was="", fields=(), base="", options=()), 0
        room.left -= size
        made = replace(made, word=_said(words, "labels", name))
        if not made.unit:  # a hint is about the value itself, and may name another unit than the field has
            made = replace(made, hint=_said(words, "hints", name))
        found.append(_compared(made, Compared({name: original}, {name: value}, {name: form}), room, style))
    return found


def _said(words: Mapping[str, Any], of: str, name: str) -> Html | None:
    """What the tool's author says of an argument; None without it."""
    given: Any = words.get(of)
    said: Any = cast("dict[str, Any]", given).get(name) if isinstance(given, dict) else None
    return clipped(said, LONGEST_NAME) if isinstance(said, str) else None


def first_shown(editable: Editable, faults: Mapping[str, str], first: int) -> int:
    """The index of the first value with a field: ``first``, or the first faulty value if it may not fit then."""
    first = first if first < len(editable.values) else 0
    at_fault = (place for place, name in enumerate(editable.values) if f"{editable.key}.{name}" in faults)
    place = next(at_fault, first)
    return first if first <= place < first + _SURELY else place


def _weight(it: EditField) -> int:
    """How many bytes of HTML a field takes."""
    texts = (it.text, it.base, *(() if it.was == it.text else (it.was,)))
    if sum(map(len, texts)) > _LONGEST_FIELD:
        return _LONGEST_FIELD + 1
    lines = 6 * it.text.count("\n") if it.is_code else 0
    options = sum(size_of(each.label) + _OPTION for each in it.options)
    return (
        _FIELD
        + min(size_of(it.key[:LONGEST_NAME]), LONGEST_NAME)
        + sum(map(size_of, texts))
        + lines
        + options
        + sum(map(_weight, it.fields))
    )


def _compared(made: EditField, it: Compared, room: Room, style: Style) -> EditField:
    """The field, with the difference from the original value if the person changed it."""
    values = {name: given.value if isinstance(given, AsJson) else given for name, given in it.after.items()}
    if any(isinstance(given, Unread | Mistyped) for given in values.values()):
        return replace(made, is_changed=True)
    if made.control == "fixed" or not differ(it.before, values):
        return made
    found = changes(replace(it, after=values), room, style=style)[0]
    return replace(made, is_changed=True, difference=found.lines)


@dataclass(frozen=True, slots=True)
class _Fields:
    """Makes the form fields of values."""

    root: Mapping[str, Any]
    faults: Mapping[str, str]
    language: Language

    def field(self, name: str, key: str, original: Any, value: Any, form: str, path: str) -> EditField:
        """The field of an argument."""
        schema = inside(resolved(self.root, self.root), key, self.root)
        kind = kind_of(original, form, schema)
        if kind.control in ("tree", "large"):
            return self._tree(name, key, original, value, schema, path)
        made = self._leaf(name, key, kind, value, path)
        return replace(made, was=text_in(kind, original))

    def _tree(
        self, name: str, key: str, original: Any, value: Any, schema: Mapping[str, Any], path: str
    ) -> EditField:
        texts: Mapping[str, str] = {}
        asked = isinstance(value, AsJson | Unread)
        if isinstance(value, Mistyped):
            value, texts = value.base, value.texts
        elif isinstance(value, AsJson):
            value = value.value
        if not asked and isinstance(value, dict | list) and is_tree(value):
            made = self._node(name, key, value, schema, path, texts)
            if made.control == "tree":
                return replace(made, base=json.dumps(value))
        as_json = Kind("json")
        if asked or not isinstance(value, dict | list):
            made = self._leaf(name, key, as_json, value, path)
            return replace(made, may_be_tree=is_tree(original), was=text_in(as_json, original))
        return replace(self._leaf(name, key, as_json, None, path), control="large", text="")

    def _node(
        self,
        name: str,
        key: str,
        value: Any,
        schema: Mapping[str, Any],
        path: str,
        texts: Mapping[str, str],
    ) -> EditField:
        """A node of a tree: a field, or an inner tree."""
        kind = kind_of(value, "", schema)
        if kind.control != "tree":
            made = self._leaf(name, key, kind, value, path)
            return replace(made, text=texts.get(name, made.text), was=made.text)
        is_list = isinstance(value, list)
        inner = [
            replace(
                self._node(
                    f"{name}.{place}",
                    str(place + 1) if within is None else within,
                    it,
                    inside(schema, within, self.root),
                    f"{path}.{place if within is None else within}",
                    texts,
                ),
                is_item=is_list,
            )
            for place, (within, it) in enumerate(children(value))
        ]
        return EditField(
            name,
            key,
            passage(key),
            "tree",
            "",
            fault=self.faults.get(path),
            fields=tuple(inner),
            is_list=is_list,
        )

    def _leaf(self, name: str, key: str, kind: Kind, value: Any, path: str) -> EditField:
        unit = kind.form.partition(":")[2][:_LONGEST_UNIT] if kind.control == "money" else ""
        text = text_in(kind, value)
        return EditField(
            name=name,
            key=key,
            label=passage(key),
            control=kind.control,
            text=text,
            fault=self.faults.get(path),
            unit=unit or unit_of(kind),
            is_code=kind.form.partition(":")[0] in CODE,
            options=self._options(kind, text),
            was=text,
        )

    def _options(self, kind: Kind, text: str) -> tuple[EditOption, ...]:
        return tuple(
            EditOption(str(at), self._word(it), text == str(at)) for at, it in enumerate(kind.options)
        )

    def _word(self, value: Any) -> str:
        if value is None:
            return self.language.plain("value.absent")
        if isinstance(value, bool):
            return self.language.plain("yes" if value else "no")
        return visible(text_of(value)) or self.language.plain("text.empty")


@dataclass(frozen=True, slots=True)
class Sent:
    """The hidden field that posts edited values: named ``changed`` it has those that differ, otherwise all."""

    name: str
    text: str


def sent_edits(editable: Editable, edited: Mapping[str, Any]) -> Sent | None:
    """The hidden field for edited values; None if it is too large for a page.

    An unchanged secret value is not sent.
    """
    gone = any(name not in edited for name in editable.values)
    kept = {
        name
        for name, value in editable.values.items()
        if name in edited
        and (not gone or name in editable.secret_names)
        and not differ({"": value}, {"": edited[name]})
    }
    text = json.dumps({name: it for name, it in edited.items() if name not in kept}, ensure_ascii=False)
    if len(text) > EDITED or size_of(text) > EDITED:
        return None
    return Sent(editable.key if gone else "changed", text)


# From what was posted to values.


def read_edits(editable: Editable, posted: Mapping[str, str]) -> tuple[JsonObject, dict[str, str]]:
    """Every value after the edit, and the faults by key. A value that was not posted is unchanged."""
    reader = _Read(editable, posted)
    values = {
        name: reader.argument(f"arg.{place}", name, original)
        for place, (name, original) in enumerate(editable.values.items())
    }
    return values, reader.faults


class _Read:
    """Parses the posted fields of an edit, and collects the faults."""

    def __init__(self, editable: Editable, posted: Mapping[str, str]) -> None:
        self.faults: dict[str, str] = {}
        self._editable = editable
        self._posted = posted
        self._root = editable.schema
        self._args = resolved(editable.schema, editable.schema)

    def argument(self, name: str, key: str, original: Any) -> Any:
        path = f"{self._editable.key}.{key}"
        schema = inside(self._args, key, self._root)
        kind = kind_of(original, self._editable.formats.get(key, ""), schema)
        if kind.control in ("tree", "large"):
            if name not in self._posted:
                return self._tree(name, original, schema, path)
            kind = Kind("json")
        return self._leaf(name, original, kind, path)

    def _leaf(self, name: str, original: Any, kind: Kind, path: str) -> Any:
        text = self._posted.get(name)
        if text is None or lines_in(text) == lines_in(text_in(kind, original)):
            return original  # a browser changes line ends by itself: no edit
        try:
            return value_in(kind, original, text)
        except ValueError as error:
            self.faults[path] = str(error)
            return Unread(text)

    def _tree(self, name: str, original: Any, schema: Mapping[str, Any], path: str) -> Any:
        if f"{name}.base" not in self._posted:
            return original
        try:
            base: Any = json_in(self._posted[f"{name}.base"])
        except ValueError:
            base = None
        if not isinstance(base, dict | list) or not is_tree(base):
            self.faults[path] = "is not JSON"
            return original
        known = len(self.faults)
        made = self._node(name, base, schema, path)
        if len(self.faults) == known:
            return made
        texts = {each: text for each, text in self._posted.items() if each.startswith(f"{name}.")}
        return Mistyped(base, texts)

    def _node(self, name: str, value: Any, schema: Mapping[str, Any], path: str) -> Any:
        kind = kind_of(value, "", schema)
        if kind.control != "tree":
            return value if kind.control == "large" else self._leaf(name, value, kind, path)
        inner = children(value)
        made = [
            self._node(
                f"{name}.{place}",
                it,
                inside(schema, within, self._root),
                f"{path}.{place if within is None else within}",
            )
            for place, (within, it) in enumerate(inner)
        ]
        return made if isinstance(value, list) else dict(zip((it[0] for it in inner), made, strict=True))


# The buttons beside a field, and the draft of an unfinished edit.


def stepped(editable: Editable, values: JsonObject, intent: str) -> JsonObject | None:
    """The values after a button beside a field was pressed: ``add.2``, ``remove.2.0``, ``putback.2``, ``json.2``.

    None if there is no such button.
    """
    match = _STEP.fullmatch(intent)
    if match is None:
        return None
    first, *path = (int(it) for it in match[2].split("."))
    if first >= len(editable.values):
        return None
    name = list(editable.values)[first]
    if match[1] == "putback":
        return {**values, name: editable.values[name]}
    value = values[name]
    if isinstance(value, Unread | Mistyped):
        return None  # its faults must be corrected first
    if match[1] in ("json", "fields"):
        return {**values, name: cast("Any", AsJson(value))} if match[1] == "json" else dict(values)
    made = from_json(json.dumps(value))
    return {**values, name: made} if _altered(made, match[1], path) else None


def _altered(value: Any, what: str, path: list[int]) -> bool:
    """Add an item to the list at a path, or remove the item at it; False if there is none."""
    for step in path[: len(path) - (what == "remove")]:
        inner = children(value)
        if step >= len(inner):
            return False
        value = inner[step][1]
    if not isinstance(value, list):
        return False
    given = cast("list[Any]", value)
    if what == "add":
        given.append(blank(given[0]) if given else "")
        return True
    if not path or path[-1] >= len(given):
        return False
    del given[path[-1]]
    return True


def begun(case: Case, editable: Editable, posted: Mapping[str, str]) -> JsonObject:
    """The draft of an edit: the typed texts, with the digest of the arguments. Secret values are not stored."""
    values, faults = read_edits(editable, posted)
    typed: dict[str, str] = {}
    for place, (name, original) in enumerate(editable.values.items()):
        own = f"arg.{place}"
        at_fault = any(key.startswith(f"{editable.key}.{name}") for key in faults)
        if name in editable.secret_names or not (at_fault or differ({"": original}, {"": values[name]})):
            continue
        typed |= {key: text for key, text in posted.items() if key == own or key.startswith(f"{own}.")}
    return {"digest": case.digest, "typed": cast("JsonObject", typed)}


def verb_pieces(case: Case, editable: Editable, style: Style) -> str | None:
    """The tool author's template for the button as JSON: its pieces, each with its field's name if it is a value.

    A script fills in the values as they are typed. None if the author gave no template.
    """
    templates: Any = words_for(case, style.tag).get("templates")
    if not isinstance(templates, dict) or editable.action != "edit":
        return None
    said = cast("dict[str, Any]", templates).get("approve")
    if not isinstance(said, str):
        return None
    names = list(editable.values)
    pieces = [
        [visible(it.text), None if it.argument is None else f"arg.{names.index(it.argument)}"]
        for it in parts(said, editable.values, editable.formats, style)
        if it.argument is None or it.argument in names
    ]
    return json.dumps(pieces, ensure_ascii=False)


def focused(fields: Sequence[EditField], faults: Mapping[str, str]) -> str | None:
    """The name of the field that gets the focus: the first with a fault, else the first that was changed."""
    at_fault = next((it.name for each in fields for it in _each(each) if it.fault), None)
    if at_fault is not None or faults:
        return at_fault
    return next((_first(it).name for it in fields if it.is_changed), None)


def _each(it: EditField) -> Iterator[EditField]:
    yield it
    for inner in it.fields:
        yield from _each(inner)


def _first(it: EditField) -> EditField:
    return _first(it.fields[0]) if it.fields else it


def continued(case: Case, editable: Editable) -> JsonObject:
    """The values of an unfinished edit from the draft; empty if there is none for these arguments."""
    typed = _typed_before(case)
    return read_edits(editable, typed)[0] if typed else {}


def with_other_parts(case: Case, posted: Mapping[str, str]) -> dict[str, str]:
    """The posted fields, with the draft's texts for arguments that this page had no fields for.

    A page that shows a part of very many arguments posts the range of the part's indexes as ``rows``.
    """
    first, _, end = posted.get("rows", "").partition("-")
    if not (first.isdecimal() and end.isdecimal()):
        return dict(posted)
    begin, stop = int(first[:6]), int(end[:6])  # no set of the places between: a form may name a million
    typed = _typed_before(case).items()
    return {name: text for name, text in typed if not begin <= int(name.split(".")[1]) < stop} | dict(posted)


def _typed_before(case: Case) -> dict[str, str]:
    draft = case.draft or {}
    typed: Any = draft.get("typed")
    if case.form is not None or draft.get("digest") != case.digest or not isinstance(typed, dict):
        return {}
    return {name: str(text) for name, text in cast("dict[str, Any]", typed).items()}
