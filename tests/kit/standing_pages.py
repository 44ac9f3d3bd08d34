"""The standing set on two pages: as the page shows it today, and frozen as the page before this one showed it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

from askfirst.service.case_state import CaseState, Outcome, Previous
from kit.page_cases import NOW
from kit.page_forms import post
from kit.page_scenes import Scene
from kit.page_text import Page
from kit.paths import DATA
from kit.standing_cases import EDITED, MAIL_EDITED, REFUND_ARGS, standing_set

FORMER = DATA / "former_page"
Show = Callable[[str], Page]
"""A page by the name of its case or state, of one of the two."""


@cache
def standing_scenes() -> dict[str, Scene]:
    """Every case of the set, and the states that a person comes to, as the page shows them today."""
    cases = {name: each.case for name, each in standing_set().items()}
    found = {name: Scene(case) for name, case in cases.items()}
    note = "Say what is broken."
    before = Previous("case_0", {**REFUND_ARGS, "reason": "Broken."}, "changes", note, "Ada Ngo", NOW)
    found["second-round"] = Scene(cases["second-round"], sight={"previous": before})
    yours: dict[str, Any] = {"is_yours": True, "by": "Ada Ngo", "at": NOW}
    held = Scene(cases["refund"], CaseState("held", 1, action="approve", held_until=NOW + 5, **yours))
    ran = Outcome("done", NOW, "Paid 40.00 EUR to ada@example.com")
    asked = CaseState("changes_asked", 1, action="edit", has_next=True, **yours)
    found |= {
        "approved": held,
        "approved-twice": held,
        "edited": Scene(cases["edited"], CaseState("done", 1, action="edit", outcome=ran, **yours)),
        "rejected": Scene(cases["rejected"], CaseState("rejected", 1, action="reject", **yours)),
        "changes-asked": Scene(cases["changes-asked"], asked),
    }
    return found | _on_the_way(found)


def _on_the_way(found: dict[str, Scene]) -> dict[str, Scene]:
    """Editing, and pages that come back because something is missing or wrong."""

    def again(name: str, **given: Any) -> Scene:
        return dataclasses.replace(found[name], given=given)

    unnoted = post(found["deployment"].case, action="again", feedback="")
    return {
        "mail-edit": again("mail", stage="edit"),
        "sql-edit": again("sql", stage="edit"),
        "mail-check": again("mail", values={"edits": MAIL_EDITED}, step=2),
        "refund-check": again("refund", values={"edits": EDITED}, step=2),
        "form-faults": again("form", values={}, faults={"data.remote": "is required"}),
        "jobs-faults": again("jobs", values={}, faults={"data.selected": "needs a choice"}),
        "code-faults": again(
            "code",
            stage="code",
            code_to=0,
            faults={"email_code": "Enter the code that was sent to you by e-mail."},
        ),
        "note-faults": again("deployment", values=unnoted.data, faults=unnoted.faults),
    }


@cache
def shown_now(name: str) -> Page:
    """The page of today."""
    return Page(standing_scenes()[name].html())


@cache
def shown_before(name: str) -> Page:
    """The page before this one."""
    return Page((FORMER / f"{name}.html").read_text("utf-8"))
