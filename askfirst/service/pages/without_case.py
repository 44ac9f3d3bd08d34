"""Pages that show no case: an unknown or expired link, a form of another site, a store that cannot be reached."""

from __future__ import annotations

from askfirst.service.pages.reader import Reader
from askfirst.service.pages.template import fill


def render_unknown(base_path: str = "", reader: Reader | None = None) -> str:
    """The page for an unknown case or a wrong link. It does not say which, so that nobody can probe for case ids."""
    return fill("message.html", reader or Reader(), base_path, {"name": "unknown", "said": "unknown"})


def render_outlived(base_path: str = "", reader: Reader | None = None) -> str:
    """The page for an expired link: it shows nothing of the case."""
    return fill("message.html", reader or Reader(), base_path, {"name": "outlived", "said": "outlived"})


def render_withheld(base_path: str = "", reader: Reader | None = None) -> str:
    """The page for an address without a token, if the service delivers the links itself and publishes none."""
    return fill("message.html", reader or Reader(), base_path, {"name": "withheld", "said": "withheld"})


def render_foreign(base_path: str = "", reader: Reader | None = None) -> str:
    """The page for a form that another site's page has posted: nothing of it counts."""
    return fill("message.html", reader or Reader(), base_path, {"name": "foreign", "said": "foreign"})


def render_unavailable(
    base_path: str = "", *, sent: bool = False, page_url: str = "", reader: Reader | None = None
) -> str:
    """The page while the store cannot be reached; ``sent`` if an answer was posted.

    It is then unknown whether the answer was committed: the connection may have broken during the commit. The link
    to try again leads to ``page_url``; without it, it loads the same address once more.
    """
    said = "unavailable.sent" if sent else "unavailable"
    facts = {"name": "unavailable", "said": said, "sent": sent, "page_url": page_url}
    return fill("message.html", reader or Reader(), base_path, facts)
