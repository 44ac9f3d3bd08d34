"""A simulated person: opens a review link and decides there, as a browser without scripts would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx2

Say = Callable[[str], None]
BROWSER = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Askfirst demo",
    "Accept": "text/html",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}


class NotAsExpected(Exception):
    """The page does not show what a person needs for the decision, or does not accept it."""


@dataclass
class PageForm:
    """A form of a page: its address, its fields with their values, and its buttons as (label, name, value)."""

    action: str
    fields: dict[str, str] = field(default_factory=dict[str, str])
    buttons: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


class Page(HTMLParser):
    """A parsed page: its heading, its text and its forms."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.heading = ""
        self.text = ""
        self.forms: list[PageForm] = []
        self._said: list[str] | None = None  # the text of the heading or button that is open
        self._button: tuple[str, str] = ("", "")
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(PageForm(of.get("action", "")))
        elif tag in ("input", "textarea") and self.forms and of.get("type") not in ("checkbox", "radio"):
            self.forms[-1].fields[of.get("name", "")] = of.get("value", "")
        elif tag == "button":
            self._button = (of.get("name", ""), of.get("value", ""))
        if tag in ("h1", "button"):
            self._said = []

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._said is not None:
            self._said.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("h1", "button") or self._said is None:
            return
        said, self._said = " ".join("".join(self._said).split()), None
        if tag == "h1":
            self.heading = said
        elif self.forms:
            self.forms[-1].buttons.append((said, *self._button))


async def approve(link: str, expected: list[str], say: Say) -> None:
    """Open the page, read it, press the button that approves, and open the page that follows.

    The page has to show the ``expected`` texts: the tool and its arguments, as they will run. Raises `NotAsExpected`.
    """
    async with httpx2.AsyncClient(headers=BROWSER, timeout=30, trust_env=False) as browser:
        page = _page(await browser.get(link), say)
        if missing := [text for text in expected if text not in page.text]:
            raise NotAsExpected(f"the page does not show {missing[0]!r}")
        say(f"reads there: {', '.join(expected)}")
        form, label, name, value = _button(page, "approve")
        sent = await browser.post(
            urljoin(link, form.action),
            data={**form.fields, name: value},
            headers={"Origin": _origin(link), "Sec-Fetch-Site": "same-origin"},
        )
        say(f"presses {label!r}: POST {urlsplit(form.action).path} gives {sent.status_code}")
        if sent.status_code != 303:
            raise NotAsExpected(f"the answer was not taken: {Page(sent.text).heading or sent.text}")
        _page(await browser.get(urljoin(link, sent.headers["location"])), say)


def _page(response: httpx2.Response, say: Say) -> Page:
    page = Page(response.text)
    say(f"opens the page: GET {response.url.path} gives {response.status_code}, {page.heading!r}")
    if response.status_code != 200:
        raise NotAsExpected(f"the link gives {response.status_code}")
    return page


def _button(page: Page, action: str) -> tuple[PageForm, str, str, str]:
    """The form of the button for an action, and the button's label, name and value."""
    for form in page.forms:
        for label, name, value in form.buttons:
            if value == action:
                return form, label, name, value
    raise NotAsExpected(f"the page has no button for {action!r}")


def _origin(link: str) -> str:
    at = urlsplit(link)
    return f"{at.scheme}://{at.netloc}"
