"""The review pages: HTML for a case, and the form that a browser posts back.

Pure functions without I/O. Access to a page is checked by the routes (`askfirst.service.review_routes`).
"""

from askfirst.service.pages.fields import read_field
from askfirst.service.pages.form_parts import fields_to_fill
from askfirst.service.pages.language import Language, language_for, languages
from askfirst.service.pages.reader import Reader
from askfirst.service.pages.render import (
    PAGE_HEADERS,
    Notice,
    Stage,
    render_case,
)
from askfirst.service.pages.submission import Intent, Submission, read_submission
from askfirst.service.pages.template import load_pages
from askfirst.service.pages.without_case import (
    render_foreign,
    render_outlived,
    render_unavailable,
    render_unknown,
    render_withheld,
)

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
    "render_foreign",
    "render_outlived",
    "render_unavailable",
    "render_unknown",
    "render_withheld",
]
