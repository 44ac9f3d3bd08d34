"""Every operator of a constraint: comparisons, globs, paths, hosts, and Unicode spellings of one text."""

from __future__ import annotations

import fnmatch
import math
import operator
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Literal, cast

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from askfirst.digests import canonical_json
from askfirst.errors import InvalidMessage

# Names match exactly, or as a glob.


_WILD = re.compile(r"[*?\[]")


def is_glob(pattern: str) -> bool:
    """Whether a pattern is a glob: it has ``*``, ``?`` or ``[``."""
    return _WILD.search(pattern) is not None


def literal_prefix(pattern: str) -> str:
    """The literal text before the first wildcard of a glob."""
    return _WILD.split(pattern, maxsplit=1)[0]


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a whole name matches; case-sensitive."""
    if not is_glob(pattern):
        return lambda name: name == pattern
    matches = re.compile(fnmatch.translate(pattern)).match
    return lambda name: matches(name) is not None


# One text, several spellings: Unicode's normal forms, by which a rule must not be got around.
#
# ``é`` is one character or two, and programs disagree on whether these are the same. So if a text fits a rule only in
# another normal form, the test is undecidable: a rule that denies or asks then matches, one that allows does not.


LONGEST = 1_000_000
"""The longest text, ASCII aside, whose normal forms are computed."""
_MARKS = 30
"""How many marks may follow one another (as in Unicode's Stream-Safe Text Format): putting n of them in order
takes n² steps."""

FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")


class Untellable(ValueError):
    """A text whose normal forms are not computed, because that would take too long."""

    def __init__(self) -> None:
        super().__init__("has a text that is too long, or has too many marks in a row, to be compared")


def normal(text: str, form: Literal["NFC", "NFD", "NFKC", "NFKD"] = "NFKC") -> str:
    """The text in a normal form; raises `Untellable`."""
    if text.isascii():
        return text
    if len(text) > LONGEST or _has_many_marks(text):
        raise Untellable
    return unicodedata.normalize(form, text)


def _has_many_marks(text: str) -> bool:
    run = 0
    for char in text:
        run = run + 1 if unicodedata.combining(char) else 0
        if run > _MARKS:
            return True
    return False


def normal_json(value: Any) -> Any:
    """A JSON value with all its texts, keys included, in one normal form; raises `Untellable`."""
    if isinstance(value, str):
        return normal(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        return {normal_json(key): normal_json(item) for key, item in fields.items()}
    if isinstance(value, list | tuple):
        return [normal_json(item) for item in cast("Sequence[Any]", value)]
    return value


def spellings(text: str) -> list[str]:
    """The text in each normal form that is not the text itself; raises `Untellable`."""
    if text.isascii():
        return []
    forms = dict.fromkeys(normal(text, form) for form in FORMS)
    return [each for each in forms if each != text]


# The tests that compare an argument with what a rule says.
#
# Each is made from the rule's operand, or raises ``ValueError`` with a sentence if the operand makes no
# sense. It says True, False, or None where it cannot tell, such as for a value of another type, or for a text
# that fits in another Unicode normal form than its own.


Test = Callable[[Any], bool | None]

LONGEST_REGEX_VALUE = 100_000
"""The longest value that ``regex`` is matched with; a longer one is undecidable."""
_DECOMPOSED = 24
"""How many times longer than its composed form a decomposed text can be, in bytes."""


def equals(operand: Any) -> Test:
    """The value equals the operand, with its JSON type: 1 equals 1.0, but neither True nor "1"."""
    expected, kind = _Expected(operand), _kind(operand)

    def test(value: Any) -> bool | None:
        if kind not in (_kind(value), "null"):  # every value differs from null
            return None
        return expected.is_equal(value)

    return test


def one_of(operand: Any) -> Test:
    """The value is one of the operands; undecidable if none of them has the value's type."""
    choices = _items(operand)
    expected = [_Expected(choice) for choice in choices]
    kinds = {_kind(choice) for choice in choices}

    def test(value: Any) -> bool | None:
        if _kind(value) not in kinds:
            return None
        found = [each.is_equal(value) for each in expected]
        return True if True in found else None if None in found else False

    return test


def negated(make: Callable[[Any], Test]) -> Callable[[Any], Test]:
    """The negated test. What is undecidable stays so."""

    def make_negated(operand: Any) -> Test:
        test = make(operand)

        def negation(value: Any) -> bool | None:
            told = test(value)
            return None if told is None else not told

        return negation

    return make_negated


def glob(operand: Any) -> Test:
    """The whole text matches a glob; ``*`` stands for any characters, slashes too."""
    return _in_every_spelling(_text(operand), name_matcher)


def regex(operand: Any) -> Test:
    """The whole text matches a regular expression, in time that grows with its length and no faster.

    Rust's engine, which pydantic brings, never backtracks. So it has no look-around and no backreferences.
    """
    pattern = _text(operand)
    _regex(pattern)  # by itself, so that no bracket of it can close ours
    return _in_every_spelling(pattern, _searcher)


def _searcher(pattern: str) -> Test:
    search = _regex(rf"\A(?:{pattern})\z")

    def test(value: str) -> bool | None:
        if len(value) > LONGEST_REGEX_VALUE:
            return None
        try:
            search.validate_python(value)
        except ValidationError as error:
            told = (
                error.errors(include_url=False, include_input=False)[0]["type"] == "string_pattern_mismatch"
            )
            return False if told else None
        return True

    return test


def _in_every_spelling(pattern: str, make: Callable[[str], Test]) -> Test:
    """Whether a text matches a pattern in every Unicode normal form.

    Undecidable if it does not match but would in another normal form, or if it matches but would not in its composed
    form, which is the usual one.
    """
    matches = make(pattern)
    others = [matches, *_made(make, spellings(pattern))]
    composing = [matches, *_made(make, [normal(pattern, "NFC")])]
    is_plain = pattern.isascii()

    def test(value: Any) -> bool | None:
        if not isinstance(value, str):
            return None
        told = matches(value)
        if told is None or (is_plain and value.isascii()):
            return told
        try:
            if told:
                composed = normal(value, "NFC")
                return True if any(each(composed) for each in composing) else None
            respelt = [value, *spellings(value)]
        except Untellable:
            return None
        return None if any(each(it) for it in respelt for each in others) else False

    return test


def _made(make: Callable[[str], Test], patterns: Sequence[str]) -> Iterator[Test]:
    """The pattern in other normal forms, as tests; forms in which it is not a valid pattern are left out."""
    for pattern in patterns:
        with suppress(ValueError):
            yield make(pattern)


def _regex(pattern: str) -> SchemaValidator:
    try:
        return SchemaValidator(
            core_schema.str_schema(pattern=pattern, strict=True, regex_engine="rust-regex")
        )
    except SchemaError as error:
        why = str(error).splitlines()[-1].strip().removeprefix("error: ").removeprefix("SchemaError: ")
        raise ValueError(f"is no regular expression that can be used: {why.rstrip('.')}") from None


def ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any], Test]:
    """A comparison of numbers; True and False are not numbers."""

    def make(operand: Any) -> Test:
        if not _is_number(operand):
            raise ValueError(f"needs a number, not {_kind(operand)}")
        return lambda value: compare(value, operand) if _is_number(value) else None

    return make


less, less_or_equal = ordered(operator.lt), ordered(operator.le)
greater, greater_or_equal = ordered(operator.gt), ordered(operator.ge)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _kind(value: Any) -> str:
    """A value's JSON type; only values of the same type are compared."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list | tuple) else "an object"


class _Expected:
    """The operand of a rule, as written and in its normal form."""

    __slots__ = ("_longest", "_normal", "_written")

    def __init__(self, operand: Any) -> None:
        try:
            self._written = canonical_json(operand)
            self._normal = canonical_json(normal_json(operand))
        except (InvalidMessage, TypeError, RecursionError):
            raise ValueError("needs a value that JSON can hold") from None
        self._longest = _DECOMPOSED * len(self._normal)

    def is_equal(self, value: Any) -> bool | None:
        """Whether a value equals the operand; None (undecidable) if only its normal form does, or if it is not
        JSON."""
        try:
            written = canonical_json(value)
            if written == self._written:
                return True
            if len(written) > self._longest or (written.isascii() and self._written.isascii()):
                return False
            return None if canonical_json(normal_json(value)) == self._normal else False
        except (InvalidMessage, TypeError, RecursionError, Untellable):
            return None


def _items(operand: Any) -> Sequence[Any]:
    if not isinstance(operand, list | tuple) or not operand:
        raise ValueError("needs a list with something in it")
    return cast("Sequence[Any]", operand)


def _text(operand: Any) -> str:
    if not isinstance(operand, str) or not operand:
        raise ValueError(f"needs text, not {_kind(operand) if operand != '' else 'an empty one'}")
    return operand


# The test ``within``: a file path that stays inside a folder.


_KEYS = ("folder", "relative_to")

# What a shell or a library turns into another path: variables, percent codes, globs, braces, commands, control
# characters, a home directory at the start of a step, and what has a scheme.
_EXPANDED = re.compile(r"[$%`*?\[{\x00-\x1f\x7f]|(?:^|/)~|://")
_STRIPPED = " \t\"'\u00a0\u3000\ufeff"
"""What some programs take off both ends of a path."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ELSEWHERE = ("/proc", "/dev")
"""Folders in which a path means something else to each process."""
_LONGEST = 4096
"""The longest path that is checked; systems do not open longer ones."""


def within(operand: Any) -> Callable[[Any], bool | None]:
    """The path leads to this folder or below it, ``..`` and symlinks followed, whether it exists or not.

    A relative path cannot be told, for a tool opens it from its own working directory; unless the operand says
    where relative paths start: ``{"folder": "/srv/data", "relative_to": "/srv/data"}``. The path is read in two
    ways, as the system does and with ``..`` taken off the text first; where they differ it cannot tell. Nor can it
    for what is no plain path: what is empty, has a scheme, or has something in it that others expand.
    """
    folder, start = _read(operand)

    def test(value: Any) -> bool | None:
        path = _plain(value, start)
        if path is None:
            return None
        try:
            inside = _real(folder)
            as_system, as_text = _real(path), _real(os.path.normpath(path))
        except (OSError, ValueError):
            return None
        told = _is_below(as_system, inside)
        if told is not _is_below(as_text, inside):
            return None
        if not told and _is_below(_composed(as_system), _composed(inside)):
            return None  # some file systems take the two spellings of a name for one
        return told

    return test


def leads_to(operand: Any) -> Callable[[Any], bool | None]:
    """The path matches a regular expression as it is written, or as it resolves, ``..`` and symlinks followed.

    So a rule about a file is not evaded by a link to it. ``{"regex": ..., "relative_to": "/srv/data"}`` says where
    relative paths start; without it they are matched as written. A text that is no plain path is matched as written
    too, for nobody can tell where it leads.
    """
    fields = cast("Mapping[Any, Any]", operand) if isinstance(operand, Mapping) else {"regex": operand}
    for key in fields:
        if key not in ("regex", "relative_to"):
            raise ValueError(f"has no {key!r}; it has regex and relative_to")
    given = fields.get("relative_to")
    start = None if given is None else _absolute(given, " as relative_to")
    matches = regex(fields.get("regex"))

    def test(value: Any) -> bool | None:
        told = matches(value)
        path = None if told or told is None else _plain(value, start)
        if path is None:
            return told
        try:
            real = {_real(path), _real(os.path.normpath(path))}
        except (OSError, ValueError):
            return None
        each = {matches(it) for it in real}
        return True if True in each else None if None in each else False

    return test


def _read(operand: Any) -> tuple[str, str | None]:
    if not isinstance(operand, Mapping):
        return _absolute(operand, ""), None
    fields = cast("Mapping[Any, Any]", operand)
    for key in fields:
        if key not in _KEYS:
            raise ValueError(f"has no {key!r}; it has {' and '.join(_KEYS)}")
    start = fields.get("relative_to")
    folder = _absolute(fields.get("folder"), " as its folder")
    return folder, None if start is None else _absolute(start, " as relative_to")


def _absolute(path: Any, role: str) -> str:
    if not isinstance(path, str) or not Path(path).is_absolute() or "\0" in path:
        raise ValueError(f"needs the absolute path of a folder{role}")
    return path


def _plain(value: Any, start: str | None) -> str | None:
    """The absolute path, not normalized; None if the text may lead elsewhere when it is used."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or _EXPANDED.search(value):
        return None
    if value != value.strip(_STRIPPED) or ("\\" in value and os.sep != "\\"):
        return None
    drive, _ = os.path.splitdrive(value)
    if not drive and _SCHEME.match(value):
        return None
    if not Path(value).is_absolute():
        if start is None or drive:
            return None
        value = os.path.join(start, value)  # noqa: PTH118  (nothing may be tidied up yet)
    return None if _is_of_a_process(value) else value


def _is_of_a_process(path: str) -> bool:
    tidy = os.path.normpath(path)
    return os.sep == "/" and any(_is_below(tidy, each) for each in _ELSEWHERE)


def _real(path: str) -> str:
    return os.path.normcase(os.path.realpath(path))


def _is_below(path: str, folder: str) -> bool:
    try:
        return os.path.commonpath([path, folder]) == folder
    except ValueError:  # on different drives
        return False


def _composed(path: str) -> str:
    return path if path.isascii() else unicodedata.normalize("NFC", path)


# A URL that programs may read differently is not accepted: user names, backslashes, spaces, percent signs in hosts,
# letters beyond ASCII. Programs disagree on where such a URL leads. Without re.ASCII a long s would be an "s" here,
# and the Kelvin sign a "k".
_URL = re.compile(r"(?:https?|wss?)://([^/?#]+)(?:[/?#].*)?", re.IGNORECASE | re.ASCII)
_ODD = re.compile(r"[\x00-\x20\x7f\\]")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$")
_PATTERN = re.compile(r"[a-z0-9_.*?\[\]!-]+")


def host_in(operand: Any) -> Callable[[Any], bool | None]:
    """The URL's host is one of these, each a name, an address or a glob such as ``*.example.com``.

    Ports are ignored. Undecidable for anything but a plain http, https, ws or wss URL.
    """
    given: Any = [operand] if isinstance(operand, str) else operand
    if not isinstance(given, list | tuple) or not given:
        raise ValueError("needs a host or a list of hosts")
    matchers = [name_matcher(_pattern(each)) for each in cast("Sequence[Any]", given)]

    def test(value: Any) -> bool | None:
        host = host_of(value) if isinstance(value, str) else None
        return None if host is None else any(matches(host) for matches in matchers)

    return test


def host_of(url: str) -> str | None:
    """The host of a URL in lower case and without a dot at its end, or None for a URL that is not plain."""
    found = None if _ODD.search(url) else _URL.fullmatch(url)
    authority = _AUTHORITY.fullmatch(found[1]) if found else None
    return _normal(authority[1]) if authority else None


def _normal(host: str) -> str | None:
    host = host.lower()
    if host.startswith("["):
        return _ipv6(host[1:-1])
    host = host.removesuffix(".")
    if not _NAME.fullmatch(host):
        return None
    if _ENDS_IN_NUMBER.search(host):  # some programs read 2130706433 or 0x7f.1 as an address
        try:
            return str(IPv4Address(host))
        except AddressValueError:
            return None
    return host


def _ipv6(host: str) -> str | None:
    try:
        address = IPv6Address(host)
    except AddressValueError:
        return None
    return None if address.ipv4_mapped else str(address)


def _pattern(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError("needs hosts that are text")
    pattern = given.lower()
    if ":" in pattern:
        address = _ipv6(pattern.removeprefix("[").removesuffix("]"))
        if address is None:
            raise ValueError(f"has the host {given!r}; write it without scheme and port")
        return address
    if not pattern.isascii():
        raise ValueError(f"has the host {given!r}; write it in ASCII, as xn--…")
    if not _PATTERN.fullmatch(pattern):
        raise ValueError(f"has the host {given!r}, which is none")
    if is_glob(pattern):
        return pattern
    host = _normal(pattern)
    if host is None:
        raise ValueError(f"has the host {given!r}, which is none")
    return host
