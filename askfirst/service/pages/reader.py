"""Who reads a page, in which language, and the addresses of a case's pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote

from askfirst.formats import CHINESE, ENGLISH, Style
from askfirst.service.pages.language import DEFAULT, Language, languages

_STYLES = {"en": ENGLISH, "zh-Hans": CHINESE}


def _english() -> Language:
    return languages()[DEFAULT]


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads a page: their language, and whose page it is."""

    language: Language = field(default_factory=_english)
    organisation: str = "Askfirst"
    asked_language: str | None = None
    """The language that the address asks for, which its links keep."""

    @property
    def style(self) -> Style:
        """How the language writes numbers, dates and yes or no."""
        return _STYLES.get(self.language.tag, ENGLISH)


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses of one case's pages, all with its token."""

    base_path: str
    case_id: str
    token: str
    asked_language: str | None = None

    def address(self, step: str = "", *, with_language: bool = True) -> str:
        """The page of the case, or of a step of it (``/respond``, ``/undo``, ``/live``)."""
        path = (
            f"{self.base_path}/review/{quote(self.case_id, safe='')}{step}?token={quote(self.token, safe='')}"
        )
        if self.asked_language is not None and with_language:
            path += f"&lang={quote(self.asked_language, safe='')}"
        return path
