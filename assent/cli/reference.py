"""The help of every command as a page: ``python -m assent.cli.reference > docs/command.md``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from assent.cli.commands import assent

INTRODUCTION = """\
# The assent command

The `service` extra brings it. What is shown in a terminal needs the `cli` extra too. `assent wait` works \
without `service`: it needs `cli` and `client`, and `delivery` for whatever brings the link.

```bash
assent pending                                  # what waits for a person
assent show 1472d29b                            # one of them, whole
assent answer 1472d29b --deny "too expensive"
assent link 1472d29b                            # a link to the page, for somebody else to answer
assent wait POST https://api.example.com/orders --json @order.json --header @key.txt > result.json
assent doctor                                   # what is wrong, if something is
```

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | it could not be done; standard error has one sentence that says why |
| 2 | wrong usage |
| 3 | `assent audit verify` found the trail altered |
| 4 | `assent show`, `answer`, `link`, `cancel`: nothing that is open has this id, or not any more |
| 5 | `assent wait`: the person said no |
| 6 | `assent wait`: nobody answered in time |
| 7 | `assent wait`: the service cancelled the case |
| 130 | Ctrl-C |

What `--json` prints is kept as it is from version to version: names may be added, none is taken away. Times are \
milliseconds since 1970.

The rest of this page is what `--help` says; `python -m assent.cli.reference` writes it. \
[Operations](operations.md) shows the commands at work.
"""
WIDTH = 90


def reference() -> str:
    """The page."""
    sections = (f"## {name}\n\n```text\n{text}\n```\n" for name, text in _helps(assent, "assent"))
    return "\n".join([INTRODUCTION, *sections])


def _helps(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """The name and the help of a command, and of those below it."""
    context = click.Context(command, parent, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
    yield context.command_path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for below, inner in sorted(command.commands.items()):
            yield from _helps(inner, below, context)


if __name__ == "__main__":
    click.echo(reference(), nl=False)
