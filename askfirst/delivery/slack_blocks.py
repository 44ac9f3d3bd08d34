"""A notice as Slack blocks: untrusted texts are plain text within Slack's limits, and a cut is noted.

Slack renders no mention, link, markup or emoji code in plain text (``plain_text`` without emoji).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from askfirst.delivery.base import APPROVE_LABEL, OPEN_LABEL, Button, Ended, Notice, heading, is_web_link
from askfirst.delivery.text import cut, shown
from askfirst.visible_text import visible

Block = dict[str, Any]

SECTION_LIMIT = 3000
TEXT_LIMIT = 9000
"""The longest text of a message. Slack accepts more, but people do not read it."""
_LABEL_LIMIT = 75
_LINK_LIMIT = 3000
_CONTEXT_LIMIT = 1000
_FALLBACK_LIMIT = 150
_ENDING_LIMIT = 2000
_IN_A_ROW = 5
ACTION = "askfirst"
"""The prefix of the action ids of our buttons."""
PAGE_ACTION = f"{ACTION}:page"
CONFIRM_TEXT = 300


def plain(text: str) -> Block:
    """A text object of plain text: Slack renders no markup in it."""
    return {"type": "plain_text", "text": text, "emoji": False}


def section(text: str) -> Block:
    """A paragraph."""
    return {"type": "section", "text": plain(text)}


def context(text: str) -> Block:
    """A line in small letters."""
    return {"type": "context", "elements": [plain(cut(text, _CONTEXT_LIMIT))]}


def fallback(text: str) -> str:
    """The text of a notification. Slack parses markup there, so the text is escaped."""
    return cut(visible(text), _FALLBACK_LIMIT).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def paragraphs(notice: Notice) -> list[str]:
    """The paragraphs of a message, with hidden characters made visible."""
    contents = notice.contents
    if contents is None:
        more = shown(notice.facts.get("context", "")).strip()
        return [
            each for each in (shown(notice.body).strip() or f"Case {visible(notice.case_id)}", more) if each
        ]
    facts = "\n".join(f"{visible(label)}: {_marked_value(value)}" for label, value in contents.facts)
    effects = "\n".join(f"• {_marked_value(each)}" for each in contents.consequences)
    reason = "" if contents.reason is None else f"Why you are asked: {_marked_value(contents.reason)}"
    risk = "" if contents.risk in ("low", "normal") else f"Risk: {contents.risk}"
    return [each for each in (shown(contents.sentence).strip(), facts, effects, reason, risk) if each.strip()]


def _marked_value(value: str) -> str:
    """A value with a mark before its second and further lines, so that they cannot pass for lines of ours."""
    first, *more = shown(value).split("\n")
    return "\n".join([first, *(f"│ {line}" for line in more)])


def is_cut(notice: Notice) -> bool:
    """Whether the notice is too long for the message and has to be cut."""
    return len("\n".join(paragraphs(notice))) > TEXT_LIMIT


def pressable(notice: Notice) -> tuple[Button, ...]:
    """The buttons of the message. Approving ones are left out if the message does not show everything."""
    if notice.whole and not is_cut(notice):
        return notice.buttons
    return tuple(each for each in notice.buttons if not each.approves)


def body_blocks(notice: Notice) -> list[Block]:
    """The heading, the text, and who asks: the blocks that stay when the case is decided."""
    title = heading(notice)
    text = cut("\n".join(paragraphs(notice)), TEXT_LIMIT)
    blocks = [context(title)]
    blocks += text_blocks(text)
    who = _asker(notice)
    return [*blocks, context(who)] if who else blocks


def _deadline_blocks(notice: Notice) -> list[Block]:
    """The deadline. It is removed when the case is decided."""
    said = "" if notice.contents is None else shown(notice.contents.deadline)
    return [context(said)] if said else []


def _asker(notice: Notice) -> str:
    contents = notice.contents
    if contents is None or contents.asker is None:
        return ""
    behalf = "" if contents.on_behalf is None else f" on behalf of {visible(contents.on_behalf)}"
    return f"Asked by {visible(contents.asker)}{behalf}"


def text_blocks(text: str) -> list[Block]:
    """A plain text as blocks."""
    return [section(each) for each in _chunks(text)]


def _chunks(text: str) -> list[str]:
    """A text in parts that each fit into a section, split at the ends of lines or words if possible."""
    parts: list[str] = []
    while text:
        if len(text) <= SECTION_LIMIT:
            parts.append(text)
            break
        at = text.rfind("\n", 1, SECTION_LIMIT)
        if at <= 0:
            at = text.rfind(" ", 1, SECTION_LIMIT) + 1 or SECTION_LIMIT
        parts.append(text[:at])
        text = text[at:].removeprefix("\n")
    return [each if each.strip() else "·" for each in parts]


def action_blocks(key: str, buttons: Sequence[Button], notice: Notice) -> list[Block]:
    """The buttons: decisions first, then the link to the page."""
    elements = [_button(key, number, button) for number, button in enumerate(buttons)]
    link = notice.review_url
    if link and len(link) <= _LINK_LIMIT and is_web_link(link):
        left_out = any(each.approves for each in notice.buttons) and not any(
            each.approves for each in buttons
        )
        label = APPROVE_LABEL if left_out else OPEN_LABEL
        elements.append({"type": "button", "action_id": PAGE_ACTION, "text": plain(label), "url": link})
    return [
        {"type": "actions", "elements": elements[at : at + _IN_A_ROW]}
        for at in range(0, len(elements), _IN_A_ROW)
    ]


def _button(key: str, number: int, button: Button) -> Block:
    said: Block = {
        "type": "button",
        "action_id": f"{ACTION}:{number}",
        "text": plain(cut(visible(button.label) or button.action, _LABEL_LIMIT)),
        "value": key,
    }
    if not button.fields and button.approves:
        said["style"] = "primary"
    elif button.action in ("reject", "abort"):
        said["style"] = "danger"
    if button.confirm is not None:
        said["confirm"] = {
            "title": plain("Are you sure?"),
            "text": plain(cut(shown(button.confirm), CONFIRM_TEXT)),
            "confirm": plain("Yes"),
            "deny": plain("No"),
        }
    return said


def asking_message(notice: Notice, key: str, buttons: Sequence[Button]) -> dict[str, Any]:
    """The message for an open case: text and blocks, without link previews."""
    blocks = [*body_blocks(notice), *_deadline_blocks(notice), *action_blocks(key, buttons, notice)]
    return _message(heading(notice), blocks)


def decided_message(blocks: Sequence[Mapping[str, Any]], title: str, ending: str) -> dict[str, Any]:
    """The message for an ended case: without buttons, and with how the case ended."""
    kept = [dict(each) for each in blocks if each.get("type") != "actions"]
    return _message(title, [*kept, {"type": "divider"}, section(cut(ending, _ENDING_LIMIT) or "Decided.")])


def _message(title: str, blocks: list[Block]) -> dict[str, Any]:
    return {"text": fallback(title), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def ending_text(ended: Ended) -> str:
    """How a case ended, by whom, and the outcome of the call."""
    text = shown(ended.text).strip()
    by = visible(ended.by) if ended.by else ""
    line = f"{text} ({by})" if by and by not in text else text
    return f"{line}\n{shown(ended.outcome).strip()}" if ended.outcome else line
