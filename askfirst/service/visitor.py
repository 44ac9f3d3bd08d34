"""Who sends a page's requests: a person's browser or a program, from our own page, with which login and link."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlsplit

from fastapi import Request
from fastapi.responses import Response

from askfirst.errors import NotIdentified
from askfirst.protocol import sensitive_keys
from askfirst.service.case import Case
from askfirst.service.context import Service
from askfirst.service.friction import stepped_up
from askfirst.service.links import page_pass
from askfirst.service.pages.rows import View
from askfirst.service.person import login_of

# Link previews: telling a person who opens a link from a program that fetches it.


_FETCHERS = re.compile(
    r"bot\b|crawl|spider|preview|facebookexternalhit|whatsapp|telegram|slack|discord|twitter|skype|linkedin"
    r"|embedly|pinterest|vkshare|google-read-aloud|headlesschrome-preview|curl|wget|python|okhttp|go-http",
    re.IGNORECASE,
)


def is_navigation(headers: Mapping[str, str]) -> bool:
    """Whether a person navigated to a page: by the fetch metadata of a browser, without previews and prefetches.

    A browser too old for fetch metadata does not count: the page is shown all the same, and the case goes on when
    the person answers.
    """
    if _FETCHERS.search(headers.get("user-agent", "")):
        return False
    if "prefetch" in headers.get("sec-purpose", headers.get("purpose", "")).lower():
        return False
    mode, target = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return mode == "navigate" and target == "document"


# The browser of a draft: sensitive values are shown only in the browser in which they were typed.
#
# Everybody with the link may save a draft, the caller too. So another browser's page shows the draft, says that
# somebody else filled it in, and takes over no value that it does not show.


COOKIE = "askfirst_browser"
LINK_COOKIE = "askfirst_link"
"""What a page follows its case with: see `askfirst.service.links.page_pass`."""
_SECRET = re.compile(r"[A-Za-z0-9_-]{32}")


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser, by the secret in its cookie; a new one has none yet."""

    secret: str = field(repr=False)
    is_new: bool

    @property
    def mark(self) -> str:
        """The hash that is stored with a draft."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def browser_of(request: Request) -> Browser:
    """The browser that a request comes from."""
    said = request.cookies.get(COOKIE, "")
    if _SECRET.fullmatch(said):
        return Browser(said, is_new=False)
    return Browser(secrets.token_urlsafe(24), is_new=True)


def seen_by(case: Case, browser: Browser) -> Case:
    """The case for this browser: without the sensitive values of another browser's draft."""
    mark = browser.mark
    if case.draft is None or case.form is None or case.drafted_by == mark:
        return replace(case, viewer=mark)
    hidden = sensitive_keys(case.form)
    draft = {key: value for key, value in case.draft.items() if key not in hidden}
    return replace(case, viewer=mark, draft=draft, is_others_draft=True)


def keep(
    response: Response, browser: Browser, case: Case, *, base_url: str, base_path: str, now: float
) -> None:
    """Set the cookie of a new browser, for this case alone and as long as it is open; scripts cannot read it."""
    if browser.is_new:
        response.set_cookie(
            COOKIE,
            browser.secret,
            max_age=max(int(case.expires_at - now), 1),
            path=f"{base_path}/review/{quote(case.case_id, safe='')}",
            secure=base_url.startswith("https:"),
            httponly=True,
            samesite="lax",  # the link is opened from a mail or a messenger
        )


async def seen(service: Service, case: Case, request: Request, browser: Browser | None = None) -> Case:
    """The case for whoever sent a request: their browser, their login, and where a fresh code would go."""
    case = seen_by(case, browser or browser_of(request))
    try:
        login = await login_of(case, request, service.identify)
    except NotIdentified:  # it is logged; an answer is refused for it
        login = None
    return stepped_up(replace(case, reader=login))


def view_of(request: Request) -> View:
    """Which part of a long case an address asks for: ``row`` and ``from``, ``rows``, ``raw``."""
    asked = request.query_params

    def number(name: str) -> int | None:
        text = asked.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    return View(number("row"), number("from") or 0, number("rows") or 0, asked.get("raw") == "1")


def keep_link(response: Response, service: Service, case: Case, token: str) -> None:
    """Let the page follow its case, and no other page: scripts cannot read the cookie."""
    response.set_cookie(
        LINK_COOKIE,
        page_pass(token),
        path=f"{service.settings.base_path}/review/{quote(case.case_id, safe='')}/live",
        secure=service.settings.base_url.startswith("https:"),
        httponly=True,
        samesite="strict",
    )


# Forms that other sites' pages post.


_OWN_SITES = ("same-origin", "none")
"""``Sec-Fetch-Site`` of our own page's form, or of an address that a person typed."""


def is_foreign(service: Service, request: Request) -> bool:
    """Whether a form was posted by another site's page (CSRF)."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None and site not in _OWN_SITES:
        return True
    if origin is None or origin.lower() == _origin(service.settings.base_url):
        return False
    # With no-referrer browsers send Origin: null, as our own pages do; so does a sandboxed frame.
    return origin != "null" or site is None


def _origin(base_url: str) -> str:
    """The origin of our own pages, as browsers write it."""
    at = urlsplit(base_url.lower())
    usual = {"http": 80, "https": 443}.get(at.scheme)
    host = f"[{at.hostname}]" if ":" in (at.hostname or "") else at.hostname
    return f"{at.scheme}://{host}" if at.port in (None, usual) else f"{at.scheme}://{host}:{at.port}"
