"""The help of every command as a page: ``python -m assent.cli.reference > docs/command.md``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from assent.cli.commands import assent

INTRODUCTION = """\
# The assent command

The `service` extra brings it. This page is what `--help` says; `python -m assent.cli.reference` writes it.

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
