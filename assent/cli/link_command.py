"""``assent link``: the way to the page where something can be answered."""

from __future__ import annotations

import click

DEFAULT_BASE_URL = "http://127.0.0.1:8000"


@click.command()
@click.argument("id")
@click.option(
    "--base-url",
    envvar="ASSENT_BASE_URL",
    show_envvar=True,
    default=DEFAULT_BASE_URL,
    show_default=True,
    help="Where people reach the service, as assent serve was told.",
)
@click.option(
    "--days",
    type=click.FloatRange(0, 36_500, min_open=True),
    default=7.0,
    show_default=True,
    help="How long the link is good for.",
)
@click.option("--revoke", is_flag=True, help="End all links to ID, and its submit tokens, and make none.")
def link(id: str, base_url: str, days: float, revoke: bool) -> None:
    """Print a new link to the page where ID can be answered, or revoke all that there are.

    ID is what assent pending prints. Whoever has the link may answer, so give it to that person alone. Of links
    that were made before only hashes are kept, and none can be shown again: this makes one more, and the others
    go on working until their time is over. All of them lead to how it ended, once it has. The audit trail has a
    row that says who made it, and one that says who revoked them.

    A page is there while a service runs on this database: assent serve, or your own application with its
    address as --base-url.

    Exits with 4 if it is not open any more.
    """
    if revoke:
        from assent.cli.revoking import revoke_links

        click.echo(revoke_links(id))
        return
    from assent.cli.linking import new_link

    click.echo(new_link(id, base_url, days))
