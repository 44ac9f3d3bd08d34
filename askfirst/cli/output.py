"""Writing to a terminal: exact values, times, and the database that every command works on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from askfirst.checkpointer.base import LEASE_SECONDS
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.delivery.text import shown
from askfirst.errors import InvalidConfiguration, MissingExtra, ServiceError, StoreError
from askfirst.visible_text import escaped, pieces

if TYPE_CHECKING:
    from rich.console import Console

    from askfirst.service.risk_patterns import RiskPatterns


# Values and times as a terminal shows them: values exact and whole, with nothing hidden in them.


_UNITS = (("d", 172_800, 86_400), ("h", 7_200, 3_600), ("m", 120, 60))
_ODD_SPACE = re.compile(r"[^\S \u3000]")


def exact_json(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON in which every character is visible: characters that act, hide or imitate another one are
    escaped.

    Parsed again, it is the same value. Visible characters are not escaped, so that people can read it.
    """
    plain = json.dumps(value, ensure_ascii=False, indent=indent)
    if plain.isascii() and "\x7f" not in plain:
        return plain
    return "\n".join(
        _exact(line) for line in plain.split("\n")
    )  # within values a newline is an escape already


def _exact(line: str) -> str:
    return "".join(
        escaped(part.text)
        if part.note is not None
        else _ODD_SPACE.sub(lambda found: escaped(found[0]), part.text)
        for part in pieces(line)
    )


def moment(at: float) -> str:
    """A time, given in seconds since 1970: in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(seconds: float) -> str:
    """A length of time in one unit, rounded down: ``42s``, ``3m``, ``5h``, ``9d``."""
    for name, least, length in _UNITS:
        if seconds >= least:
            return f"{int(seconds // length)}{name}"
    return f"{int(max(seconds, 0))}s"


def console_for(stream: Literal["out", "err"]) -> Console:
    """A rich console on standard output or standard error."""
    try:
        from rich.console import Console
    except ModuleNotFoundError as error:
        raise MissingExtra("output other than --json", "cli") from error
    return Console(highlight=False, stderr=stream == "err")


def cells(text: str) -> int:
    """How many cells of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def say(text: str, *, err: bool = False) -> None:
    """Print a line or several, `shown`, and with escapes for what the terminal's encoding does not have.

    Every command prints its text with this, and JSON in ASCII: no character of others' reaches a terminal raw.
    """
    encoding = (sys.stderr if err else sys.stdout).encoding or "utf-8"
    click.echo(shown(text).encode(encoding, "backslashreplace").decode(encoding), err=err)


def risk_patterns() -> RiskPatterns:
    """The risk patterns of the configuration (``[service] risk_patterns``), else those that are shipped."""
    from askfirst.service.configuration import read_configuration
    from askfirst.service.risk_patterns import patterns_from

    try:
        return patterns_from(read_configuration().service.get("risk_patterns"))
    except (InvalidConfiguration, ServiceError):  # askfirst config check and askfirst serve report it
        return patterns_from(None)


# The database that every command works on.


T = TypeVar("T")
URL_VARIABLE = "ASKFIRST_DATABASE_URL"
DEFAULT_URL = "sqlite:///askfirst.db"


def given_url() -> str:
    """The database URL of the environment, or else of a file in the working directory."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def database_url() -> str:
    """The same URL, checked. Raises `StoreError`."""
    return checked_url(given_url())


def checked_url(url: str) -> str:
    """The URL, if every command can find the same database there. Raises `StoreError`.

    An SQLite URL without a path would be a database in memory, which ends with the command; that is refused as a
    mistake.
    """
    if url.partition("://")[0].partition("+")[0].lower() == "sqlite" and url.endswith(("://", ":///")):
        raise StoreError(
            f"{URL_VARIABLE} names no file: sqlite:///path is one, and sqlite:///:memory: is memory, "
            "which lasts as long as the command"
        )
    checkpointer_from_url(url)
    return url


def on_database(
    work: Callable[[SqlCheckpointer], Awaitable[T]],
    *,
    acts: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> T:
    """Open the database, do something with it, and close it; ``acts`` if the audit trail has rows of that.

    ``lease_seconds`` is the length of thread leases.
    """

    async def run() -> T:
        async with checkpointer_from_url(database_url(), lease_seconds=lease_seconds) as checkpointer:
            result = await work(checkpointer)
            if acts:
                from askfirst.store.audit_chain import link_if_possible

                await link_if_possible(checkpointer.engine)
            return result

    return asyncio.run(run())
