"""The review pages: HTML for a case, and what a browser posts back. Pure; who may see a page is decided elsewhere."""

from assent.service.pages.fields import read_field
from assent.service.pages.headers import PAGE_HEADERS
from assent.service.pages.render import (
    Notice,
    fields_to_fill,
    render_case,
    render_outlived,
    render_unavailable,
    render_unknown,
    render_withheld,
)
from assent.service.pages.submission import Intent, Submission, read_submission
from assent.service.pages.templates import STATIC, load_pages

__all__ = [
    "Intent",
    "Notice",
    "PAGE_HEADERS",
    "STATIC",
    "Submission",
    "fields_to_fill",
    "load_pages",
    "read_field",
    "read_submission",
    "render_case",
    "render_outlived",
    "render_unavailable",
    "render_unknown",
    "render_withheld",
]
