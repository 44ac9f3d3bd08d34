"""``askfirst policy``: whether a file of rules makes sense, and what it decides about a call."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any, cast

import click

from askfirst.cli.output import say
from askfirst.errors import AskfirstError
from askfirst.permissions.decision import PendingAction
from askfirst.permissions.policy_file import PolicyWarning
from askfirst.permissions.shipped import SHIPPED, policy_from, shipped_text
from askfirst.permissions.static import Explanation, StaticPermissionPolicy

_FIELDS = ("tool", "args", "toolset", "principal")


@click.group()
def policy() -> None:
    """The rules that allow or deny a call, or ask a person.

    Where a command takes a policy, it takes a file of rules (.yaml, .toml or .json) or the name of a policy that
    Askfirst ships: coding-agent.
    """


@policy.command()
@click.argument("file")
@click.pass_context
def check(context: click.Context, file: str) -> None:
    """Read a file of rules, and name every mistake in it by its line.

    Rules that can never be reached are named too. Exits with 1 if there is a mistake or such a rule.
    """
    found = _policy(file)
    for sentence in found.unreachable:
        say(sentence)
    count = len(found.rules)
    say(
        f"{file}: {count} rule{'' if count == 1 else 's'}; a call that none matches: {found.default.verdict}."
    )
    context.exit(1 if found.unreachable else 0)


@policy.command()
@click.argument("file")
@click.argument("action", metavar="ACTION.json")
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
def explain(file: str, action: str, as_json: bool) -> None:
    """Print what a policy decides about a call, and why: one line for each rule up to the one that decides.

    ACTION.json is a file, or - for standard input, with an object such as {"tool": "refund", "args":
    {"cents": 400}}. It may also have a toolset and a principal. No value of an argument is printed.

    \b
    The JSON has verdict (allow, ask or deny), rule (the id of the rule that
    decides, or null), because, and passed: a list of rule and why.
    """
    told = _policy(file).explain(_action(action))
    if as_json:
        click.echo(json.dumps(_as_json(told)))
        return
    say(str(told))
    say(f"So the verdict is: {told.decision.verdict}.")


@policy.command()
@click.argument("name", type=click.Choice(sorted(SHIPPED)))
def show(name: str) -> None:
    """Print a policy that Askfirst ships, for the repository that is the working directory.

    Redirect it to a file to begin your own policy with it: askfirst policy show coding-agent > policy.yaml
    """
    click.echo(shipped_text(name), nl=False)


def _policy(named: str) -> StaticPermissionPolicy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyWarning)  # they are in `unreachable`, and printed by `check`
        return policy_from(named)


def _action(path: str) -> PendingAction:
    try:
        raw = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        given = json.loads(raw)
    except OSError as error:
        raise AskfirstError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise AskfirstError(f"{path} is not JSON in UTF-8") from None
    if not isinstance(given, dict):
        raise AskfirstError(f"{path} is not an object with {', '.join(_FIELDS)}")
    fields = cast("dict[str, Any]", given)
    if unknown := [name for name in fields if name not in _FIELDS]:
        raise AskfirstError(f"{path} has {', '.join(unknown)}; a call has {', '.join(_FIELDS)}")
    if not isinstance(fields.get("tool"), str):
        raise AskfirstError(f"{path} has no tool, the name of what is called")
    for name, kind in (("args", dict), ("toolset", str), ("principal", str)):
        if name in fields and not isinstance(fields[name], kind):
            raise AskfirstError(f"{path} has {name} that is not {'an object' if kind is dict else 'a text'}")
    return PendingAction(**fields)


def _as_json(told: Explanation) -> dict[str, Any]:
    return {
        "verdict": told.decision.verdict,
        "rule": None if told.rule is None else told.rule.id,
        "because": told.because,
        "passed": [{"rule": each.rule.id, "why": each.why} for each in told.passed],
    }
