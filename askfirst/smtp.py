"""E-mail: composing a mail, and sending it to a server by SMTP over an encrypted connection."""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit

from askfirst.errors import MissingExtra
from askfirst.loopback import LOOPBACK_HOSTS

SMTP_VARIABLE = "ASKFIRST_SMTP_URL"
"""The environment variable with the URL of the mail server."""
SMTP_SECONDS = 15.0
"""The time-out for each reply of the server; sending a whole mail may take twice as long."""
_PORTS = {"smtp": 587, "smtps": 465}
_LACKS = {
    "AUTH extension": "it offers no login (AUTH) on this port: leave user and password out of the address, with "
    "?from= for the sender, or name the port where it does, usually 587, or smtps:// for 465",
    "STARTTLS extension": "it offers no encryption (STARTTLS) on this port: name the port where it does, usually "
    "587, or smtps:// for 465, or allow mail in clear with in_clear",
}
"""For each capability that a server may lack, named as in the library's error: what to do about it."""


class NotSent(Exception):
    """The server did not accept a mail. The server's text is not kept, because it may quote the mail."""

    def __init__(self, kind: str, code: int | None, *, permanent: bool) -> None:
        super().__init__(kind if code is None else f"{kind}, {code}")
        self.kind = kind
        """The library's name for the error; or, if the server lacks a capability, which one and what to do about
        it."""
        self.code = code
        """The server's reply code, if it gave one."""
        self.permanent = permanent
        """Whether a retry would fail again, because something has to be corrected first."""


class SmtpServer:
    """The mail server of a URL like ``smtp://user:password@host:587?from=me@a.example``.

    ``smtps`` is encrypted from the start. ``smtp`` is encrypted by STARTTLS; if the server does not support that,
    nothing is sent. A server on this machine, or one with ``in_clear``, may also be used without encryption. Without
    ``from``, the user has to be an e-mail address. ``tls`` says which certificate authorities are trusted, by default
    the well-known ones. Raises ``ValueError``, which does not quote the URL, because the URL may hold a password.
    """

    extra = "delivery"
    """The extra that installs the SMTP library."""

    def __init__(
        self,
        url: str,
        *,
        sender: str | None = None,
        in_clear: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        try:
            at = urlsplit(url)
            port = at.port
        except ValueError:
            at, port = urlsplit(""), None
        user = unquote(at.username) if at.username else None
        self.sender = sender or parse_qs(at.query).get("from", [user or ""])[0]
        if at.scheme not in _PORTS or not at.hostname or not is_mailable(self.sender):
            raise ValueError(
                "is like smtp://user:password@host:587 or smtps://host, with ?from=me@a.example "
                "unless the user is an address; an address has no =? and no blanks in it"
            )
        self.host = at.hostname
        self._implicit = at.scheme == "smtps"
        self._port = port or _PORTS[at.scheme]
        self._user, self._password = user, unquote(at.password) if at.password else None
        self._in_clear = not self._implicit and (in_clear or at.hostname in LOOPBACK_HOSTS)
        self._tls = tls

    async def hand_over(self, mail: Mail, *, domain: str) -> int:
        """Send a mail to the server; returns how many of its recipients the server refused.

        ``domain`` is our name in the SMTP greeting. Raises `NotSent`, also if all recipients were refused.
        """
        try:
            import aiosmtplib
        except ModuleNotFoundError as error:
            raise MissingExtra("Sending mail", self.extra) from error
        ascii_only = "".join((mail.sender, *mail.to)).isascii()
        if self._tls is None:  # reading all the authorities' certificates takes a while
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        try:
            async with asyncio.timeout(2 * SMTP_SECONDS):
                refused, _ = await aiosmtplib.send(
                    mail.content,
                    sender=mail.sender,
                    recipients=list(mail.to),
                    mail_options=None if ascii_only else ["SMTPUTF8"],
                    hostname=self.host,
                    port=self._port,
                    username=self._user,
                    password=self._password,
                    use_tls=self._implicit,
                    # None means: encrypt if the server supports it.
                    start_tls=False if self._implicit else None if self._in_clear else True,
                    tls_context=self._tls,
                    local_hostname=domain,  # otherwise the library would look one up in the network
                    timeout=SMTP_SECONDS,
                )
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            problem = _not_sent(error)
        else:
            return len(refused)
        raise problem


def _not_sent(error: Exception) -> NotSent:
    import aiosmtplib

    kind = type(error).__name__
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        codes = [each.code for each in error.recipients]
        return NotSent(kind, codes[0], permanent=all(code >= 500 for code in codes))
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return NotSent(kind, error.code, permanent=error.code >= 500)
    lack = next((said for words, said in _LACKS.items() if words in str(error)), None)
    if type(error) is aiosmtplib.SMTPException and lack is not None:
        return NotSent(lack, None, permanent=True)
    is_transient = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
    return NotSent(kind, None, permanent=not is_transient)


# Composing a mail as bytes: every mail program shows exactly the given text.


_ADDRESS = re.compile(r'[^@\s()<>\[\]:;,"\\]{1,64}@[^@\s()<>\[\]:;,"\\]{1,255}')
_ENCODED_WORD = "=?"
_WORD_BYTES = 39
"""The bytes of text in each encoded word: a line that begins with ``Subject: `` then has at most 76 characters."""
_LINE = 76
_LONGEST_LINE = 998
_BODY = SMTP.clone(cte_type="7bit")


class NotComposed(ValueError):
    """A mail cannot be written. Its content is not quoted, because it may be a secret."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail that is ready to be sent."""

    sender: str
    to: tuple[str, ...]
    content: bytes = field(repr=False)


def is_mailable(address: str) -> bool:
    """Whether an address is safe in a mail's header.

    It has no blank, quote, bracket or comma, no invisible character, and no ``=?``, which mail programs decode.
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
    """Write a mail. Raises `NotComposed`, for an invalid address, or a header that would be more than one line.

    Only the subject may hold untrusted text. Plain ASCII is written unchanged; other text is written as encoded words
    (RFC 2047) by our own code. The standard library is not used for the subject, because it decodes text that looks
    like an encoded word, which can inject line ends and hidden characters (CVE-2024-6923).
    """
    if not to or not all(is_mailable(each) for each in (sender, *to)):
        raise NotComposed("an address cannot stand in a mail's header")
    lines = [
        _header("From", sender),
        _header("To", ",\r\n ".join(to)),
        f"Subject: {_encoded_subject(subject)}",
        _header("Date", formatdate()),
        _header("Message-ID", message_id),
        _header("Auto-Submitted", "auto-generated"),
        *(_header(name, value) for name, value in (headers or {}).items()),
    ]
    try:
        body = EmailMessage(policy=_BODY)
        body.set_content(text)
        if html is not None:
            body.add_alternative(html, subtype="html")
        content = "".join(f"{line}\r\n" for line in lines).encode() + body.as_bytes()
    except UnicodeError:
        raise NotComposed("the text is not valid Unicode") from None
    return Mail(sender, tuple(to), content)


def _header(name: str, value: str) -> str:
    """A header line with trusted text. Only a list of addresses may be folded into several lines."""
    line = f"{name}: {value}"
    each = line.split(",\r\n ")
    if _ENCODED_WORD in line or not all(part.isprintable() and len(part) < _LONGEST_LINE for part in each):
        raise NotComposed(f"the header {name} cannot be written")
    return line


def _encoded_subject(text: str) -> str:
    """The subject encoded, so that mail programs decode it to exactly this text."""
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
            raise NotComposed("the subject is not valid Unicode") from None
        if len(held) + len(each) > _WORD_BYTES:
            words.append(_encoded_word(held))
            held = b""
        held += each
    return "\r\n ".join([*words, _encoded_word(held)])


def _encoded_word(part: bytes) -> str:
    return f"=?utf-8?b?{b64encode(part).decode()}?="


# An e-mail address as it is shown to anybody who has the link.


def masked_address(address: str) -> str:
    """An e-mail address with its name hidden: ``a***@example.com``."""
    name, _, domain = address.rpartition("@")
    return f"{name[:1]}***@{domain}"
