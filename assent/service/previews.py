"""Telling a person who opens a link from a program that looks at it."""

from __future__ import annotations

import re
from collections.abc import Mapping

_FETCHERS = re.compile(
    r"bot\b|crawl|spider|preview|facebookexternalhit|whatsapp|telegram|slack|discord|twitter|skype|linkedin"
    r"|embedly|pinterest|vkshare|google-read-aloud|headlesschrome-preview|curl|wget|python|okhttp|go-http",
    re.IGNORECASE,
)


def is_navigation(headers: Mapping[str, str]) -> bool:
    """Whether a person went to a page: a browser that says so, not for a preview and not ahead of time.

    A browser so old that it does not say what it fetches for counts as no person: the page is shown all the
    same, and the case goes on when they answer.
    """
    if _FETCHERS.search(headers.get("user-agent", "")):
        return False
    if "prefetch" in headers.get("sec-purpose", headers.get("purpose", "")).lower():
        return False
    mode, target = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return mode == "navigate" and target == "document"
