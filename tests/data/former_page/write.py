"""Writes the pages of this folder: cases of the standing set as the page before this one showed them.

Run once, with the package of commit 3452056, the last one that had that page, and the kit of today:

    git archive 3452056 | tar x -C OLD
    cp tests/kit/standing_cases.py tests/kit/page_cases.py OLD/tests/kit/
    PYTHONPATH=OLD:OLD/tests python tests/data/former_page/write.py
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from kit.page_cases import NOW, TOKEN
from kit.standing_cases import EDITED, MAIL_EDITED, standing_set

from askfirst.service.case import Case
from askfirst.service.pages import render_case

HERE = Path(__file__).parent
LARGE = ("megabyte", "sixty-arguments")
"""Not kept: no complaint needs them."""
STATES: dict[str, tuple[str, dict[str, Any]]] = {
    "mail-edit": ("mail", {"values": {"edits": standing_set()["mail"].case.payload.args}}),
    "mail-check": ("mail", {"values": {"edits": MAIL_EDITED}, "step": 2}),
    "sql-edit": ("sql", {"values": {"edits": standing_set()["sql"].case.payload.args}}),
    "refund-check": ("refund", {"values": {"edits": EDITED}, "step": 2}),
    "form-faults": ("form", {"values": {}, "faults": {"data.remote": "is required"}}),
    "jobs-faults": ("jobs", {"values": {}, "faults": {"data.selected": "needs a choice"}}),
    "code-faults": ("code", {"faults": {"email_code": "Enter the code that was sent to you by e-mail."}}),
    "note-faults": ("deployment", {"values": {}, "faults": {"feedback": "Say what should be different."}}),
    "approved-twice": ("approved", {"notice": "late"}),
}
"""States of a case that a person comes to: editing, refused, pressed twice."""


def former(case: Case) -> Case:
    """The case as the program of that time opened it: an agent by itself was not named."""
    if case.request is None or case.request.payload.details is None:
        return case
    details = dict(case.request.payload.details)
    if len(details.get("agent_path", ())) == 1:
        del details["agent_path"]
    payload = case.request.payload.model_copy(update={"details": details})
    return dataclasses.replace(case, request=case.request.model_copy(update={"payload": payload}))


def main() -> None:
    """Write the pages, their style sheet, script and icon."""
    import askfirst.service as service

    cases = {name: each.case for name, each in standing_set().items() if name not in LARGE}
    shown = {name: (case, {}) for name, case in cases.items()}
    shown |= {name: (cases[of], given) for name, (of, given) in STATES.items()}
    for name, (case, given) in shown.items():
        html = render_case(former(case), token=TOKEN, base_path="", now=NOW, **given)
        (HERE / f"{name}.html").write_text(html, "utf-8")
    for name in ("page.css", "page.js", "icon.svg"):
        shutil.copy(Path(service.__file__).parent / "static" / name, HERE / name)


if __name__ == "__main__":
    main()
