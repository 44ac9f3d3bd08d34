"""``assent answer`` and ``assent cancel``: deciding, from the command line, what waits for a person."""

from __future__ import annotations

from typing import IO, Any, cast

import click
from pydantic_core import from_json

from assent.cli.output import say

_MOST_CHARACTERS = 255


def _named(_context: click.Context, _option: click.Parameter, sets: tuple[str, ...]) -> list[tuple[str, str]]:
    """``NAME=VALUE`` apart."""
    pairs: list[tuple[str, str]] = []
    for each in sets:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{each!r} is not of the form NAME=VALUE")
        pairs.append((name, value))
    return pairs


def _read(_context: click.Context, _option: click.Parameter, file: IO[bytes] | None) -> dict[str, Any] | None:
    """The JSON object in a file."""
    if file is None:
        return None
    try:
        value = from_json(file.read(), allow_inf_nan=False)
    except ValueError as error:
        raise click.ClickException(f"what --edit names is no JSON: {error}.") from None
    if not isinstance(value, dict):
        raise click.ClickException("what --edit names is JSON, but no object.")
    return cast("dict[str, Any]", value)


def _person(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name is not None and not (0 < len(name) <= _MOST_CHARACTERS and name.isprintable()):
        raise click.BadParameter(f"a name has 1 to {_MOST_CHARACTERS} printable characters")
    return name


by_option = click.option(
    "--by",
    metavar="NAME",
    callback=_person,
    help="Who decides, for the record. Default: the user who runs this.",
)


@click.command()
@click.argument("id")
@click.option("--approve", is_flag=True, help="Yes: let the call run as it is shown; confirm.")
@click.option(
    "--deny",
    is_flag=False,
    flag_value="",
    metavar="[REASON]",
    help="No, and perhaps why; the agent is told.",
)
@click.option(
    "--edit",
    type=click.File("rb"),
    callback=_read,
    metavar="FILE",
    help="A JSON object (- is standard input): all arguments as they are to be; or all answers.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    callback=_named,
    metavar="NAME=VALUE",
    help="One argument to change, the others stay; or the answer to one question or field. Again for more, "
    "and for several choices of one question.",
)
@click.option(
    "--choose", "chosen", multiple=True, metavar="VALUE", help="A choice. Again, where several may be chosen."
)
@by_option
def answer(
    id: str,
    approve: bool,
    deny: str | None,
    edit: dict[str, Any] | None,
    sets: list[tuple[str, str]],
    chosen: tuple[str, ...],
    by: str | None,
) -> None:
    """Answer what waits under ID, as assent show says it can be.

    \b
    confirm, confirmation  --approve or --deny
    approve, approval      --approve, --deny, --edit or --set
    ask, input             --set for each question or field, or --edit
    selection              --choose for each choice
    escalate, escalation   --choose retry, skip or abort; with retry perhaps
                           --set or --edit

    ID is one that assent pending or assent show has printed, never a name that the agent gave. An answer counts
    for what has this ID and for nothing else: if the agent asks again meanwhile, with other arguments, it is
    refused. A value of --set is taken as text where a text is shown, else as JSON. Edits are
    checked, and each fault is named; then nothing is changed, and the answer can be given again. A case whose
    answer needs a code or a proof is answered on its page.

    Exits with 1 if the answer does not fit, with 2 if these options do not answer this, with 4 if it is not
    open any more.
    """
    from assent.cli.answers import Said
    from assent.cli.deciding import answer_item

    say(answer_item(id, Said(approve, deny, edit, sets, chosen), by))


@click.command()
@click.argument("id")
@click.option("--reason", default="cancelled", show_default=True, help="Why; whoever asked is told.")
@by_option
def cancel(id: str, reason: str, by: str | None) -> None:
    """End what waits under ID without an answer.

    Exits with 4 if it is not open any more.
    """
    from assent.cli.deciding import cancel_item

    say(cancel_item(id, reason, by))
