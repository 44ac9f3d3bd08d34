"""``assent doctor``: what is wrong, if something is."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Look for what is wrong: installed, configured, reachable, overdue.

    It changes nothing: a database is neither made nor brought up to date. If ASSENT_BASE_URL is set, the
    service there is asked whether it is ready. "-" is worth to know, and not wrong.

    \b
    The JSON has is_well, and findings with group, name, state (ok, note or
    wrong) and detail.

    Exits with 1 if something is wrong.
    """
    from assent.cli.examining import examine

    context.exit(0 if examine(as_json=as_json) else 1)
