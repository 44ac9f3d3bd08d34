"""All commands of ``askfirst``, and those that stand alone."""

from __future__ import annotations

from importlib import import_module

import click

from askfirst import __version__

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
    "show": "pending",
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
    epilog="""
\b
ASKFIRST_DATABASE_URL names the database: sqlite:///askfirst.db (the default, in
the working directory), postgresql://... or mysql://...
ASKFIRST_SECRET, of 32 characters or more, signs callbacks.
ASKFIRST_CONFIG names the configuration: askfirst.toml in the working directory by
default. See askfirst config check --help.
ASKFIRST_ENCRYPTION_KEY, or a file that ASKFIRST_ENCRYPTION_KEY_FILE names, encrypts
what the database keeps; see askfirst encryption --help.

\b
Exit codes: 0 done, 1 it could not be done, 2 wrong usage,
3 the audit trail is not whole, 4 the request is not open, or not any more.
Of askfirst wait: 5 the person said no, 6 nobody answered in time, 7 the service
cancelled. 130 Ctrl-C. askfirst hook: 2 for whatever goes wrong. What went wrong is one sentence on standard error.
""",
)
@click.version_option(__version__, message="%(version)s")
def askfirst() -> None:
    """Ask people for what agents may not decide alone."""
