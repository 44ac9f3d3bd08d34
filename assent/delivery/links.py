"""Which links may be handed to a terminal or a browser."""

from __future__ import annotations

import re

_WEB_LINK = re.compile(r"https?://[!-~]+", re.IGNORECASE)


def is_web_link(url: str) -> bool:
    """Whether this is a web address, and nothing in it could be taken for something else.

    Only printable ASCII without blanks: no control character ends it early, no letter looks like another.
    """
    return _WEB_LINK.fullmatch(url) is not None
