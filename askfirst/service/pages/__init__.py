"""The review pages: HTML for a case, and what a browser posts back. Pure; who may see a page is decided elsewhere."""

from askfirst.service.pages.fields import read_field
from askfirst.service.pages.language import Language, language_for, languages
from askfirst.service.pages.reader import Reader
from askfirst.service.pages.render import (
    PAGE_HEADERS,
    Notice,
    Stage,
    fields_to_fill,
    render_case,
    render_outlived,
    render_unavailable,
    render_unknown,
    render_withheld,
)
from askfirst.service.pages.submission import Intent, Submission, read_submission
from askfirst.service.pages.template import load_pages

__all__ = [
    "Intent",
    "Language",
    "Notice",
    "PAGE_HEADERS",
    "Reader",
    "Stage",
    "Submission",
    "fields_to_fill",
    "language_for",
    "languages",
    "load_pages",
    "read_field",
    "read_submission",
    "render_case",
    "render_outlived",
    "render_unavailable",
    "render_unknown",
    "render_withheld",
]
