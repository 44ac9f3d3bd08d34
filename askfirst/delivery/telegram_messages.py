"""Telegram messages: their text within Telegram's limits, and the stored meaning of their buttons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from askfirst.delivery.base import OPEN_LABEL, Button, Ended, Notice, heading
from askfirst.delivery.text import cut, shown
from askfirst.visible_text import visible

# A notice as a Telegram message.


TEXT_LIMIT = 4096
ALERT_LIMIT = 200
DATA_LIMIT = 64
_LABEL_LIMIT = 64
_ENDING_LIMIT = 1024
_IN_A_ROW = 3
_GAP = "\n\n"


def units(text: str) -> int:
    """How long a text is for Telegram, which counts UTF-16 code units."""
    return len(text.encode("utf-16-le")) // 2


def asking_text(notice: Notice) -> str:
    """The text of a notice, with hidden characters made visible; with its context, if both fit into a message."""
    text = shown(notice.body).strip() or f"Case {visible(notice.case_id)}"
    more = shown(notice.facts.get("context", "")).strip()
    whole = f"{text}{_GAP}{more}" if more else text
    return whole if _fits(notice, whole) else text


def pressable(notice: Notice, text: str) -> tuple[Button, ...]:
    """The buttons below this text. Approving ones are left out if the text does not show everything."""
    more = shown(notice.facts.get("context", "")).strip()
    is_whole = notice.whole and text.endswith(more) and _fits(notice, text)
    return tuple(each for each in notice.buttons if each.is_plain and (is_whole or not each.approves))


def _fits(notice: Notice, text: str) -> bool:
    """Whether the text fits into a message without a cut, together with the link."""
    return units(_GAP.join([heading(notice), text, notice.review_url or ""])) <= TEXT_LIMIT


def message(title: str, *blocks: str, link: str | None = None) -> dict[str, Any]:
    """A message: our heading, blocks of untrusted text, and the link on the last line.

    Blocks are marked as preformatted, so that Telegram renders no link, mention or command in them. If the message
    is too long, the first block is cut.
    """
    others = [*blocks[1:], link] if link else list(blocks[1:])
    room = TEXT_LIMIT - units(_GAP.join([title, "", *others]))
    shown_blocks = [cut(blocks[0], room, measure=units), *blocks[1:]]
    entities: list[dict[str, Any]] = [{"type": "bold", "offset": 0, "length": units(title)}]
    at = units(title + _GAP)
    for block in shown_blocks:
        entities.append({"type": "pre", "offset": at, "length": units(block)})
        at += units(block + _GAP)
    return {
        "text": _GAP.join([title, *shown_blocks, *([link] if link else [])]),
        "entities": entities,
        "link_preview_options": {"is_disabled": True},
    }


def ending_text(ended: Ended) -> str:
    """How the case ended, and by whom."""
    text = shown(ended.said).strip()
    by = visible(ended.by) if ended.by else ""
    return cut(f"{text} ({by})" if by and by not in text else text, _ENDING_LIMIT, measure=units)


def can_be_button(url: str) -> bool:
    """Whether a link can be a button. Telegram refuses hosts without a dot, such as localhost, and IPv6.

    It accepts a loopback IPv4 address, but a phone cannot open it. In the text it can at least be copied.
    """
    host = urlsplit(url).hostname or ""
    return "." in host and ":" not in host and not host.startswith("127.") and not host.endswith(".localhost")


def data_of(key: str, actions: Sequence[Button]) -> dict[str, str]:
    """The action of each button, by the button's callback data.

    In the data, a number replaces an action that is too long for Telegram's limit.
    """
    found: dict[str, str] = {}
    for number, button in enumerate(actions):
        data = f"hitl:{key}:{button.action}"
        if len(data.encode()) > DATA_LIMIT:
            data = f"hitl:{key}:#{number}"
        found[data] = button.action
    return found


def keyboard(
    actions: Mapping[str, str], buttons: Sequence[Button], link: str | None, label: str = OPEN_LABEL
) -> dict[str, Any]:
    """The buttons below a message: decisions first, then the link to the page."""
    labels = {button.action: cut(visible(button.label) or button.action, _LABEL_LIMIT) for button in buttons}
    row = [{"text": labels[action], "callback_data": data} for data, action in actions.items()]
    rows: list[list[dict[str, str]]] = [row[at : at + _IN_A_ROW] for at in range(0, len(row), _IN_A_ROW)]
    if link:
        rows.append([{"text": label, "url": link}])
    return {"inline_keyboard": rows}


@dataclass(frozen=True, slots=True)
class Post:
    """A message about a case: its chat, its text, and the action for each button's callback data."""

    case_id: str
    chat_id: int
    heading: str
    text: str
    actions: Mapping[str, str]
    made_at: float
    is_closed: bool = False
    shown: str | None = None
    """The digest of what the message shows. A press is bound to it."""

    def moved(self, chat_id: int) -> Post:
        """The same post in another chat."""
        return replace(self, chat_id=chat_id)

    def closed(self) -> Post:
        """The same post, marked as decided."""
        return replace(self, is_closed=True)

    def stored(self) -> dict[str, Any]:
        """The post as JSON, for `read`."""
        return asdict(self)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Post:
        """A post from the JSON of `stored`."""
        return cls(**body)
