"""Options that the commands before Claude Code's tools share."""

from __future__ import annotations

import click

policy_option = click.option(
    "--policy",
    metavar="FILE",
    help="A file of rules that decides first, or the name of a policy that Askfirst ships: coding-agent.",
)
tools_option = click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME",
    help="A tool on which a person always decides, whatever the policy says. May be given several times. "
    "Without --tool and --policy: all.",
)
timeout_option = click.option(
    "--timeout", metavar="TIME", help="How long people have to decide, such as 24h; then the call is denied."
)
