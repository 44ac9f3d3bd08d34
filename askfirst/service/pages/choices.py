"""Choices: the items that a person chooses from or confirms, with a long list shown in parts (pagination).

A part has `PART` items. Two hidden fields of the form hold the state as bitmaps of positions: which items are chosen
on other parts, and which were shown. So a page needs no script, and a forged form cannot choose an item that the case
does not have.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, cast

from askfirst.service.answers import LISTS, id_key, item_id
from askfirst.service.case import Case
from askfirst.service.pages.inert_text import Html, cut, hidden_in, marked
from askfirst.service.pages.row import Unopened
from askfirst.service.pages.rows import text_of
from askfirst.service.pages.subject import is_number

Order = Literal["", "down", "up"]
PART = 30
"""How many items a part has."""
SEARCHED = 8
"""The least number of items for which there is a search."""
LONGEST_FIND = 200
_PART_ROOM = 50_000
"""Bytes of HTML that the items of a part may take."""
_TITLES = ("title", "label", "name")
_DESCRIPTION = "description"
_ON_A_LINE = 3
_SHORT = 60
_LONGEST_NAME = 300
"""The most bytes of HTML of a fact's name."""
_LONGEST_ESCAPE, _LONGEST_MARK = 6, 160
"""The most bytes of HTML that a character takes: one of plain text, and any other, which may need a mark."""
_FACT = 60
"""The markup around a fact."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One item to choose: its id, name and description, and further facts."""

    id: str
    name: str
    description: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


def choices_of(case: Case) -> list[Choice]:
    """The items to choose from, in order. Empty if the case has no items, or if their ids are not distinct."""
    given: Any = case.context.get(LISTS.get(case.type, ""))
    items = [_choice(item) for item in cast("list[Any]", given)] if isinstance(given, list) else []
    choices = [item for item in items if item is not None]
    distinct = len({choice.id for choice in choices}) == len(items)
    return choices if distinct else []


def takes_one(case: Case) -> bool:
    """Whether only one item may be chosen."""
    return case.context.get("multiple") is False


def needs_one(case: Case) -> bool:
    """Whether at least one item has to be chosen."""
    return case.context.get("required", True) is not False


def _choice(item: Any) -> Choice | None:
    id_ = item_id(item)
    if id_ is None:
        return None
    if not isinstance(item, Mapping):
        return Choice(id_, id_)
    fields = cast("Mapping[str, Any]", item)
    named = next((name for name in _TITLES if isinstance(fields.get(name), str) and fields[name]), None)
    said = fields.get(_DESCRIPTION)
    about = said if isinstance(said, str) else ""
    told = _DESCRIPTION if about else None
    rest = {
        name: value
        for name, value in fields.items()
        if name not in (id_key(fields), named, told) and value is not None
    }
    return Choice(id_, id_ if named is None else fields[named], about, rest)


def choice_text(it: Choice) -> str:
    """The whole text of an item, with a line for each fact."""
    facts = [f"{name}: {text_of(value)}" for name, value in it.facts.items()]
    return "\n".join([it.name, *([it.description] if it.description else []), *facts])


# An item on a page.


@dataclass(frozen=True, slots=True)
class Fact:
    """A named value of an item; ``is_yes`` is set if the value is true or false."""

    name: Html
    text: Html
    is_yes: bool | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """An item as a page shows it. ``rest`` addresses the page of the whole item; it is None if nothing was cut."""

    place: int
    title: Html
    description: Html | None
    line: list[Fact]
    facts: list[Fact]
    rest: Unopened | None
    is_chosen: bool
    number: Fact | None = None
    """The fact by which the list can be sorted."""


def _item(it: Choice, place: int, most: int, is_chosen: bool, column: str | None = None) -> Item:
    """An item, cut to about ``most`` bytes of HTML. ``column`` names the number by which the list can be sorted."""
    title, shown = cut(it.name, most // 2)
    is_cut = _is_cut(it.name, shown)
    most = max(most - len(title.encode()), 200)
    description, shown = cut(it.description, most // 2)
    is_cut = is_cut or _is_cut(it.description, shown)
    most = max(most - len(description.encode()), 200)
    number = _fact(column, it.facts[column]) if column is not None and column in it.facts else None
    fit = (name for name, value in it.facts.items() if name != column and _is_short(name, value))
    short = list(islice(fit, _ON_A_LINE))
    facts: list[Fact] = []
    for name, value in it.facts.items():
        if name in short or name == column:
            continue
        text = text_of(value)
        label, of_name = cut(name, min(max(most, 60), _LONGEST_NAME))
        html, shown = cut(text, max(most, 60))
        is_cut = is_cut or _is_cut(name, of_name) or _is_cut(text, shown) or most <= 0
        if most > 0:
            facts.append(Fact(label, html))
        most -= len(label.encode()) + len(html.encode()) + _FACT
    return Item(
        place,
        title,
        description or None,
        [_fact(name, it.facts[name]) for name in short],
        facts,
        Unopened(title, place, 0, 1, 1, "items", "item") if is_cut else None,
        is_chosen,
        number,
    )


def _is_cut(text: str, shown: int) -> bool:
    """Whether a text has more than the characters that are shown, apart from empty lines at its end."""
    return shown < len(text.rstrip("\n"))


def _surely_fits(it: Choice, most: int) -> bool:
    """Whether an item surely needs no cut to be shown in ``most`` bytes: without making its HTML."""
    title, about = _most_html(it.name), _most_html(it.description)
    left = most - title
    if title > most // 2 or about > left // 2 or any(_most_html(name) > _LONGEST_NAME for name in it.facts):
        return False
    facts = (_most_html(name) + _most_html(text_of(value)) + _FACT for name, value in it.facts.items())
    return sum(facts) <= left - about


def _most_html(text: str) -> int:
    """The most bytes of HTML that a text can take."""
    return len(text) * (_LONGEST_ESCAPE if text.isascii() and text.isprintable() else _LONGEST_MARK)


def _in_field(it: Item, field: int | None) -> Item:
    """The item of a field's option: the page of the field's text shows it whole."""
    if field is None or it.rest is None:
        return it
    return replace(it, rest=replace(it.rest, of="field", row=field))


def _fact(name: str, value: Any) -> Fact:
    return Fact(marked(name), marked(text_of(value)), value if isinstance(value, bool) else None)


def _is_short(name: str, value: Any) -> bool:
    if isinstance(value, dict | list) or len(name) > _SHORT or not name:
        return False
    text = text_of(value)
    return 0 < len(text) <= _SHORT and "\n" not in text and hidden_in(text) is None


def _room_for_each(count: int) -> int:
    return _PART_ROOM // max(min(count, PART), 1)


# Where a person is in a long list.


@dataclass(frozen=True, slots=True)
class Reading:
    """Where a person is in a list: the part, counted from 1, the search text, and the positions shown so far.

    ``order`` sorts by the list's number, ``down`` or ``up``; if it is empty, the list has the order of the case.
    """

    part: int = 1
    find: str = ""
    seen: frozenset[int] = frozenset()
    order: Order = ""


def packed(places: Collection[int]) -> str:
    """Positions as a bitmap in base64, for a hidden field of a form."""
    bits = bytearray(max(places, default=-1) // 8 + 1)
    for place in places:
        bits[place // 8] |= 1 << place % 8
    return urlsafe_b64encode(bits).decode()


def unpacked(text: str, count: int) -> frozenset[int]:
    """The positions below ``count`` in a text that `packed` made; none for any other text."""
    try:
        bits = urlsafe_b64decode(text.encode("ascii"))[: count // 8 + 1]
    except (ValueError, binascii.Error):
        return frozenset()
    return frozenset(place for place in range(min(count, len(bits) * 8)) if bits[place // 8] >> place % 8 & 1)


@dataclass(frozen=True, slots=True)
class Listing:
    """One part of a list as a page shows it. ``kept`` (chosen on other parts) and ``seen`` are hidden fields."""

    items: list[Item]
    count: int
    chosen: int
    elsewhere: int
    """How many of the chosen items are on other parts."""
    kept: str
    seen: str
    unseen: int
    part: int
    parts: int
    find: str
    found: int
    column: Html | None = None
    """The name of the number by which the list can be sorted."""
    order: Order = ""

    @property
    def next_order(self) -> Order:
        """The order after the next press of the button that sorts."""
        following: Mapping[Order, Order] = {"": "down", "down": "up", "up": ""}
        return following[self.order]

    @property
    def is_paged(self) -> bool:
        """Whether there is more than one part."""
        return self.count > PART

    @property
    def first(self) -> int:
        """The number of the first item that is shown, counted from 1, among those that were found."""
        return (self.part - 1) * PART + 1

    @property
    def last(self) -> int:
        """The number of the last item that is shown."""
        return self.first + len(self.items) - 1


def listing(
    choices: Sequence[Choice], chosen: Collection[str], reading: Reading, field: int | None = None
) -> Listing:
    """The part of a list that ``reading`` names, or the nearest part that exists; ``chosen`` are ids.

    ``field`` is the index of the form's field if the items are its options.
    """
    wanted = reading.find.casefold().strip()
    found = [
        place
        for place, it in enumerate(choices)
        if not wanted or wanted in choice_text(it).casefold() or wanted in it.id.casefold()
    ]
    column = number_of(choices)
    if column is not None and reading.order:
        found = _sorted(choices, found, column, reading.order)
    parts = max(-(-len(found) // PART), 1)
    part = min(max(reading.part, 1), parts)
    here = found[(part - 1) * PART : part * PART]
    ids = set(chosen)
    places = {place for place, it in enumerate(choices) if it.id in ids}
    room = _room_for_each(len(choices))
    seen = reading.seen | set(here)
    kept = places - set(here)
    return Listing(
        items=[
            _in_field(_item(choices[place], place, room, place in places, column), field) for place in here
        ],
        count=len(choices),
        chosen=len(places),
        elsewhere=len(kept),
        kept=packed(kept),
        seen=packed(seen),
        unseen=len(choices) - len(seen),
        part=part,
        parts=parts,
        find=reading.find,
        found=len(found),
        column=None if column is None else marked(column),
        order="" if column is None else reading.order,
    )


def number_of(choices: Sequence[Choice]) -> str | None:
    """The first fact that two items or more have and that is always a number; None if there is none."""
    found: dict[str, int] = {}
    others: set[str] = set()
    for it in choices:
        for name, value in it.facts.items():
            if name not in others and is_number(value) and _is_short(name, value):
                found[name] = found.get(name, 0) + 1
            else:
                others.add(name)
    return next((name for name, count in found.items() if count > 1 and name not in others), None)


def _sorted(choices: Sequence[Choice], places: list[int], column: str, order: Order) -> list[int]:
    """Positions sorted by a number (stable). Items without the number come last."""
    having = [place for place in places if column in choices[place].facts]
    having.sort(key=lambda place: choices[place].facts[column] * (-1 if order == "down" else 1))
    return [*having, *(place for place in places if column not in choices[place].facts)]


def listed_by(case: Case, reading: Reading) -> Reading:
    """The reading, with the items that this page shows added to those seen."""
    choices = choices_of(case) if case.type in LISTS else []
    if len(choices) <= PART:
        return reading
    return replace(reading, seen=unpacked(listing(choices, (), reading).seen, len(choices)))


def unopened_items(choices: Sequence[Choice]) -> tuple[Unopened, ...]:
    """What the first page of a list does not show: the items of further parts, and those that are too long."""
    room = _room_for_each(len(choices))
    made = (
        _item(it, place, room, is_chosen=False)
        for place, it in enumerate(choices)
        if not _surely_fits(it, room)
    )
    long = [it.rest for it in made if it.rest is not None]
    if len(choices) > PART:
        return (Unopened(None, 0, 0, PART + 1, len(choices), "items", LIST), *long)
    return tuple(long)


LIST = "list"
"""The `Unopened.of` of items on further parts. A person opens them by paging through the list."""


def still_unopened(unopened: Iterable[Unopened], reading: Reading) -> tuple[Unopened, ...]:
    """The parts that a person has not opened yet. The list is left out if they were shown all of its items."""
    return tuple(it for it in unopened if it.of != LIST or len(reading.seen) < it.last)
