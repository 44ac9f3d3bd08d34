"""``assent pending`` and ``assent show``: what waits for a person."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each, whole.")
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C, and show what comes and goes.")
def pending(as_json: bool, watch: bool) -> None:
    """List what waits for a person, oldest first.

    That is what agents ask, and the cases that other services have opened. ID is what assent show, answer, link
    and cancel take; it is random, stands for what is asked now, and asked again it gets another one.
    AGE is how long it has waited, LEFT how long it can still be answered ("-": for ever; "late": its time is
    up, but nobody has noted that yet), FROM the agent or the API key's name, WHAT the beginning of what is
    asked.

    \b
    Each line of JSON has id, is_open, source (agent or service), kind, from,
    prompt, created_at, expires_at (epoch milliseconds, or null), status, and of
    an agent's request also tool, digest, thread_id, question_id, round.
    With --watch there is a line {"id": ..., "is_open": false} when one is gone.
    """
    from assent.cli.listing import list_pending

    list_pending(as_json=as_json, watch=watch)


@click.command()
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
def show(id: str, as_json: bool) -> None:
    """Show what waits under ID, whole, and how to answer it.

    ID is what assent pending prints, or the whole id; an agent's request can also be looked at, but not
    answered, by THREAD/QUESTION. Values are JSON, in which whatever would hide or act in a terminal is an
    escape. What the agent or the service wrote stands beside its label, and nothing in it can pass for one.

    \b
    The JSON is that of assent pending, and "request", what the agent asks, or
    "case", with message, context, default_action, previous_case_id. Of what has
    ended there are id, is_open (false), kind, prompt, status, ended_at, by, via
    and reason.
    """
    from assent.cli.showing import show_item

    show_item(id, as_json=as_json)
