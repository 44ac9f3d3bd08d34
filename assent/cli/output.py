"""Writing to a terminal, or to whatever stands in its place."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

import click

from assent.delivery.text import shown
from assent.errors import MissingExtra

if TYPE_CHECKING:
    from rich.console import Console


def console_for(stream: Literal["out", "err"]) -> Console:
    """A rich console on standard output or standard error."""
    try:
        from rich.console import Console
    except ModuleNotFoundError as error:
        raise MissingExtra("what is not printed as JSON", "cli") from error
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
