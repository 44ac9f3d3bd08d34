"""A parsed page: its elements, its form fields, and its texts, with marks for hidden characters decoded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

SHORT = {"⇥": "\t", "␍": "\r", "␣": " "}
VOID = {"br", "hr", "img", "input", "link", "meta"}
LETTERS = re.compile(r"[A-Z][A-Za-z -]* ([^\s<>]{1,12})")
MARK = re.compile(r"(U\+([0-9A-F]{4,6})|[⇥␍␣])(?: × (\d+))?")


@dataclass
class Element:
    """An element with its attributes and its text, in which marks are decoded to characters."""

    tag: str
    attrs: dict[str, str | None]
    text: str = ""
    parts: list[str] = field(default_factory=list[str], repr=False)
    inside: list[str] = field(default_factory=list[str])
    """The classes and tags of the elements around it."""
    off: bool = False
    """Whether the element, or an element around it, is disabled."""


class Page(HTMLParser):
    """Every element of a page, in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()
        assert not self._open, f"not closed: {self._open[-1].tag}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        around = [word for each in self._open for word in (each.tag, *str(each.attrs.get("class")).split())]
        element = Element(tag, dict(attrs), inside=around)
        element.off = "disabled" in element.attrs or any(each.off for each in self._open)
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        element = self._open.pop()
        assert element.tag == tag, f"</{tag}> closes <{element.tag}>"
        element.text = "".join(element.parts)
        if self._open:
            self._open[-1].parts.append(_read(element.text) if tag == "mark" else element.text)

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].parts.append(data)

    def all(self, tag: str, **attrs: str) -> list[Element]:
        """The elements with a tag and attributes; ``class_`` is one of several."""
        wanted = {name.rstrip("_"): value for name, value in attrs.items()}
        return [
            each
            for each in self.elements
            if each.tag == tag
            and all(
                value in str(each.attrs.get(name)).split()
                if name == "class"
                else each.attrs.get(name) == value
                for name, value in wanted.items()
            )
        ]

    def texts(self) -> list[str]:
        """The whole texts in the boxes for untrusted text."""
        boxes = ("div", "span", "ol", "li", "dd", "td", "p")
        return [each.text for tag in boxes for each in self.all(tag, class_="text")]

    def fields(self) -> dict[str, list[str]]:
        """The fields that a browser would post, without the button: all that have a value and are not disabled."""
        posted: dict[str, list[str]] = {}
        chosen: str | None = None
        for each in self.elements:
            name = each.attrs.get("name")
            if each.tag == "select":
                chosen = None if each.off else name
            if each.tag == "option" and chosen is not None:  # the first one, unless another is selected
                if "selected" in each.attrs or chosen not in posted:
                    posted[chosen] = [each.attrs.get("value") or ""]
                continue
            if each.tag == "select":
                continue
            if name is None or each.tag in ("meta", "button") or each.off:
                continue
            kind = each.attrs.get("type")
            if kind in ("radio", "checkbox") and "checked" not in each.attrs:
                continue
            value = each.text.removeprefix("\n") if each.tag == "textarea" else each.attrs.get("value") or ""
            posted.setdefault(name, []).append(value.replace("\n", "\r\n"))
        return posted


def _read(mark: str) -> str:
    """The characters that a mark stands for."""
    if letters := LETTERS.fullmatch(mark):
        return letters[1]
    match = MARK.fullmatch(mark)
    assert match is not None, mark
    return (chr(int(match[2], 16)) if match[2] else SHORT[match[1]]) * int(match[3] or 1)
