"""A page's own form, posted as a browser posts it."""

from __future__ import annotations

from typing import Any

from askfirst.service.answers import clean_answer
from askfirst.service.case import Case
from askfirst.service.pages import Submission, read_submission, render_case
from kit.page_cases import NOW, TOKEN
from kit.page_text import Page


def page_of(case: Case, **given: Any) -> Page:
    return Page(render_case(case, token=TOKEN, base_path="", now=NOW, **given))


def edit_page_of(case: Case, **given: Any) -> Page:
    """The page with the call's values as fields."""
    return page_of(case, stage="edit", **given)


def post(case: Case, page: Page | None = None, **changed: list[str] | str) -> Submission:
    """The submission of the page's own fields, with some of them changed."""
    fields = (page or page_of(case)).fields()
    for name, value in changed.items():
        fields[name.replace("__", ".")] = [value] if isinstance(value, str) else value
    return read_submission(case, fields)


def settled(submission: Submission, case: Case) -> tuple[str, dict[str, Any]]:
    """The answer, after the service's own checks."""
    assert not submission.faults
    assert submission.intent == "answer"
    return submission.action, clean_answer(case, submission.action, submission.data)
