"""The sender of a page request: a browser or a program, the login, and our own page or another site."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlsplit

from fastapi import Request
from fastapi.responses import Response

from askfirst.clock import seconds
from askfirst.errors import NotIdentified
from askfirst.protocol import sensitive_keys
from askfirst.service.assets import takes_gzip
from askfirst.service.case import Case
from askfirst.service.context import Service
from askfirst.service.friction import stepped_up
from askfirst.service.links import page_pass
from askfirst.service.pages.reader import SCHEMES, Reader
from askfirst.service.pages.row import View
from askfirst.service.pages.sources import SOURCES
from askfirst.service.person import login_of
from askfirst.service.problems import SCHEME_COOKIE, reader_of

# Link previews: distinguish a person who opens a link from a program that fetches it.


_FETCHERS = re.compile(
    r"bot\b|crawl|spider|preview|facebookexternalhit|whatsapp|telegram|slack|discord|twitter|skype|linkedin"
    r"|embedly|pinterest|vkshare|google-read-aloud|headlesschrome-preview|curl|wget|python|okhttp|go-http",
    re.IGNORECASE,
)


def is_navigation(headers: Mapping[str, str]) -> bool:
    """Whether a person navigated to a page, by the browser's fetch metadata. Previews and prefetches do not count.

    A browser too old for fetch metadata does not count, either. It gets the page all the same, and can answer.
    """
    if _FETCHERS.search(headers.get("user-agent", "")):
        return False
    if "prefetch" in headers.get("sec-purpose", headers.get("purpose", "")).lower():
        return False
    mode, target = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return mode == "navigate" and target == "document"


# The browser of a draft: sensitive values stay in the browser in which they were typed.
#
# Everybody with the link may save a draft, the caller, too. So a page in another browser shows the draft without its
# sensitive values, and says that somebody else filled it in. An answer from there does not include those values.


COOKIE = "askfirst_browser"
LINK_COOKIE = "askfirst_link"
"""The cookie with which a page follows its case: see `askfirst.service.links.page_pass`."""
_SECRET = re.compile(r"[A-Za-z0-9_-]{32}")


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser, identified by the random secret in its cookie; ``is_new`` if it has no cookie yet."""

    secret: str = field(repr=False)
    is_new: bool

    @property
    def mark(self) -> str:
        """The hash of the secret. It is stored with drafts and decisions of this browser."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def browser_of(request: Request) -> Browser:
    """The browser that a request comes from."""
    said = request.cookies.get(COOKIE, "")
    if _SECRET.fullmatch(said):
        return Browser(said, is_new=False)
    return Browser(secrets.token_urlsafe(24), is_new=True)


def case_for_browser(case: Case, browser: Browser) -> Case:
    """The case as this browser may see it: without edits and sensitive values in the draft of another browser."""
    mark = browser.mark
    if case.draft is None or case.drafted_by == mark:
        return replace(case, viewer=mark)
    if case.form is None:
        return replace(case, viewer=mark, draft=None)
    hidden = sensitive_keys(case.form)
    draft = {key: value for key, value in case.draft.items() if key not in hidden}
    return replace(case, viewer=mark, draft=draft, is_others_draft=True)


def set_browser_cookie(response: Response, service: Service, browser: Browser, case: Case) -> None:
    """Set the cookie of a new browser, for this case alone and as long as it is open; scripts cannot read it."""
    settings = service.settings
    if browser.is_new:
        response.set_cookie(
            COOKIE,
            browser.secret,
            max_age=max(int(case.expires_at - seconds(service.cases.now())), 1),
            path=f"{settings.base_path}/review/{quote(case.case_id, safe='')}",
            secure=settings.base_url.startswith("https:"),
            httponly=True,
            samesite="lax",  # the link is opened from a mail or a messenger
        )


async def for_visitor(service: Service, case: Case, request: Request, browser: Browser | None = None) -> Case:
    """The case for the sender of a request, with their browser, their login, and the address for a step-up code."""
    case = case_for_browser(case, browser or browser_of(request))
    try:
        login = await login_of(case, request, service.identify)
    except NotIdentified:  # logged already; an answer will be refused
        login = None
    return stepped_up(replace(case, reader=login))


@dataclass(frozen=True, slots=True)
class Visit:
    """A request to a case's page: the token of its link, and the reader with their language."""

    token: str = field(repr=False)
    reader: Reader
    takes_gzip: bool = False


def visit_of(service: Service, request: Request, token: str) -> Visit:
    """The visit of a request."""
    return Visit(token, reader_of(service.settings, request), takes_gzip(request))


def view_of(request: Request) -> View:
    """The part of a case that an address asks for, by ``row``, ``from``, ``rows``, ``of``, ``raw`` and ``out``."""
    asked = request.query_params

    def number(name: str) -> int | None:
        text = asked.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    of = asked.get("of", "")
    row, start, rows = number("row"), number("from") or 0, number("rows") or 0
    if asked.get("raw") == "1":
        return View(0, start, of="raw")
    return View(row, start, rows, of if of in SOURCES else "", asked.get("out", "")[:20])


def set_link_cookie(response: Response, service: Service, case: Case, token: str) -> None:
    """Set the cookie with which the page may follow its case (`page_pass`); scripts cannot read it."""
    response.set_cookie(
        LINK_COOKIE,
        page_pass(token),
        path=f"{service.settings.base_path}/review/{quote(case.case_id, safe='')}/live",
        secure=service.settings.base_url.startswith("https:"),
        httponly=True,
        samesite="strict",
    )


_YEAR = 365 * 86_400


def set_scheme_cookie(response: Response, service: Service, scheme: str) -> None:
    """Set the cookie with the colour scheme that a reader chose, for all pages; ``system`` deletes it."""
    response.set_cookie(
        SCHEME_COOKIE,
        scheme if scheme in SCHEMES else "",
        max_age=_YEAR if scheme in SCHEMES else 0,
        path=service.settings.base_path or "/",
        secure=service.settings.base_url.startswith("https:"),
        httponly=True,
        samesite="lax",  # the link is opened from a mail or a messenger
    )


# Cross-site request forgery (CSRF): forms that pages of other sites post.


_OWN_SITES = ("same-origin", "none")
"""``Sec-Fetch-Site`` of our own page's form, or of an address that a person typed."""


def is_cross_site(service: Service, request: Request) -> bool:
    """Whether a form was posted by another site's page (CSRF)."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None and site not in _OWN_SITES:
        return True
    if origin is None or origin.lower() == _origin(service.settings.base_url):
        return False
    # Our pages are sent with no-referrer, so browsers send Origin: null for them, and also for a sandboxed frame.
    return origin != "null" or site is None


def _origin(base_url: str) -> str:
    """The origin of our own pages, in the form that browsers send."""
    at = urlsplit(base_url.lower())
    usual = {"http": 80, "https": 443}.get(at.scheme)
    host = f"[{at.hostname}]" if ":" in (at.hostname or "") else at.hostname
    return f"{at.scheme}://{host}" if at.port in (None, usual) else f"{at.scheme}://{host}:{at.port}"
