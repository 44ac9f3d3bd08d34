"""The arguments of a call: parsed, edited, masked for people, and sealed against changes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from pydantic import AliasChoices, BaseModel, Secret, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, from_json, to_json

from askfirst.agent.emitter import logger
from askfirst.agent.question_ids import is_about
from askfirst.agent.thread import Thread
from askfirst.agent.tools import Tool, json_object
from askfirst.digests import canonical_json
from askfirst.messages import JsonObject
from askfirst.requests import seal_in


def parse_args(tool: Tool, args: Mapping[str, Any]) -> BaseModel | str:
    """The arguments as the tool's model, or what is wrong with them."""
    read = _read(tool, args, faults)
    return _in_a_sentence(read) if isinstance(read, list) else read


def parse_edit(tool: Tool, args: BaseModel | None, edited: Mapping[str, Any]) -> BaseModel | str:
    """Edited arguments as the tool's model, or what is wrong with them.

    ``args`` are the arguments before the edit: their hidden parts stay as they are. None if they are not known.
    """
    read = _read_edit(tool, args, edited, faults)
    return _in_a_sentence(read) if isinstance(read, list) else read


def _in_a_sentence(faults: list[str]) -> str:
    return f"{'; '.join(faults)}."


def _read_edit(
    tool: Tool,
    args: BaseModel | None,
    edited: Mapping[str, Any],
    told: Callable[[ValidationError], list[str]],
) -> BaseModel | list[str]:
    if args is None:
        return _read(tool, edited, told)
    restored, misplaced = unmasked(args, json_object(args), edited)
    read = misplaced or _read(tool, restored, told)
    return read if isinstance(read, list) else masks_in(read) or read


def _read(
    tool: Tool, args: Mapping[str, Any], told: Callable[[ValidationError], list[str]]
) -> BaseModel | list[str]:
    try:
        return tool.parameters.model_validate(dict(args))
    except ValidationError as error:
        return told(error)
    except Exception as error:  # an unexpected error in a validator of the tool
        logger.exception("the arguments of %s could not be checked", tool.name)
        return [f"They could not be checked ({type(error).__name__})"]


def faults(error: ValidationError) -> list[str]:
    """Pydantic's error messages, without the values."""
    return [_at(fault, fault["msg"]) for fault in error.errors(include_url=False, include_input=False)]


def _at(fault: ErrorDetails, words: str) -> str:
    return f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {words}"


def args_faults(tool: Tool, edited: Mapping[str, Any], args: BaseModel | None = None) -> list[str]:
    """The faults of edited arguments; empty if they fit the tool. No message quotes a value.

    ``args`` are the arguments before the edit, if they are known.
    """
    read = _read_edit(tool, args, edited, _unquoted)
    return read if isinstance(read, list) else []


_QUOTING = {
    "union_tag_invalid": "{discriminator} is one of {expected_tags}",
    "uuid_parsing": "Input should be a valid UUID",
}
"""Replacements for those of pydantic's messages that would quote the value."""


def _unquoted(error: ValidationError) -> list[str]:
    said: list[str] = []
    for fault in error.errors(include_url=False, include_input=False):
        words = _QUOTING.get(fault["type"])
        said.append(_at(fault, words.format(**fault.get("ctx", {})) if words else fault["msg"]))
    return said


# Seals: salted digests that bind an answer to arguments which a person was not shown, without revealing these.
#
# A seal is a salted digest of the arguments with nothing masked or left out. It is stored with the request,
# as the arguments themselves are stored with the call.


def seal_of(args: BaseModel, shown: JsonObject, known: str | None = None) -> str | None:
    """The seal of arguments; None if nothing of them is hidden.

    With ``known``, an earlier seal of the same call, the same salt is used: equal arguments give an equal seal.
    """
    if known is None and _equal(vars(args), shown):  # as for most calls
        return None
    everything = whole(args, shown, made=False)
    if known is None and everything == shown:
        return None
    salt = secrets.token_hex(16) if known is None else known.partition(":")[0]
    digest = hmac.new(salt.encode(), canonical_json(json_object(everything)), hashlib.sha256)
    return f"{salt}:{digest.hexdigest()}"


def seal_on(thread: Thread, call_id: str, args: BaseModel, shown: JsonObject) -> str | None:
    """The seal of a call's arguments, comparable with the seals of earlier requests about it."""
    return seal_of(args, shown, known_seal(thread, call_id) if thread.requests else None)


def known_seal(thread: Thread, call_id: str) -> str | None:
    """The seal of an earlier request about a call, that of its approval first."""
    approval = thread.requests.get(call_id)
    if approval is not None and (seal := seal_in(approval.request)) is not None:
        return seal
    for known in thread.requests.values():
        if known is not approval and is_about(known.question_id, call_id) and seal_in(known.request):
            return seal_in(known.request)
    return None


# Hidden arguments: masked, as a `SecretStr` is, or left out, as a field that its model excludes.
#
# An edit that returns them as they were shown leaves them unchanged, at any depth of the arguments.


MISPLACED = "a mask stands here, not a value: leave it where it was shown, or give the value"

_Place = tuple[str, ...]
_SECRETS = (SecretStr, SecretBytes, Secret)
_LISTS = (list, tuple, set, frozenset, deque)
_UNSHOWN: Any = object()


def whole(value: Any, shown: Any = _UNSHOWN, *, made: bool = True) -> Any:
    """A value as plain JSON, with nothing masked or left out; ``shown`` is what people see of it.

    Without ``made`` it lacks values of default factories, which may differ each time.
    """
    value = _unwrapped(value)
    if value is None or isinstance(value, bool) or type(value) in (str, int):
        return value
    if type(value) in (dict, list) or isinstance(value, BaseModel):
        given: Any = vars(value) if isinstance(value, BaseModel) else value
        if _equal(given, shown):
            return shown
    parts = _parts(value)
    if isinstance(parts, dict):
        seen = cast(JsonObject, shown) if isinstance(shown, dict) else {}
        unmade = set[str]() if made else _made(value)
        kept = {key: part for key, part in parts.items() if key not in unmade}
        return seen | {key: whole(part, seen.get(key, _UNSHOWN), made=made) for key, part in kept.items()}
    if isinstance(parts, list):
        listed = _beside(parts, shown)
        plain = [whole(part, each, made=made) for part, each in zip(parts, listed, strict=True)]
        return sorted(plain, key=canonical_json) if isinstance(value, set | frozenset) else plain
    return _leaf(value, shown)


def is_kept_back(value: Any, shown: Any) -> bool:
    """Whether a part of a value is hidden."""
    return whole(value, shown) != shown


def unmasked(
    args: BaseModel, shown: JsonObject, edited: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[str]]:
    """Edited arguments with the hidden parts of ``args`` restored, and the faults that this found.

    A value that is unchanged from what was ``shown`` gets its hidden original. A mask in another place is a fault.
    """
    if not isinstance(edited, Mapping):  # a mistake of a middleware; validation reports it
        return edited, []
    restoring = _Restoring()
    restored = restoring.mapping((), args, shown, edited)
    return restored, [f"{'.'.join(place)}: {MISPLACED}" for place in restoring.misplaced]


def masks_in(args: BaseModel) -> list[str]:
    """The faults of arguments that have a mask for a secret."""
    return [f"{'.'.join(place)}: {MISPLACED}" for place in _masked_at((), args)]


class _Restoring:
    """Restores the hidden parts of an edit, and collects misplaced masks."""

    def __init__(self) -> None:
        self.misplaced: list[_Place] = []
        """Where the edit has a mask that was shown in another place."""

    def value(self, place: _Place, original: Any, shown: Any, edited: Any) -> Any:
        """One value of an edit with its hidden parts restored."""
        given: Any = edited
        if type(given) is type(shown) and _equal(given, shown):
            return original if is_kept_back(original, shown) else given
        parts = _parts(original)
        if isinstance(edited, Mapping) and isinstance(shown, dict) and isinstance(parts, dict):
            return self.mapping(place, original, cast(JsonObject, shown), cast("Mapping[str, Any]", edited))
        if isinstance(edited, list) and isinstance(shown, list) and isinstance(parts, list):
            return self._list(place, parts, cast("list[Any]", shown), cast("list[Any]", edited))
        return given

    def mapping(
        self, place: _Place, original: Any, shown: JsonObject, edited: Mapping[str, Any]
    ) -> dict[str, Any]:
        """An edited model or mapping with its hidden parts restored."""
        found = _parts(original)
        parts = found if isinstance(found, dict) else {}
        restored: dict[str, Any] = {}
        for key, value in edited.items():
            if key in shown and key in parts:
                restored[key] = self.value((*place, key), parts[key], shown[key], value)
            else:
                restored[key] = value
                self._look_for(_masks(parts, shown), (*place, key), value)
        return restored | {
            key: value
            for name, key, value in _left_out(original, shown)
            if key not in restored and name not in restored
        }

    def _list(self, place: _Place, parts: list[Any], shown: list[Any], edited: list[Any]) -> list[Any]:
        if len(edited) != len(shown) or len(parts) != len(shown):  # items cannot be matched any more
            self._look_for(_masks(parts, shown), place, edited)
            return edited
        return [
            self.value((*place, str(index)), *each)
            for index, each in enumerate(zip(parts, shown, edited, strict=True))
        ]

    def _look_for(self, masks: set[str], place: _Place, edited: Any) -> None:
        if masks:
            self.misplaced += [where for where, leaf in _leaves(place, edited) if leaf in masks]


def _equal(value: Any, shown: Any) -> bool:
    try:
        return bool(value == shown)
    except Exception:  # objects such as arrays, whose comparison is no bool
        return False


def _unwrapped(value: Any) -> Any:
    """The value inside a secret or a root model."""
    while True:
        if isinstance(value, _SECRETS):
            value = cast("Secret[Any]", value).get_secret_value()
        elif (
            isinstance(value, BaseModel) and value.__pydantic_root_model__
        ):  # to import RootModel takes 35 ms
            value = cast(Any, value).root
        else:
            return value


def _parts(value: Any) -> dict[str, Any] | list[Any] | None:
    """A value's parts: a dict by the names that are shown, or a list; None for a scalar or a secret."""
    if isinstance(value, _SECRETS):
        return None
    value = _unwrapped(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value).items()
        return {key if type(key) is str else _key(key): part for key, part in entries}
    if isinstance(value, _LISTS):
        return list(cast("list[Any]", value))
    fielded = _fielded(value)
    if fielded is None:
        return None
    infos, attributes = fielded
    extra = (value.model_extra or {}) if isinstance(value, BaseModel) else {}
    return {_shown_name(name, infos.get(name)): part for name, part in attributes.items()} | extra


def _fielded(value: Any) -> tuple[Mapping[str, FieldInfo], dict[str, Any]] | None:
    """The fields of a model or a dataclass, as far as pydantic knows them, and their values by name."""
    infos: Mapping[str, FieldInfo] = getattr(value, "__pydantic_fields__", {})
    if isinstance(value, BaseModel):
        return infos, {name: part for name, part in vars(value).items() if name in infos}
    if is_dataclass(value) and not isinstance(value, type):
        return infos, {each.name: getattr(value, each.name) for each in fields(value)}
    return None


def _shown_name(name: str, info: FieldInfo | None) -> str:
    return name if info is None else info.serialization_alias or info.alias or name


def _given_name(name: str, info: FieldInfo | None) -> str:
    """The name by which a field is validated: its alias or its own name."""
    alias = None if info is None else info.validation_alias or info.alias
    if isinstance(alias, AliasChoices):
        alias = next((each for each in alias.choices if isinstance(each, str)), None)
    return alias if isinstance(alias, str) else name


def _made(value: Any) -> set[str]:
    """The shown names of a model's fields that hold the value of a default factory."""
    if not isinstance(value, BaseModel):
        return set()
    infos = type(value).model_fields
    unset = infos.keys() - value.model_fields_set
    return {_shown_name(name, infos[name]) for name in unset if infos[name].default_factory is not None}


def _left_out(original: Any, shown: JsonObject) -> Iterator[tuple[str, str, Any]]:
    """The fields that were given and are not shown: name, name for validation, value."""
    original = _unwrapped(original)
    infos, attributes = _fielded(original) or ({}, {})
    for name, value in attributes.items():
        given = not isinstance(original, BaseModel) or name in original.model_fields_set
        if given and _shown_name(name, infos.get(name)) not in shown:
            yield name, _given_name(name, infos.get(name)), value


def _key(key: Any) -> str:
    """A mapping's key as a JSON string."""
    try:
        return next(iter(from_json(to_json({key: None}, fallback=str))))
    except Exception:
        return str(key)


def _beside(parts: list[Any], shown: Any) -> list[Any]:
    """The shown form of each part; a placeholder for each if the lengths differ."""
    listed = cast("list[Any]", shown) if isinstance(shown, list) else []
    return listed if len(listed) == len(parts) else [_UNSHOWN] * len(parts)


def _leaf(value: Any, shown: Any) -> Any:
    """A scalar as JSON; without a JSON form, what is shown of it, else its text."""
    try:
        return from_json(to_json(value, inf_nan_mode="strings"))
    except Exception:
        if shown is not _UNSHOWN:
            return shown
    text = str(value)
    return type(value).__qualname__ if " at 0x" in text else text  # an address differs each time


def _masks(parts: Any, shown: Any) -> set[str]:
    """The masks that are shown in place of hidden values, at any depth."""
    if isinstance(shown, str):
        return {shown} if shown and is_kept_back(parts, shown) else set()
    inner = _parts(parts)
    if isinstance(shown, dict) and isinstance(inner, dict):
        pairs = [(inner[key], each) for key, each in cast(JsonObject, shown).items() if key in inner]
    elif isinstance(shown, list) and isinstance(inner, list):
        pairs = list(zip(inner, _beside(inner, shown), strict=True))
    else:
        return set()
    return {mask for part, each in pairs for mask in _masks(part, each)}


def _leaves(place: _Place, tree: Any) -> Iterator[tuple[_Place, Any]]:
    if isinstance(tree, Mapping):
        for key, each in cast("Mapping[Any, Any]", tree).items():
            yield from _leaves((*place, str(key)), each)
    elif isinstance(tree, list):
        for index, each in enumerate(cast("list[Any]", tree)):
            yield from _leaves((*place, str(index)), each)
    elif isinstance(tree, str):
        yield place, tree


def _masked_at(place: _Place, value: Any) -> Iterator[_Place]:
    if isinstance(value, _SECRETS):
        secret = cast("Secret[Any]", value)
        held = secret.get_secret_value()
        if held and str(held) == str(secret):
            yield place
        return
    parts = _parts(value)
    named = parts.items() if isinstance(parts, dict) else enumerate(parts or ())
    for key, part in named:
        yield from _masked_at((*place, str(key)), part)
