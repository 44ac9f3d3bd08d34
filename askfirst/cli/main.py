"""The ``askfirst`` command: the way in, and the one place where errors become a sentence."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from askfirst.delivery.text import shown
from askfirst.errors import AskfirstError, MissingExtra

FAILED = 1
BLOCKED = 2
"""What a hook of Claude Code ends with to block the call; after any other failure Claude Code would run it."""
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with the arguments of the process, and end the process with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.exit(_hook(given) if given[:1] == ["hook"] else _run(given))
    except AskfirstError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        if not _is_of_an_extra(error):
            raise
        _fail(MissingExtra("the askfirst command", "service"))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _is_of_an_extra(error: ModuleNotFoundError) -> bool:
    return error.name is not None and error.name.partition(".")[0] != "askfirst"


def _hook(arguments: Sequence[str]) -> int:
    """Run a hook of Claude Code, which fails closed: whatever goes wrong blocks the call."""
    try:
        return BLOCKED if _run(arguments) else 0
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, ModuleNotFoundError) and _is_of_an_extra(error):
            error = MissingExtra("askfirst hook", "mcp")
        sys.stderr.write(f"Error: the gate could not be asked, so the call is blocked: {shown(str(error))}\n")
        return BLOCKED


def _run(arguments: Sequence[str] | None) -> int:
    """Run the command and return its exit code."""
    import click

    from askfirst.cli.commands import askfirst

    try:
        code: object = askfirst.main(arguments, standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        sys.stderr.write(shown(said.getvalue()))
        return error.exit_code
    return code if isinstance(code, int) else 0


def _fail(error: Exception) -> None:
    sys.stderr.write(f"Error: {shown(str(error))}\n")
    sys.exit(FAILED)
