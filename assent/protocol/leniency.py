"""Reading another party's object with leniency: what is needed has to be right, the rest may be as it is.

`Wire.read` is for what we write ourselves, and refuses an object for one field too many. An agent that waits for
a person cannot afford that: a service adds a field, or writes an optional one in its own way, and the wait goes
on. So the objects of other parties are read field by field. What cannot be used is set aside, and kept.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json, to_json

from assent.errors import InvalidProtocolObject
from assent.protocol.faults import faults_of
from assent.protocol.wire import Wire

MOST_ITEMS = 1_000
"""Of a list that the protocol knows, such as ``reminder_at``; a longer one cannot be used."""
MOST_FIELDS = 20_000
"""And items, of an object with all the objects in it; what comes after them cannot be used."""
MOST_BYTES = 64_000
"""Of what is set aside of an object, as JSON: more than that is not kept."""

W = TypeVar("W", bound=Wire)


@dataclass(frozen=True, slots=True)
class Lenient(Generic[W]):
    """An object that was read with leniency, and what of it is not in ``value``."""

    value: W
    aside: dict[str, Any] = field(repr=False)
    """The fields that the protocol does not know, and those whose values cannot be used, in their places."""
    odd: frozenset[str] = frozenset()
    """The paths of the latter, such as ``result.signature.signer``."""

    def is_odd(self, name: str) -> bool:
        """Whether a field, or something in it, could not be used."""
        return any(path == name or path.startswith((f"{name}.", f"{name}[")) for path in self.odd)


def read_leniently(model: type[W], data: Mapping[str, Any]) -> Lenient[W]:
    """Read an object whose required fields are right, whatever its other fields are.

    An optional field that cannot be used, or is null, counts as absent; a field that the protocol does not know
    is left out; so it is in the objects inside. A list keeps the items that can be used. Raises
    `InvalidProtocolObject` for required fields only. What a hostile object costs is bounded: see `MOST_ITEMS`
    and `MOST_FIELDS`.
    """
    reader = _Reader()
    taken, aside, faults = reader.fields(model, data)
    if faults:
        raise InvalidProtocolObject(model.__name__, faults)
    try:
        value = model.model_validate(taken)
    except ValidationError as error:
        raise InvalidProtocolObject(model.__name__, faults_of(error, taken)) from None
    return Lenient(value, _storable(aside), frozenset(reader.odd))


def _storable(aside: dict[str, Any]) -> dict[str, Any]:
    """What was set aside, if it is JSON and not too much of it."""
    try:
        told = to_json(aside, inf_nan_mode="constants")
        return {} if len(told) > MOST_BYTES else cast("dict[str, Any]", from_json(told, allow_inf_nan=False))
    except ValueError:
        return {}


_TOO_MANY = "is one field too many"


@dataclass(frozen=True, slots=True)
class _Unusable:
    fault: str


class _Used(NamedTuple):
    """A value as far as it can be used, and what of it is set aside."""

    value: Any
    aside: Any = None


class _Reader:
    """Reads one object, and counts what it looks at."""

    def __init__(self) -> None:
        self.odd: set[str] = set()
        self._looked_at = 0

    def fields(
        self, model: type[Wire], data: Mapping[str, Any], path: str = ""
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
        """The fields of an object that can be used, what is set aside, and the faults of the required ones."""
        known = {info.alias or name: name for name, info in model.model_fields.items()}
        taken: dict[str, Any] = {}
        aside = {name: value for name, value in data.items() if name not in known}
        faults: dict[str, str] = {}
        for wire_name, name in known.items():
            value, is_required = data.get(wire_name), model.model_fields[name].is_required()
            if value is None:
                if is_required:
                    faults[wire_name] = "is required"
                continue
            used = self._used(model, name, value, f"{path}{wire_name}")
            if isinstance(used, _Unusable):
                self.odd.add(f"{path}{wire_name}")
                aside[wire_name] = value
                if is_required:
                    faults[wire_name] = used.fault
                continue
            taken[wire_name] = used.value
            if used.aside is not None:
                aside[wire_name] = used.aside
        return taken, aside, faults

    def _used(self, model: type[Wire], name: str, value: Any, path: str) -> _Used | _Unusable:
        self._looked_at += 1
        if self._looked_at > MOST_FIELDS:
            return _Unusable(_TOO_MANY)
        inner, is_list = _inside(model.model_fields[name])
        if is_list and isinstance(value, list):
            return self._list(model, name, cast("list[Any]", value), inner, path)
        if inner is not None and not is_list:
            return self._object(inner, value, path)
        fault = _fault(model, name, value)
        return _Used(value) if fault is None else _Unusable(fault)

    def _object(self, model: type[Wire], value: Any, path: str) -> _Used | _Unusable:
        if not isinstance(value, Mapping):
            return _Unusable("must be an object")
        taken, aside, faults = self.fields(model, cast("Mapping[str, Any]", value), f"{path}.")
        if not faults:
            try:
                model.model_validate(taken)
            except ValidationError as error:
                faults = faults_of(error, taken)
        if faults:
            told = (f"its {name} {fault}" if name else fault for name, fault in faults.items())
            return _Unusable("; ".join(told))
        return _Used(taken, aside or None)

    def _list(
        self, model: type[Wire], name: str, items: list[Any], inner: type[Wire] | None, path: str
    ) -> _Used | _Unusable:
        if len(items) > MOST_ITEMS:
            return _Unusable(f"has more than {MOST_ITEMS} items")
        self._looked_at += len(items)
        if self._looked_at > MOST_FIELDS:
            return _Unusable(_TOO_MANY)
        usable: list[Any] = []
        is_whole = True
        for place, item in enumerate(items):
            here = f"{path}[{place}]"
            if inner is not None:
                used = self._object(inner, item, here)
            else:
                fault = _fault(model, name, [item])
                used = _Used(item) if fault is None else _Unusable(fault)
            if isinstance(used, _Unusable):
                self.odd.add(here)
                is_whole = False
            else:
                usable.append(used.value)
                is_whole = is_whole and used.aside is None
        if items and not usable:
            return _Unusable("has no item that can be used")
        return _Used(usable, None if is_whole else items)


def _fault(model: type[Wire], name: str, value: Any) -> str | None:
    """What is wrong with the value of a single field."""
    try:
        _adapter(model, name).validate_python(value)
    except ValidationError as error:
        return "; ".join(faults_of(error, value).values())
    return None


@cache
def _adapter(model: type[Wire], name: str) -> TypeAdapter[Any]:
    """What checks a single field of a model."""
    info = model.model_fields[name]
    kind: Any = info.annotation
    for each in info.metadata:
        kind = cast(Any, Annotated)[kind, each]
    return TypeAdapter[Any](kind)


def _inside(info: FieldInfo) -> tuple[type[Wire] | None, bool]:
    """The model of the objects in a field, if it holds such, and whether it holds a list."""
    for kind in _kinds(info.annotation):
        if get_origin(kind) is list:
            (item,) = get_args(kind)
            return (item if _is_wire(item) else None), True
        if _is_wire(kind):
            return kind, False
    return None, False


def _is_wire(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Wire)


def _kinds(annotation: Any) -> Iterator[Any]:
    """The members of a union, or the one kind that it is."""
    if get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _kinds(each)
    elif get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    else:
        yield annotation
