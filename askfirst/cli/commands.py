"""All commands of ``askfirst``, and those that stand alone."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from askfirst import __version__
from askfirst.errors import MissingExtra

_COMMANDS = {
    "answer": "answer",
    "audit": "audit",
    "cancel": "answer",
    "config": "configuration",
    "continuations": "continuations",
    "deliveries": "deliveries",
    "doctor": "doctor",
    "encryption": "encryption",
    "hook": "hook",
    "gate": "gate",
    "keys": "keys",
    "link": "link",
    "mcp": "mcp",
    "notify": "configuration",
    "outbox": "outbox",
    "pending": "pending",
    "policy": "policy",
    "purge": "serve",
    "serve": "serve",
    "show": "show",
    "slack": "slack",
    "wait": "wait",
    "worker": "worker",
}
"""The module of each command; the command has its name there."""


class _LazyGroup(click.Group):
    """A group whose commands are loaded when they are used: each needs libraries that the others do not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        return None if module is None else getattr(import_module(f"askfirst.cli.{module}"), cmd_name)


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    epilog="""
\b
ASKFIRST_DATABASE_URL names the database: sqlite:///askfirst.db (the default, in
the working directory), postgresql://... or mysql://...
ASKFIRST_SECRET, of 32 characters or more, signs callbacks.
ASKFIRST_CONFIG names the configuration: askfirst.toml in the working directory by
default. See askfirst config check --help.
ASKFIRST_ENCRYPTION_KEY, or a file that ASKFIRST_ENCRYPTION_KEY_FILE names, encrypts
the data in the database; see askfirst encryption --help.

\b
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the audit trail was altered,
4 the request is not open, or no longer. askfirst wait: 5 the person refused,
6 nobody answered in time, 7 the service cancelled the case. 130 Ctrl-C.
askfirst hook: 2 for every failure. One sentence on standard error says what
went wrong.
""",
)
@click.version_option(__version__, message="%(version)s")
@click.pass_context
def askfirst(context: click.Context) -> None:
    """Ask people before agents act, and manage what was asked.

    In a terminal, askfirst without a command lists what waits for a person.
    """
    if context.invoked_subcommand is not None:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.exceptions.NoArgsIsHelpError(context)
    try:
        from askfirst.cli.board import show_board
    except ModuleNotFoundError as error:
        raise MissingExtra("the list of what waits", "cli") from error
    show_board()
