"""Whose draft it is: what a person typed into a sensitive field belongs to the browser that they typed it in.

Whoever has the link may save a draft, the asker too. So the page of another browser shows what stands in it, says
that somebody else has filled it in, and takes nothing over that it does not show.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from fastapi import Request, Response

from assent.protocol import sensitive_keys
from assent.service.case import Case

COOKIE = "assent_browser"
_SECRET = re.compile(r"[A-Za-z0-9_-]{32}")


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser, by the secret in its cookie; a new one has none yet."""

    secret: str = field(repr=False)
    is_new: bool

    @property
    def mark(self) -> str:
        """What is stored of it with a draft."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def browser_of(request: Request) -> Browser:
    """The browser that a request comes from."""
    said = request.cookies.get(COOKIE, "")
    if _SECRET.fullmatch(said):
        return Browser(said, is_new=False)
    return Browser(secrets.token_urlsafe(24), is_new=True)


def seen_by(case: Case, browser: Browser) -> Case:
    """The case as this browser may go on with it: without the sensitive values of somebody else's draft."""
    mark = browser.mark
    if case.draft is None or case.form is None or case.drafted_by == mark:
        return replace(case, viewer=mark)
    hidden = sensitive_keys(case.form)
    draft = {key: value for key, value in case.draft.items() if key not in hidden}
    return replace(case, viewer=mark, draft=draft, is_others_draft=True)


def keep(
    response: Response, browser: Browser, case: Case, *, base_url: str, base_path: str, now: int
) -> None:
    """Let a new browser keep its secret, for this case alone and as long as it is open. No script can read it."""
    if browser.is_new and case.form is not None:
        response.set_cookie(
            COOKIE,
            browser.secret,
            max_age=max((case.expires_at - now) // 1000, 1),
            path=f"{base_path}/review/{quote(case.case_id, safe='')}",
            secure=base_url.startswith("https:"),
            httponly=True,
            samesite="lax",  # the link is followed from a mail or a messenger
        )
