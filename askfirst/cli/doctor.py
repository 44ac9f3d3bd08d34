"""``askfirst doctor``: what is installed, configured, reachable and overdue."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import partial
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Literal

import click
import httpx2
from pydantic import TypeAdapter, ValidationError

from askfirst import __version__
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.opening import needs
from askfirst.cli.output import (
    DEFAULT_URL,
    URL_VARIABLE,
    checked_url,
    database_url,
    given_url,
    say,
    span,
)
from askfirst.clock import SystemClock, milliseconds, seconds
from askfirst.delivery.registry import VARIABLES, delivery_named
from askfirst.encryption_keys import FILE_VARIABLE, KEY_VARIABLE, MasterKeys
from askfirst.errors import AskfirstError, InvalidConfiguration, InvalidSecret, ServiceError, StoreError
from askfirst.ids import BASE_URL_VARIABLE
from askfirst.protocol.wire import ServiceUrl
from askfirst.service.callbacks import SECRET_VARIABLE, callback_secret
from askfirst.service.configuration import (
    DELIVERY_PREFIX,
    NOTIFY_KEYS,
    NOTIFY_PREFIX,
    configuration_file,
    read_configuration,
)
from askfirst.service.configuration import FILE_VARIABLE as CONFIG_VARIABLE
from askfirst.service.email_codes import Mailer
from askfirst.smtp import SMTP_VARIABLE
from askfirst.store import deliveries
from askfirst.store.case_queues import FailedNotice, all_failed
from askfirst.store.case_rows import DeliveryRow
from askfirst.store.inspect import GRACE_MILLISECONDS, Late, Overdue, look, overdue
from askfirst.store.schema import REVISIONS, is_current
from askfirst.store.sqlite_engine import readable_by_others
from askfirst.visible_text import visible

Group = Literal["installed", "configured", "reachable", "overdue"]
State = Literal["ok", "note", "wrong"]
TESTS = "ASKFIRST_TEST_"
"""The environment variables that the project's own tests read."""
CLOCK_MILLISECONDS = 5_000
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?(?:>=([0-9.]+))?.*extra == ['\"](\w+)['\"]")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``detail`` is a sentence without secrets."""

    group: Group
    name: str
    state: State
    detail: str


# Installed.


def installed() -> Iterator[Finding]:
    """The version of Askfirst, and for each of its extras the libraries that are installed."""
    yield Finding("installed", "askfirst", "ok", f"{__version__} on Python {platform.python_version()}")
    try:
        requirements = metadata.requires("askfirst") or []
    except metadata.PackageNotFoundError:
        yield Finding("installed", "extras", "note", "cannot be told: askfirst runs from its source")
        return
    extras: dict[str, list[tuple[str, str]]] = {}
    for requirement in requirements:
        if (match := _REQUIREMENT.match(requirement)) is not None and match[3] != "all":
            extras.setdefault(match[3], []).append((match[1], match[2] or "0"))
    for extra in sorted(extras):
        yield _extra(extra, extras[extra])


def _extra(extra: str, requirements: list[tuple[str, str]]) -> Finding:
    there: list[str] = []
    missing: list[str] = []
    old: list[str] = []
    for name, least in sorted(requirements):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        (there if _numbers(version) >= _numbers(least) else old).append(f"{name} {version}")
    get = f"pip install 'askfirst[{extra}]'"
    if old:
        return Finding("installed", extra, "wrong", f"too old: {', '.join(old)}; {get}")
    if missing:
        return Finding("installed", extra, "note", f"not there: {', '.join(missing)}; {get}")
    return Finding("installed", extra, "ok", ", ".join(there))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


# Configured.


def configured(environ: Mapping[str, str]) -> Iterator[Finding]:
    """What the environment says; no value is quoted, for it may hold a secret."""
    yield _database(environ)
    yield _secret(environ.get(SECRET_VARIABLE))
    yield _encryption(environ)
    yield _base_url(environ)
    yield _mail(environ.get(SMTP_VARIABLE))
    in_file = _kinds_in_file(environ)
    for name, variables in VARIABLES.items():
        if name not in in_file and any(
            environ.get(variable) for variable in variables if variable != SMTP_VARIABLE
        ):
            yield _delivery(name, environ)
    yield from _configuration(environ)
    known = (
        CONFIG_VARIABLE,
        *(f"{NOTIFY_PREFIX}{key.upper()}" for key in NOTIFY_KEYS),
        URL_VARIABLE,
        SECRET_VARIABLE,
        KEY_VARIABLE,
        FILE_VARIABLE,
        BASE_URL_VARIABLE,
        *chain(*VARIABLES.values()),
    )
    for name in sorted(environ):
        if (
            name.startswith("ASKFIRST_")
            and name not in known
            and not name.startswith((TESTS, DELIVERY_PREFIX))
        ):
            near = get_close_matches(name, known, 1)
            meant = f"; is {near[0]} meant?" if near else ""
            yield Finding("configured", name, "wrong", f"is no variable that Askfirst reads{meant}")


def _kinds_in_file(environ: Mapping[str, str]) -> set[str]:
    """The kinds of deliveries in the file, which may have what their environment variables lack."""
    file = configuration_file(environ)
    try:
        return (
            set()
            if file is None
            else {each.delivery.name for each in read_configuration(file, environ).places}
        )
    except InvalidConfiguration:
        return set(VARIABLES)  # its mistakes are told


def _configuration(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The findings about the configuration: the file, the deliveries of ``askfirst serve``, and each mistake."""
    file = configuration_file(environ)
    where = "the environment" if file is None else visible(str(file))
    try:
        read = read_configuration(file, environ)
    except InvalidConfiguration as error:
        for mistake in error.mistakes:
            yield Finding("configured", where, "wrong", mistake)
        return
    names = ", ".join(place.name for place in read.places)
    if names:
        yield Finding("configured", where, "ok", f"askfirst serve tells people through {names}")
    else:
        yield Finding("configured", where, "note", "has no delivery: askfirst serve tells nobody")


def _database(environ: Mapping[str, str]) -> Finding:
    url = environ.get(URL_VARIABLE)
    if not url:
        return Finding("configured", URL_VARIABLE, "note", f"is not set: {DEFAULT_URL} in this folder")
    try:
        checked_url(url)
    except StoreError as error:
        return Finding("configured", URL_VARIABLE, "wrong", str(error).removeprefix(f"{URL_VARIABLE} "))
    return Finding("configured", URL_VARIABLE, "ok", "is set")


def _secret(secret: str | None) -> Finding:
    if not secret:
        return Finding(
            "configured", SECRET_VARIABLE, "note", "is not set: the service takes no callback URLs"
        )
    try:
        callback_secret(secret, "")
    except InvalidSecret as error:
        return Finding("configured", SECRET_VARIABLE, "wrong", str(error))
    return Finding("configured", SECRET_VARIABLE, "ok", "is set")


def _encryption(environ: Mapping[str, str]) -> Finding:
    try:
        keys = MasterKeys.from_environment(environ)
    except StoreError as error:
        return Finding("configured", KEY_VARIABLE, "wrong", str(error).removeprefix(f"{KEY_VARIABLE} "))
    if keys is None:
        return Finding(
            "configured", KEY_VARIABLE, "note", "is not set: the content of the database is not encrypted"
        )
    if (path := environ.get(FILE_VARIABLE)) and readable_by_others(path):
        detail = (
            f"the file that {FILE_VARIABLE} names can be read by other accounts of this machine: chmod 600 it"
        )
        return Finding("configured", KEY_VARIABLE, "wrong", detail)
    return Finding("configured", KEY_VARIABLE, "ok", "is set")


def _given_base_url(environ: Mapping[str, str]) -> tuple[str | None, str]:
    """The base URL of the environment, else of the file, and where it comes from."""
    if base_url := environ.get(BASE_URL_VARIABLE):
        return base_url, "is set"
    file = configuration_file(environ)
    try:
        in_file = None if file is None else read_configuration(file, environ).service.get("base_url")
    except InvalidConfiguration:  # its faults are told
        in_file = None
    return in_file, f"is not set, and base_url in {visible(str(file))} is"


def _base_url(environ: Mapping[str, str]) -> Finding:
    base_url, where = _given_base_url(environ)
    if not base_url:
        detail = "is not set: askfirst serve is reached where it listens, on this machine"
        return Finding("configured", BASE_URL_VARIABLE, "note", detail)
    try:
        TypeAdapter(ServiceUrl).validate_python(base_url)
        has_more = "?" in base_url or "#" in base_url
    except ValidationError:
        has_more = True
    if has_more:
        detail = "must be an https address (http only on localhost or 127.0.0.1), without ? and #"
        return Finding("configured", BASE_URL_VARIABLE, "wrong", detail)
    return Finding("configured", BASE_URL_VARIABLE, "ok", where)


def _mail(url: str | None) -> Finding:
    if not url:
        detail = (
            "is not set: the service sends no codes by e-mail, so nobody can approve what has critical risk"
        )
        return Finding("configured", SMTP_VARIABLE, "note", detail)
    try:
        Mailer(url)
    except ServiceError as error:
        return Finding("configured", SMTP_VARIABLE, "wrong", str(error).replace("smtp_url", "it", 1))
    return Finding("configured", SMTP_VARIABLE, "ok", "is set")


def _delivery(name: str, environ: Mapping[str, str]) -> Finding:
    """The finding about a delivery of which at least one variable is set."""
    try:
        delivery_named(name, environ)
    except AskfirstError as error:
        return Finding("configured", name, "wrong", str(error).removeprefix(f"{name}: "))
    return Finding("configured", name, "ok", "people can be reached this way")


# Reachable.


async def database_findings(url: str) -> list[Finding]:
    """Whether the database is there, at which revision, and what its clock says; it is not changed."""
    kind = url.partition("://")[0].partition("+")[0].lower()
    extra = {"sqlite": "sqlite", "mysql": "mysql", "mariadb": "mysql"}.get(kind, "postgres")
    try:
        checked_url(url)
        if extra == "sqlite" and (missing := await asyncio.to_thread(_missing_folder, url)):
            return [
                Finding("reachable", "database", "wrong", f"the folder {missing} does not exist: make it")
            ]
        with needs("this database", extra):
            found = await look(url)
        current = found.version is not None and is_current(found.version)
    except AskfirstError as error:
        return [Finding("reachable", "database", "wrong", str(error))]
    if found.version is None:
        detail = f"{found.where} has no tables of Askfirst yet: the first command makes them"
        return [Finding("reachable", "database", "note", detail)]
    findings = [Finding("reachable", "database", "ok", found.where)]
    if extra == "sqlite" and await asyncio.to_thread(readable_by_others, found.where):
        detail = f"{found.where} can be read by other accounts of this machine: chmod 600 it"
        findings = [Finding("reachable", "database", "wrong", detail)]
    if current:
        findings.append(Finding("reachable", "schema", "ok", f"{found.version}, the latest"))
    else:
        detail = f"{found.version}: the next command brings it to {REVISIONS[-1]}"
        findings.append(Finding("reachable", "schema", "note", detail))
    if found.ahead is not None:
        findings.append(_clock(found.ahead))
    return findings


def _missing_folder(url: str) -> str | None:
    """The missing folder of an SQLite file, if it is missing; no command creates it."""
    folder = Path(url.partition("://")[2].removeprefix("/")).parent
    return None if folder.is_dir() else str(folder)


def _clock(ahead: int) -> Finding:
    if abs(ahead) < CLOCK_MILLISECONDS:
        return Finding("reachable", "clock", "ok", "this machine's and the database's agree")
    side = "ahead of" if ahead > 0 else "behind"
    detail = (
        f"the database's is {span(seconds(abs(ahead)))} {side} this machine's: deadlines and leases go wrong"
    )
    return Finding("reachable", "clock", "wrong", detail)


async def service_finding(base_url: str) -> Finding:
    """Whether the service answers, and reaches its database."""
    name = "service"
    try:
        async with httpx2.AsyncClient(timeout=5.0, follow_redirects=False) as http:
            answer = await http.get(f"{base_url.rstrip('/')}/readyz")
    except httpx2.HTTPError as error:
        detail = f"nothing answers at {BASE_URL_VARIABLE}: {type(error).__name__}; is askfirst serve running?"
        return Finding("reachable", name, "wrong", detail)
    if answer.status_code != 200:
        detail = f"{BASE_URL_VARIABLE}/readyz answers with HTTP {answer.status_code}"
        return Finding("reachable", name, "wrong", detail)
    return Finding("reachable", name, "ok", "answers, and reaches its database")


# Overdue.

_LATE: Mapping[str, tuple[str, State, str]] = {
    "requests": (
        "request",
        "wrong",
        "past the deadline and open still: no agent waits for it, and no askfirst serve runs",
    ),
    "cases": ("case", "wrong", "past the deadline and open still: no askfirst serve runs"),
    "callbacks": ("callback", "wrong", "due and not made: no askfirst serve runs, or it lacks its secret"),
    "failing": (
        "callback",
        "note",
        "failed and will be tried again, for three days in all: does the receiver answer?",
    ),
    "gave_up": ("callback", "note", "failed for three days and given up: whoever asked has to poll"),
    "in_doubt": (
        "thread",
        "wrong",
        "left by a worker in the middle of a tool: resume it, and a person is asked where that is needed",
    ),
    "stalled": ("thread", "note", "left by a worker between two steps: resume it"),
    "claims": ("checkpoint", "note", "claimed by a worker that is gone: it can be claimed again"),
    "unresumed": (
        "thread",
        "wrong",
        "answered, and resumed by nobody: call agent.resume() with each thread_id, or resume_checkpoint()",
    ),
    "undone": (
        "continuation",
        "wrong",
        "due, and taken by nobody: does an askfirst worker run that knows its resumer? See askfirst continuations",
    ),
    "lapsed": (
        "continuation",
        "wrong",
        "left by a worker that is gone, and taken over by nobody: does an askfirst worker run?",
    ),
    "not_yet": (
        "continuation",
        "note",
        "failed and will be tried again: askfirst continuations says why",
    ),
    "failed": (
        "continuation",
        "wrong",
        "failed too often and tried no more: see askfirst continuations, then askfirst continuations retry ID",
    ),
}


def notice_findings(failed: Sequence[FailedNotice], now: int) -> list[Finding]:
    """Cases of which ``on_case`` could tell nobody, a finding for each of the first few."""
    if not failed:
        return [Finding("overdue", "notices", "ok", "none")]
    return [
        Finding(
            "overdue",
            "notices",
            "wrong",
            f"on_case failed for {each.case_id} with {each.error}, {each.tries} "
            f"time{'' if each.tries == 1 else 's'} in {span(seconds(now - each.since))}: "
            "it is tried again while the case is open",
        )
        for each in failed
    ]


def delivery_findings(troubled: Sequence[DeliveryRow], now: int) -> list[Finding]:
    """Messages to people that failed or that nobody sends, a finding for each of the first few."""
    if not troubled:
        return [Finding("overdue", "deliveries", "ok", "none")]
    return [
        Finding(
            "overdue",
            "deliveries",
            "wrong",
            f"the {row.kind} message of {row.case_id} to {row.place}, due for {span(seconds(now - row.since))}: "
            + (row.error or "nobody has sent it: does askfirst serve run, with this delivery?")
            + f"; see askfirst deliveries, then askfirst deliveries retry {row.delivery_id}",
        )
        for row in troubled
    ]


def overdue_findings(late: Overdue, now: int) -> list[Finding]:
    """Overdue work, a finding for each kind."""
    findings: list[Finding] = []
    for name, (what, state, meaning) in _LATE.items():
        each: Late = getattr(late, name)
        if not each.count:
            findings.append(Finding("overdue", name, "ok", "none"))
            continue
        oldest = "" if each.since is None else f" (the oldest for {span(seconds(now - each.since))})"
        count = f"{each.count} {what}{'' if each.count == 1 else 's'}"
        findings.append(Finding("overdue", name, state, f"{count}{oldest} {meaning}"))
    return findings


# The command.


SLOW_GRACE_MILLISECONDS = 300_000
"""A callback that a worker has taken is due again two minutes later; who resumes threads may look now and then."""
NOTICES_SHOWN = 10
_MARKS = {"ok": "ok", "note": "-", "wrong": "WRONG"}


def examine(*, as_json: bool) -> bool:
    """Print what was found; True if nothing is wrong."""
    findings = [*installed(), *configured(os.environ)]
    base_url, _ = _given_base_url(os.environ)
    findings += asyncio.run(_from_afar(findings, base_url))
    wrong = sum(finding.state == "wrong" for finding in findings)
    if as_json:
        whole = {"is_well": not wrong, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(whole))
    else:
        _print(findings, wrong)
    return not wrong


async def _from_afar(known: Sequence[Finding], base_url: str | None) -> list[Finding]:
    """The findings that need the database or the service."""
    findings = await database_findings(given_url())
    if base_url and all(finding.state == "ok" for finding in known if finding.name == BASE_URL_VARIABLE):
        findings.append(await service_finding(base_url))
    if any(finding.name == "schema" and finding.state == "ok" for finding in findings):
        findings += await _overdue()
    return findings


async def _overdue() -> list[Finding]:
    now = milliseconds(SystemClock())
    late = partial(overdue, now - GRACE_MILLISECONDS, now - SLOW_GRACE_MILLISECONDS)
    try:
        async with checkpointer_from_url(database_url()) as checkpointer:
            findings = overdue_findings(await checkpointer.engine.read(late), now)
            failed = await checkpointer.engine.read(partial(all_failed, NOTICES_SHOWN))
            trouble = partial(deliveries.troubled, now - GRACE_MILLISECONDS, NOTICES_SHOWN)
            troubled = await checkpointer.engine.read(trouble)
            return findings + notice_findings(failed, now) + delivery_findings(troubled, now)
    except StoreError as error:
        return [Finding("reachable", "database", "wrong", str(error))]


def _print(findings: Sequence[Finding], wrong: int) -> None:
    group = None
    for finding in findings:
        if finding.group != group:
            group = finding.group
            say(group)
        say(f"  {_MARKS[finding.state]:<5}  {finding.name}: {visible(finding.detail)}")
    told = "1 thing is wrong." if wrong == 1 else f"{wrong} things are wrong."
    say(told if wrong else "Nothing is wrong.")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Check the installation, and list what is overdue.

    It checks what is installed and configured, and whether the database and the service can be reached. It
    changes nothing: it neither creates nor migrates a database. If ASKFIRST_BASE_URL is set, or base_url in
    the configuration, it asks the service there whether it is ready. "-" marks a note, not a fault.

    \b
    The JSON has is_well, and findings with group, name, state (ok, note or
    wrong) and detail.

    Exits with 1 if something is wrong.
    """

    context.exit(0 if examine(as_json=as_json) else 1)
