"""A mail as the bytes that are sent. What a reader's program shows of it is the text that was put into it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

_ADDRESS = re.compile(r'[^@\s()<>\[\]:;,"\\]{1,64}@[^@\s()<>\[\]:;,"\\]{1,255}')
_ENCODED_WORD = "=?"
_WORD_BYTES = 39
"""Of text in each encoded word: with ``Subject: `` in front, its line is within the 76 characters allowed."""
_LINE = 76
_LONGEST_LINE = 998
_BODY = SMTP.clone(cte_type="7bit")


class NotComposed(ValueError):
    """A mail that cannot be written. What was to stand in it is not quoted: it may be a secret."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail that is ready to be sent."""

    sender: str
    to: tuple[str, ...]
    content: bytes = field(repr=False)


def is_mailable(address: str) -> bool:
    """Whether an address can stand in a mail's header and mean there what it is, and nothing else.

    No blank, quote, bracket or comma, nothing that is not seen, and no ``=?``: mail programs decode that.
    """
    return _ADDRESS.fullmatch(address) is not None and address.isprintable() and _ENCODED_WORD not in address


def compose(
    sender: str,
    to: Sequence[str],
    subject: str,
    text: str,
    *,
    message_id: str,
    headers: Mapping[str, str] | None = None,
    html: str | None = None,
) -> Mail:
    """Write a mail. Raises `NotComposed`, for an address that is none, or a header that would not be one line.

    Only the subject may hold text of others. It is written as it is where every mail program reads it so, else
    in encoded words (RFC 2047) of our own. The library for headers is not used for that: it decodes what
    looks like an encoded word, and what comes out are line ends and hidden characters (CVE-2024-6923).
    """
    if not to or not all(is_mailable(each) for each in (sender, *to)):
        raise NotComposed("an address cannot stand in a mail's header")
    lines = [
        _plain("From", sender),
        _plain("To", ",\r\n ".join(to)),
        f"Subject: {_encoded(subject)}",
        _plain("Date", formatdate()),
        _plain("Message-ID", message_id),
        _plain("Auto-Submitted", "auto-generated"),
        *(_plain(name, value) for name, value in (headers or {}).items()),
    ]
    try:
        body = EmailMessage(policy=_BODY)
        body.set_content(text)
        if html is not None:
            body.add_alternative(html, subtype="html")
        content = "".join(f"{line}\r\n" for line in lines).encode() + body.as_bytes()
    except UnicodeError:
        raise NotComposed("the text is no valid Unicode") from None
    return Mail(sender, tuple(to), content)


def _plain(name: str, value: str) -> str:
    """A header of our own making; only a list of addresses has more than one line."""
    line = f"{name}: {value}"
    each = line.split(",\r\n ")
    if _ENCODED_WORD in line or not all(part.isprintable() and len(part) < _LONGEST_LINE for part in each):
        raise NotComposed(f"the header {name} cannot be written")
    return line


def _encoded(text: str) -> str:
    """A text for the subject, so that what is decoded is the text, whatever it holds."""
    if text.isascii() and not text.isprintable():
        raise NotComposed("a subject is one line of characters that can be seen")
    short = len(f"Subject: {text}") <= _LINE
    if text.isascii() and short and _ENCODED_WORD not in text and " ".join(text.split()) == text:
        return text
    words: list[str] = []
    held = b""
    for char in text:
        try:
            each = char.encode()
        except UnicodeEncodeError:
            raise NotComposed("the subject is no valid Unicode") from None
        if len(held) + len(each) > _WORD_BYTES:
            words.append(_word(held))
            held = b""
        held += each
    return "\r\n ".join([*words, _word(held)])


def _word(part: bytes) -> str:
    return f"=?utf-8?b?{b64encode(part).decode()}?="
