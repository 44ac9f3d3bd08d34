"""The ``assent`` command: the way in, and the one place where errors become a sentence."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from assent.errors import AssentError, MissingExtra

FAILED = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with the arguments of the process, and end the process with its exit code."""
    try:
        from assent.cli.commands import assent

        assent(arguments)
    except AssentError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "assent":
            raise
        _fail(MissingExtra("the assent command", "service"))


def _fail(error: Exception) -> None:
    sys.stderr.write(f"Error: {error}\n")
    sys.exit(FAILED)
