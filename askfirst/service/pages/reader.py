"""The reader of a page with their language, and the addresses of a case's pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote

from askfirst.formats import Style, style_for
from askfirst.service.pages.language import DEFAULT, Language, languages

SCHEMES = ("light", "dark")
"""The colour schemes that a reader may choose in place of the system's."""


def _english() -> Language:
    return languages()[DEFAULT]


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a page: their language, and the organisation that the page belongs to."""

    language: Language = field(default_factory=_english)
    organisation: str = "Askfirst"
    asked_language: str | None = None
    """The language that the address asks for with ``lang``. The page's links keep it."""
    scheme: str | None = None
    """``"light"`` or ``"dark"``, if the reader chose one; None for what their system says."""

    @property
    def style(self) -> Style:
        """How the language writes numbers, dates and yes or no."""
        return style_for(self.language.tag)


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses of one case's pages, all with the token of its link."""

    base_path: str
    case_id: str
    token: str
    asked_language: str | None = None

    def address(self, step: str = "", *, with_language: bool = True) -> str:
        """The address of the case's page, or of a path below it (``/respond``, ``/undo``, ``/live``)."""
        path = (
            f"{self.base_path}/review/{quote(self.case_id, safe='')}{step}?token={quote(self.token, safe='')}"
        )
        if self.asked_language is not None and with_language:
            path += f"&lang={quote(self.asked_language, safe='')}"
        return path
