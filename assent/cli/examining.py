"""Looking everything over: what is installed, configured, reachable and overdue."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

import click

from assent.checkpointer.connect import checkpointer_from_url
from assent.cli.database import database_url, given_url
from assent.cli.exact import now_milliseconds
from assent.cli.findings import (
    BASE_URL_VARIABLE,
    Finding,
    configured,
    database_findings,
    installed,
    notice_findings,
    overdue_findings,
    service_finding,
)
from assent.cli.output import say
from assent.errors import StoreError
from assent.store.overdue import overdue
from assent.store.telling import all_failed
from assent.visible import visible

GRACE_MILLISECONDS = 60_000
SLOW_GRACE_MILLISECONDS = 300_000
"""A callback that a worker has taken is due again two minutes later; who resumes threads may look now and then."""
NOTICES_SHOWN = 10
_MARKS = {"ok": "ok", "note": "-", "wrong": "WRONG"}


def examine(*, as_json: bool) -> bool:
    """Print what was found; True if nothing is wrong."""
    findings = [*installed(), *configured(os.environ)]
    findings += asyncio.run(_from_afar(findings))
    wrong = sum(finding.state == "wrong" for finding in findings)
    if as_json:
        whole = {"is_well": not wrong, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(whole))
    else:
        _print(findings, wrong)
    return not wrong


async def _from_afar(known: Sequence[Finding]) -> list[Finding]:
    """What only the database and the service can tell."""
    findings = await database_findings(given_url())
    base_url = os.environ.get(BASE_URL_VARIABLE)
    if base_url and all(finding.state == "ok" for finding in known if finding.name == BASE_URL_VARIABLE):
        findings.append(await service_finding(base_url))
    if any(finding.name == "schema" and finding.state == "ok" for finding in findings):
        findings += await _overdue()
    return findings


async def _overdue() -> list[Finding]:
    now = now_milliseconds()
    late = partial(overdue, now - GRACE_MILLISECONDS, now - SLOW_GRACE_MILLISECONDS)
    try:
        async with checkpointer_from_url(database_url()) as checkpointer:
            findings = overdue_findings(await checkpointer.engine.read(late), now)
            failed = await checkpointer.engine.read(partial(all_failed, NOTICES_SHOWN))
            return findings + notice_findings(failed, now)
    except StoreError as error:
        return [Finding("reachable", "database", "wrong", str(error))]


def _print(findings: Sequence[Finding], wrong: int) -> None:
    group = None
    for finding in findings:
        if finding.group != group:
            group = finding.group
            say(group)
        say(f"  {_MARKS[finding.state]:<5}  {finding.name}: {visible(finding.detail)}")
    told = "1 thing is wrong." if wrong == 1 else f"{wrong} things are wrong."
    say(told if wrong else "Nothing is wrong.")
