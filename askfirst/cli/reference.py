"""The help of every command as a page: ``python -m askfirst.cli.reference > docs/reference/command.md``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from askfirst.cli.commands import askfirst

INTRODUCTION = """\
# The askfirst command

The `service` extra installs it. Output for people (tables, `askfirst pending`, `askfirst show`) needs the `cli` \
extra too; `--json` does not. `askfirst wait` works without `service`: it needs `cli` and `client`, and `delivery` \
to send the link.

```bash
askfirst pending                                  # open requests and cases
askfirst show 1472d29b                            # one of them, with every argument
askfirst answer 1472d29b --deny "too expensive"
askfirst link 1472d29b                            # a link to the page, for somebody else to answer
askfirst wait POST https://api.example.com/orders --json @order.json --header @key.txt > result.json
askfirst doctor                                   # checks the installation and the database
```

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed; standard error says why in one sentence |
| 2 | wrong usage |
| 3 | `askfirst audit verify` found the trail altered |
| 4 | `askfirst show`, `answer`, `link`, `cancel`: no open request or case has this id (any more) |
| 5 | `askfirst wait`: the person refused |
| 6 | `askfirst wait`: nobody answered in time |
| 7 | `askfirst wait`: the service cancelled the case |
| 130 | Ctrl-C |

The output of `--json` is stable: later versions may add names, and remove none. Times are seconds since 1970.

The rest of this page is the output of `--help`; `python -m askfirst.cli.reference` writes it. \
[Operations](../operate/operations.md) shows the commands at work.
"""
WIDTH = 90


def reference() -> str:
    """The page about the command line: the introduction, and the help of every command."""
    sections = (f"## {name}\n\n```text\n{text}\n```\n" for name, text in _helps(askfirst, "askfirst"))
    return "\n".join([INTRODUCTION, *sections])


def _helps(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """The name and the help of a command, and of those below it."""
    context = click.Context(command, parent, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
    yield context.command_path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            inner = command.get_command(context, below)
            if inner is not None:
                yield from _helps(inner, below, context)


if __name__ == "__main__":
    click.echo(reference(), nl=False)
