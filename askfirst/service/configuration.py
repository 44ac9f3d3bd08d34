"""The configuration: service options, deliveries and a schedule, from ``askfirst.toml`` and environment variables.

Every fault is reported with its line, in one sentence. No fault contains the value of a secret.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, cast

from askfirst.delivery.kinds import KINDS, Kind, Setting
from askfirst.errors import AskfirstError, InvalidConfiguration, InvalidDuration, ServiceError
from askfirst.protocol import parse_duration
from askfirst.service.audit import check_push_url
from askfirst.service.context import checked_hold
from askfirst.service.egress import check_base_url
from askfirst.service.links import seconds_of
from askfirst.service.pages.language import checked_language
from askfirst.service.places import Decider, Place, Places
from askfirst.service.risk_patterns import RiskPatterns
from askfirst.service.schedule import Moment, Schedule, Step

FILE_VARIABLE = "ASKFIRST_CONFIG"
DEFAULT_FILE = "askfirst.toml"
DELIVERY_PREFIX = "ASKFIRST_DELIVERY_"
NOTIFY_PREFIX = "ASKFIRST_NOTIFY_"
SERVICE_KEYS: Mapping[str, str] = {
    "host": "text",
    "port": "number",
    "base_url": "text",
    "inline": "flag",
    "links": "text",
    "link_days": "amount",
    "least_timeout": "text",
    "allow_default_approve": "flag",
    "push_heads": "text",
    "name": "text",
    "language": "text",
    "hold_seconds": "amount",
    "risk_patterns": "text",
}
"""Options of ``askfirst serve`` that ``[service]`` may give, and the type of each."""
MOST_LINK_DAYS = 36_500
NOTIFY_KEYS = ("to", "remind", "warn", "then")
_DELIVERY_KEYS = ("kind", "deciders", "facts")
_FACTS = Setting("facts", "flag", is_required=False)
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_KEY = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z0-9_.-]+)\s*=""")
_TOML_PLACE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")
_TABLES = ("service", "notify", "delivery")


class Fault(NamedTuple):
    """A fault in a configuration; ``line`` is None if an environment variable is at fault."""

    line: int | None
    problem: str

    def __str__(self) -> str:
        return self.problem if self.line is None else f"line {self.line}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration: options of the service, the deliveries as places, and the schedule of messages."""

    file: Path | None = None
    service: Mapping[str, Any] = field(default_factory=dict[str, Any])
    places: tuple[Place, ...] = ()
    schedule: Schedule = field(default_factory=Schedule)


def configuration_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """The configuration file: named by ``ASKFIRST_CONFIG``, else ``askfirst.toml`` in the working directory.

    None if there is no ``askfirst.toml``. A file that ``ASKFIRST_CONFIG`` names has to exist: reading it raises
    `InvalidConfiguration`.
    """
    environ = os.environ if environ is None else environ
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    here = Path(DEFAULT_FILE)
    return here if here.is_file() else None


def _why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Why a file cannot be read, without any of its content."""
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error.strerror)


def read_configuration(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Configuration:
    """Read a configuration, by default from `configuration_file`. Raises `InvalidConfiguration` with every fault."""
    environ = os.environ if environ is None else environ
    file = configuration_file(environ) if file is None else file
    text = ""
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfiguration(str(file), [f"cannot be read: {_why_unreadable(error)}"]) from None
    reader = _Reader(text, environ, Path() if file is None else file.parent)
    made = reader.read()
    if reader.faults:
        raise InvalidConfiguration("the environment" if file is None else str(file), map(str, reader.faults))
    return Configuration(file, *made)


class _Reader:
    """Reads one configuration. Faults are collected, so that all of them are reported at once."""

    def __init__(self, text: str, environ: Mapping[str, str], folder: Path) -> None:
        self.faults: list[Fault] = []
        self._environ = environ
        self._folder = folder
        self._lines = _lines(text)
        self._given: dict[str, Any] = {}
        try:
            self._given = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = _TOML_PLACE.search(str(error))
            line = int(found[1]) if found and found[1] else max(1, text.count("\n"))
            self.faults.append(
                Fault(line, f"this is not valid TOML: {_TOML_PLACE.sub('', str(error)).strip()}")
            )

    def read(self) -> tuple[Mapping[str, Any], tuple[Place, ...], Schedule]:
        """The service's options, the places and the schedule, without those that have faults."""
        self._check_keys((), self._given, _TABLES)
        service = self._table(("service",))
        self._check_keys(("service",), service, tuple(SERVICE_KEYS))
        for key, value in service.items():
            type_ = SERVICE_KEYS.get(key)
            if type_ is not None:
                self._check_service(key, _TYPES[type_](value), type_)
        if isinstance(
            service.get("risk_patterns"), str
        ):  # relative to the configuration's folder, as every file
            service = {**service, "risk_patterns": str(self._folder / service["risk_patterns"])}
        named = self._table(("delivery",))
        kinds = self._kinds(named)
        places = [place for name, kind in kinds.items() if (place := self._place(name, kind)) is not None]
        schedule = self._schedule(places, bool(self.faults))
        return service, tuple(places), schedule

    def _check_service(self, key: str, value: Any, type_: str) -> None:
        """A fault for an option of the service that ``askfirst serve`` would refuse."""
        if value is None:
            self._add_fault(("service", key), f"{key} must be {_TYPE_NAMES[type_]}")
            return
        try:
            if key == "risk_patterns":
                RiskPatterns.from_file(self._folder / value)
            elif key in _SERVICE_CHECKS:
                _SERVICE_CHECKS[key](value)
        except ServiceError as error:
            self._add_fault(("service", key), str(error))

    # Deliveries.

    def _kinds(self, named: Mapping[str, Any]) -> dict[str, Kind]:
        """The kinds of the deliveries, by the deliveries' names, from the file and the environment.

        If neither names a delivery, every kind counts whose required variables are all set.
        """
        names = {name: str(self._table(("delivery", name)).get("kind", name)) for name in named}
        for variable, kind in self._environ.items():
            if variable.startswith(DELIVERY_PREFIX) and variable.endswith("_KIND"):
                name = variable.removeprefix(DELIVERY_PREFIX).removesuffix("_KIND").lower().replace("_", "-")
                names[next((known for known in names if _in_variable(known) == _in_variable(name)), name)] = (
                    kind
                )
        if not names:
            names = {kind.name: kind.name for kind in KINDS.values() if self._is_configured(kind)}
        found: dict[str, Kind] = {}
        for name, kind in names.items():
            if kind in KINDS:
                found[name] = KINDS[kind]
            else:
                known = ", ".join(KINDS)
                self._add_fault(
                    ("delivery", name, "kind"), f"there is no kind {kind!r}; the kinds are: {known}"
                )
        return found

    def _is_configured(self, kind: Kind) -> bool:
        needed = [setting.variable for setting in kind.settings if setting.is_required]
        return bool(needed) and all(name is not None and self._environ.get(name) for name in needed)

    def _place(self, name: str, kind: Kind) -> Place | None:
        before = len(self.faults)
        table = self._table(("delivery", name))
        known = [*_DELIVERY_KEYS]
        for setting in kind.settings:
            known += [f"{setting.name}_env", f"{setting.name}_file"] if setting.is_secret else [setting.name]
        plain = [setting.name for setting in kind.settings if setting.is_secret]
        self._check_keys(
            ("delivery", name), {key: each for key, each in table.items() if key not in plain}, known
        )
        values = {
            setting.name: value
            for setting in kind.settings
            if (value := self._setting(name, setting, table)) is not None
        }
        deciders = self._deciders(name, kind, table, values)
        facts = self._setting(name, _FACTS, table)
        if len(self.faults) > before:
            return None
        try:
            return Place(name, kind.make(values), deciders, facts is not False)
        except AskfirstError as error:
            self._add_fault(("delivery", name), str(error).removeprefix(f"{kind.name}: "))
            return None

    def _setting(self, name: str, setting: Setting, table: Mapping[str, Any]) -> Any:
        """A setting's value: from the delivery's own variable, else the file, else the kind's variable."""
        at = ("delivery", name, setting.name)
        own = f"{DELIVERY_PREFIX}{_in_variable(name)}_{setting.name.upper()}"
        if setting.is_secret and setting.name in table:
            self._add_fault(
                at,
                f"{setting.name} is a secret and does not belong in this file: name a file with "
                f"{setting.name}_file or a variable with {setting.name}_env, or set {own}",
            )
            return None
        text = self._environ.get(own)
        if text is None and setting.is_secret:
            text = self._secret(at, setting, table)
        elif text is None and setting.name in table:
            return self._converted(at, setting, table[setting.name])
        if text is None and setting.variable is not None:
            text = self._environ.get(setting.variable)
        if text is not None:
            return self._converted(
                at, setting, _split(text) if setting.type in ("texts", "secrets") else text
            )
        if setting.is_required and not any(f"{setting.name}_{by}" in table for by in ("env", "file")):
            how = f"{setting.name}_file, {setting.name}_env" if setting.is_secret else setting.name
            other = "" if setting.variable is None else f" or {setting.variable}"
            self._add_fault(("delivery", name), f"{setting.name} is missing: give {how}, or set {own}{other}")
        return None

    def _secret(self, at: tuple[str, ...], setting: Setting, table: Mapping[str, Any]) -> str | None:
        variable, file = table.get(f"{setting.name}_env"), table.get(f"{setting.name}_file")
        for by, named in (("env", variable), ("file", file)):
            if named is not None and (not isinstance(named, str) or not named):
                what = "a variable" if by == "env" else "a file"
                self._add_fault(
                    (*at[:-1], f"{at[-1]}_{by}"), f"{setting.name}_{by} must be the name of {what}"
                )
                return None
        if isinstance(variable, str):
            if not (text := self._environ.get(variable)):
                self._add_fault((*at[:-1], f"{at[-1]}_env"), f"the variable {variable} is not set")
            return text or None
        if isinstance(file, str):
            try:
                return (self._folder / file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                problem = f"the file {file} cannot be read: {_why_unreadable(error)}"
                self._add_fault((*at[:-1], f"{at[-1]}_file"), problem)
        return None

    def _converted(self, at: tuple[str, ...], setting: Setting, value: Any) -> Any:
        made = _TYPES[setting.type](value)
        if made is None:
            self._add_fault(at, f"{setting.name} must be {_TYPE_NAMES[setting.type]}")
        return made

    def _deciders(
        self, name: str, kind: Kind, table: Mapping[str, Any], values: Mapping[str, Any]
    ) -> dict[str, Decider]:
        at = ("delivery", name, "deciders")
        given: Any = table.get("deciders", {})
        own = self._environ.get(f"{DELIVERY_PREFIX}{_in_variable(name)}_DECIDERS")
        if own is not None:
            given = {
                account: who
                for account, _, who in (part.partition("=") for part in own.split(";"))
                if account.strip()
            }
        elif not given and kind.name == "telegram" and not table:
            given = {
                each: f"Telegram user {each}" for each in _split(self._environ.get("TELEGRAM_REVIEWERS", ""))
            }
        if not given:
            return {}
        if kind.platform is None:
            self._add_fault(
                at, f"nobody can press a button in a delivery of kind {kind.name}: leave deciders out"
            )
            return {}
        if not isinstance(given, dict):
            self._add_fault(
                at, 'deciders must be accounts and names, as in { "1001" = "Ada <ada@example.com>" }'
            )
            return {}
        found: dict[str, Decider] = {}
        for account, who in cast("dict[str, Any]", given).items():
            if (problem := kind.account_fault(account.strip(), values)) is not None:
                self._add_fault((*at, account), problem)
                continue
            try:
                found[f"{kind.platform}:{account.strip()}"] = Decider.read(
                    who if isinstance(who, str) else ""
                )
            except ServiceError as error:
                self._add_fault((*at, account), str(error))
        return found

    # The schedule.

    def _schedule(self, places: list[Place], has_faults: bool) -> Schedule:
        table = dict(self._table(("notify",)))
        self._check_keys(("notify",), table, NOTIFY_KEYS)
        for key in NOTIFY_KEYS:
            if (text := self._environ.get(f"{NOTIFY_PREFIX}{key.upper()}")) is not None:
                table[key] = [part.strip() for part in text.split(",")] if key in ("to", "remind") else text
        to = None if "to" not in table else tuple(self._texts("to", table["to"]))
        remind = [
            self._read("remind", each, Moment.read) for each in self._texts("remind", table.get("remind", []))
        ]
        warn = None if "warn" not in table else self._read("warn", table["warn"], _seconds)
        then = None if "then" not in table else self._read("then", table["then"], Step.read)
        schedule = Schedule(to, tuple(each for each in remind if each is not None), warn, then)
        if not has_faults:
            self._check_places(schedule, places)
        return schedule

    def _check_places(self, schedule: Schedule, places: list[Place]) -> None:
        try:
            known = Places(places)
        except ServiceError as error:
            self._add_fault(("delivery",), str(error))
            return
        for key, named in (
            ("to", schedule.to or ()),
            ("then", () if schedule.then is None else (schedule.then.place,)),
        ):
            for place in named:
                try:
                    known.at(place)
                except AskfirstError as error:
                    self._add_fault(("notify", key), str(error))

    def _texts(self, key: str, value: Any) -> list[str]:
        made = _texts_in(value)
        if made is None:
            self._add_fault(("notify", key), f"{key} must be a list of texts")
        return made or []

    def _read(self, key: str, value: Any, read: Callable[[str], Any]) -> Any:
        try:
            return read(str(value))
        except ServiceError as error:
            self._add_fault(("notify", key), str(error))
            return None

    # Tables of the file, and the lines of their keys.

    def _table(self, at: tuple[str, ...]) -> Mapping[str, Any]:
        found: Any = self._given
        for part in at:
            found = cast("dict[str, Any]", found).get(part, {}) if isinstance(found, dict) else {}
        if not isinstance(found, dict):
            self._add_fault(
                at, f"{'.'.join(at)} must be a table: write [{'.'.join(at)}] and its settings below"
            )
            return {}
        return cast("dict[str, Any]", found)

    def _check_keys(
        self, at: tuple[str, ...], table: Mapping[str, Any], known: list[str] | tuple[str, ...]
    ) -> None:
        for key in table:
            if key not in known:
                near = get_close_matches(key, known, 1)
                meant = f"; is {near[0]} meant?" if near else f"; there are: {', '.join(known)}"
                self._add_fault((*at, key), f"there is no setting {key!r} here{meant}")

    def _add_fault(self, at: tuple[str, ...], problem: str) -> None:
        """Report a fault at the line of a key, or of the nearest table around it that the file has."""
        line = next((self._lines[at[:end]] for end in range(len(at), 0, -1) if at[:end] in self._lines), None)
        where = "" if line is not None or len(at) < 2 else f"{'.'.join(at[:2])}: "
        fault = Fault(line, f"{where}{problem}")
        if fault not in self.faults:
            self.faults.append(fault)


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """The line number of every table header and key that begins a line. A key within an inline table has none."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            table = _path(header[1])
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault((*table, *_path(key[1])), number)
    return found


def _path(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in re.findall(r"""\"[^"]*"|'[^']*'|[^.\s]+""", text))


def _in_variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _split(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _seconds(text: str) -> float:
    try:
        return float(parse_duration(text.strip()))
    except InvalidDuration:
        raise ServiceError(f"{text!r} is not a duration: write 30m, 2h or 1d") from None


def _texts_in(value: Any) -> list[str] | None:
    many = cast("list[Any]", value) if isinstance(value, list) else [value]
    return cast("list[str]", many) if all(isinstance(each, str) and each for each in many) else None


def _number(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _amount(value: Any) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(str(value).lower())


def _check_port(port: int) -> None:
    if not 1 <= port <= 65_535:
        raise ServiceError(f"port must be between 1 and 65535, not {port}")


def _check_links(links: str) -> None:
    if links not in ("caller", "service"):
        raise ServiceError(f"links must be caller or service, not {links!r}")


def _check_link_days(days: float) -> None:
    if not 0 < days <= MOST_LINK_DAYS:
        raise ServiceError(f"link_days must be more than 0 and at most {MOST_LINK_DAYS}, not {days:g}")


_SERVICE_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "port": _check_port,
    "base_url": check_base_url,
    "links": _check_links,
    "link_days": _check_link_days,
    "least_timeout": seconds_of,
    "push_heads": check_push_url,
    "hold_seconds": checked_hold,
    "language": checked_language,
}
"""Further checks of service options, besides their types; each raises `ServiceError`."""
_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "text": lambda value: value if isinstance(value, str) and value else None,
    "secret": lambda value: value or None,
    "texts": _texts_in,
    "secrets": _texts_in,
    "number": _number,
    "amount": _amount,
    "flag": _flag,
}
_TYPE_NAMES = {
    "text": "a text",
    "secret": "a text",
    "texts": "a text or a list of texts",
    "secrets": "a text or several",
    "number": "a whole number",
    "amount": "a number",
    "flag": "true or false",
}
