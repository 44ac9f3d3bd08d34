"""All commands of ``assent``, and those that stand alone."""

from __future__ import annotations

import click

from assent import __version__
from assent.cli.answer_commands import answer, cancel
from assent.cli.audit_commands import audit
from assent.cli.database import on_database
from assent.cli.doctor_command import doctor
from assent.cli.encryption_commands import encryption
from assent.cli.key_commands import keys
from assent.cli.link_command import link
from assent.cli.pending_commands import pending, show
from assent.cli.serve_command import serve
from assent.cli.wait_command import wait


@click.group(
    epilog="""
\b
ASSENT_DATABASE_URL names the database: sqlite:///assent.db (the default, in
the working directory), postgresql://... or mysql://...
ASSENT_SECRET, of 32 characters or more, signs callbacks.
ASSENT_ENCRYPTION_KEY, or a file that ASSENT_ENCRYPTION_KEY_FILE names, encrypts
what the database keeps; see assent encryption --help.

\b
Exit codes: 0 done, 1 it could not be done, 2 wrong usage,
3 the audit trail is not whole, 4 the request is not open, or not any more.
Of assent wait: 5 the person said no, 6 nobody answered in time, 7 the service
cancelled. 130 Ctrl-C. What went wrong is one sentence on standard error.
"""
)
@click.version_option(__version__, message="%(version)s")
def assent() -> None:
    """Ask people for what agents may not decide alone."""


@assent.command()
@click.option(
    "--older-than-days",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Keep cases that ended more recently than this.",
)
def purge(older_than_days: float) -> None:
    """Delete cases that ended long ago, with their answers.

    The audit trail is kept.
    """
    from assent.service.cases import purge

    count = on_database(lambda checkpointer: purge(checkpointer, older_than_days), acts=True)
    click.echo(f"Deleted {count} case{'' if count == 1 else 's'}.")


for command in (answer, audit, cancel, doctor, encryption, keys, link, pending, serve, show, wait):
    assent.add_command(command)
