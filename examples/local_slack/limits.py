"""The limits of Slack's messages and modals, checked as the platform checks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]

MESSAGE_BLOCKS = 50
VIEW_BLOCKS = 100
SECTION_TEXT = 3000
HEADER_TEXT = 150
BUTTON_TEXT = 75
BUTTON_VALUE = 2000
LINK = 3000
ID = 255
MESSAGE_TEXT = 40_000
UPDATED_TEXT = 4000
VIEW_TITLE = 24
METADATA = 3000
INPUT_TEXT = 3000
LABEL = 2000
OPTIONS = 100
FEW_OPTIONS = 10
OPTION_TEXT = 75
OPTION_VALUE = 150
PLACEHOLDER = 150
FIELDS = 10
FIELD_TEXT = 2000
CONFIRM = {"title": 100, "text": 300, "confirm": 30, "deny": 30}
ELEMENTS = 25


class Refusal(Exception):
    """An answer of the Web API with ``ok: false``, and its error."""

    def __init__(self, error: str, *messages: str, retry_after: int | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.retry_after = retry_after
        self.messages = list(messages)


def bad(message: str) -> Refusal:
    """A refusal of blocks."""
    return Refusal("invalid_blocks", message)


def check_message(message: Json, *, is_update: bool = False) -> None:
    """Check a message: some text or blocks, and every block within its limits."""
    text, blocks = str(message.get("text") or ""), many(message, "blocks")
    if not text and not blocks:
        raise Refusal("no_text")
    if len(text) > (UPDATED_TEXT if is_update else MESSAGE_TEXT):
        raise Refusal("msg_too_long")
    check_blocks(blocks, MESSAGE_BLOCKS)


def check_view(view: Json) -> None:
    """Check a modal."""
    if view.get("type") != "modal":
        raise Refusal("invalid_arguments", "view.type is modal")
    for part in ("title", "submit", "close"):
        if part == "title" or part in view:
            _plain(view.get(part), VIEW_TITLE, part)
    if len(view.get("private_metadata") or "") > METADATA:
        raise Refusal("invalid_arguments", "private_metadata is too long")
    if len(view.get("callback_id") or "") > ID:
        raise Refusal("invalid_arguments", "callback_id is too long")
    check_blocks(many(view, "blocks"), VIEW_BLOCKS)
    if any(block["type"] == "input" for block in view["blocks"]) and "submit" not in view:
        raise Refusal("invalid_arguments", "a modal with inputs has a submit")


def check_blocks(blocks: list[Json], most: int) -> None:
    """Check blocks, and that no block id or action id is there twice."""
    if len(blocks) > most:
        raise bad(f"no more than {most} items allowed")
    ids = [str(block["block_id"]) for block in blocks if block.get("block_id")]
    if len(set(ids)) < len(ids):
        raise bad("block_id is there twice")
    if any(len(each) > ID for each in ids):
        raise bad("block_id is too long")
    for block in blocks:
        _block(block)


def _block(block: Json) -> None:
    check = _BLOCKS.get(str(block.get("type")))
    if check is None:
        raise bad(f"unsupported block type: {block.get('type')}")
    check(block)


def _section(block: Json) -> None:
    fields = many(block, "fields")
    if "text" not in block and not fields:
        raise bad("a section has text or fields")
    if "text" in block:
        _text(block["text"], SECTION_TEXT)
    if len(fields) > FIELDS:
        raise bad("too many fields")
    for field in fields:
        _text(field, FIELD_TEXT)
    if "accessory" in block:
        _element(block["accessory"])


def _header(block: Json) -> None:
    _plain(block.get("text"), HEADER_TEXT, "header")


def _context(block: Json) -> None:
    elements = many(block, "elements")
    if not 1 <= len(elements) <= FIELDS:
        raise bad("a context has 1 to 10 elements")
    for element in elements:
        _text(element, SECTION_TEXT)


def _actions(block: Json) -> None:
    elements = many(block, "elements")
    if not 1 <= len(elements) <= ELEMENTS:
        raise bad("actions have 1 to 25 elements")
    if len({element.get("action_id") for element in elements}) < len(elements):
        raise bad("action_id is there twice")
    for element in elements:
        _element(element)


def _input(block: Json) -> None:
    _plain(block.get("label"), LABEL, "label")
    if "hint" in block:
        _plain(block["hint"], LABEL, "hint")
    _element(block["element"])


def _divider(block: Json) -> None:
    """No check: a divider, or a date picker, has no limits."""


_BLOCKS = {
    "section": _section,
    "header": _header,
    "context": _context,
    "actions": _actions,
    "input": _input,
    "divider": _divider,
}


def many(part: Json, name: str) -> list[Json]:
    """A list of parts by its name; empty if it is missing."""
    return part.get(name) or []


def _text(text: Json, most: int) -> None:
    if text.get("type") not in ("plain_text", "mrkdwn"):
        raise bad("text is plain_text or mrkdwn")
    if text["type"] == "mrkdwn" and "emoji" in text:
        raise bad("mrkdwn has no emoji")
    if not 1 <= len(text.get("text", "")) <= most:
        raise bad(f"text must be more than 0 and less than {most + 1} characters")


def _plain(text: Json | None, most: int, name: str) -> None:
    if text is None or text.get("type") != "plain_text":
        raise bad(f"{name} is plain_text")
    _text(text, most)


def _element(element: Json) -> None:
    if len(element.get("action_id") or "") > ID:
        raise bad("action_id is too long")
    if "confirm" in element:
        for part, most in CONFIRM.items():
            _plain(element["confirm"].get(part), most, f"confirm.{part}")
    if "placeholder" in element:
        _plain(element["placeholder"], PLACEHOLDER, "placeholder")
    check = _ELEMENTS.get(str(element.get("type")))
    if check is None:
        raise bad(f"unsupported element: {element.get('type')}")
    check(element)


def _button(button: Json) -> None:
    _plain(button.get("text"), BUTTON_TEXT, "button")
    if len(button.get("value") or "") > BUTTON_VALUE:
        raise bad("value is too long")
    if "url" in button and (
        len(button["url"]) > LINK or urlsplit(str(button["url"])).scheme not in ("http", "https")
    ):
        raise bad("url has to be a web address of up to 3000 characters")
    if button.get("style") not in (None, "primary", "danger"):
        raise bad("style is primary or danger")


def _text_input(element: Json) -> None:
    if len(element.get("initial_value") or "") > INPUT_TEXT:
        raise bad("initial_value is too long")
    if not 1 <= element.get("max_length", 1) <= INPUT_TEXT:
        raise bad("max_length is 1 to 3000")


def _number(element: Json) -> None:
    if "is_decimal_allowed" not in element:
        raise bad("number_input says whether decimals are allowed")


def _select(element: Json) -> None:
    _options(element, OPTIONS)


def _boxes(element: Json) -> None:
    _options(element, FEW_OPTIONS)


def _options(element: Json, most: int) -> None:
    options = many(element, "options")
    if not 1 <= len(options) <= most:
        raise bad(f"1 to {most} options")
    for option in options:
        _text(option["text"], OPTION_TEXT)
        if not 1 <= len(option["value"]) <= OPTION_VALUE:
            raise bad("an option's value has 1 to 150 characters")
    values = {option["value"] for option in options}
    if len(values) < len(options):
        raise bad("two options have the same value")
    for chosen in [element.get("initial_option"), *many(element, "initial_options")]:
        if chosen is not None and chosen not in options:
            raise bad("the initial option has to be one of the options")


_ELEMENTS = {
    "button": _button,
    "plain_text_input": _text_input,
    "number_input": _number,
    "datepicker": _divider,
    "static_select": _select,
    "multi_static_select": _select,
    "checkboxes": _boxes,
    "radio_buttons": _boxes,
}


def elements_of(message: Json) -> Iterator[Json]:
    """Every button and input of a message or modal."""
    for block in many(message, "blocks"):
        if block["type"] == "actions":
            yield from many(block, "elements")
        if block["type"] == "input":
            yield block["element"]
        if "accessory" in block:
            yield block["accessory"]


def text_of(message: Json) -> str:
    """The text that a person reads in a message or modal: that of the blocks, or the text if there are no blocks."""
    blocks = many(message, "blocks")
    if not blocks:
        return str(message.get("text") or "")
    lines: list[str] = []
    for block in blocks:
        texts: list[Json | None] = [block.get("text"), *many(block, "fields")]
        if block["type"] == "context":
            texts += many(block, "elements")
        if block["type"] == "input":
            texts += [block["label"], block.get("hint")]
        lines += [str(each["text"]) for each in texts if each]
    return "\n".join(lines)
