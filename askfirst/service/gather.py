"""Gathers what a page shows of one case to whoever looks at it now."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from askfirst.clock import seconds
from askfirst.formats import ENGLISH, Style
from askfirst.service.case import Case
from askfirst.service.context import Service
from askfirst.service.continuation import going_on
from askfirst.service.friction import confirm_value
from askfirst.service.outcome import begun_of, outcome_of, previous_of, steps_before
from askfirst.service.pages.decision import ACTING, Decision, decision_of
from askfirst.service.pages.rows import ALL, View
from askfirst.service.pages.sight import Second, Sight
from askfirst.service.standing import standing_of
from askfirst.service.worker_threads import apart
from askfirst.store import outcomes


async def decision_for(
    service: Service,
    case: Case,
    *,
    args: Mapping[str, Any] | None = None,
    style: Style = ENGLISH,
    view: View = ALL,
) -> Decision:
    """What is to be decided, with the service's risk patterns and the name of the caller's key."""
    name = None
    if case.key_id is not None:
        name = await service.cases.engine.read(partial(outcomes.key_name, case.key_id))
    begun_at = await begun_of(service.cases.engine, case)
    make = partial(
        decision_of,
        begun_at=begun_at,
        patterns=service.settings.risk_patterns,
        key_name=name,
        args=args,
        style=style,
        view=view,
    )
    return await apart(case.size, make, case)


async def sight_of(
    service: Service,
    case: Case,
    *,
    style: Style = ENGLISH,
    view: View = ALL,
    second: Second | None = None,
) -> Sight:
    """Gather what a page shows; the case knows who looks at it."""
    engine = service.cases.engine
    decision = await decision_for(service, case, style=style, view=view)
    goes_on = await going_on(engine, case)
    outcome = await outcome_of(engine, case, goes_on)
    standing = standing_of(case, seconds(service.cases.now()), case.viewer, outcome, goes_on)
    acting = next((it for it in ACTING.get(case.type, ()) if it in case.actions), None)
    login = case.reader or {}
    reader = login.get("name") or login.get("email")
    return Sight(
        decision=decision,
        standing=standing,
        organisation=service.settings.name,
        reader=None if reader is None else str(reader),
        nonce=secrets.token_urlsafe(16),
        hold_seconds=service.settings.hold_seconds,
        path=f"{service.settings.base_path}/review/{quote(case.case_id, safe='')}",
        previous=await previous_of(service.cases, case),
        before=await steps_before(engine, case),
        confirm_value=None if acting is None else confirm_value(case, acting, {}),
        second=second,
        view=view,
    )
