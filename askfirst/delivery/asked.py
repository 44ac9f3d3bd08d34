"""Asked: what a message says about a decision, before a platform lays it out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from askfirst.display import Risk
from askfirst.visible_text import visible

_OPEN_RISKS = ("low", "normal")
_LINE_ENDS = re.compile(r"\r\n|\n")
_INDENT = "\n    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person has to know to decide, in the order in which it is read.

    Every text is data that an agent, a tool's author or a caller wrote: a delivery makes it visible and escapes it
    for its platform (`askfirst.delivery.text.shown`), and makes no link, mention or markup of it. Nothing in it was
    cut, unless ``is_whole`` is False.
    """

    sentence: str
    """The decision in a line, in the tool author's words with the real values; else what is asked."""
    case_type: str
    """``approval``, ``confirmation``, ``selection``, ``input``, ``escalation``."""
    shown: str
    """The digest of what is shown. An answer is bound to it: `Press.shown` names it."""
    asker: str | None = None
    """Who asks: the agent, or the service that opened the case."""
    on_behalf: str | None = None
    facts: tuple[tuple[str, str], ...] = ()
    """Label and value of everything that is decided on: every argument of the call, whole."""
    consequences: tuple[str, ...] = ()
    reason: str | None = None
    """Why a person is asked, in the policy's words."""
    risk: Risk = "normal"
    expires_at: float | None = None
    """The deadline in seconds since 1970 (UTC); None where there is none."""
    silence: str = ""
    """What it means if nobody decides until then, as a sentence."""
    is_whole: bool = False
    """Whether all that is decided on stands in ``sentence`` and ``facts``."""

    @property
    def may_be_pressed(self) -> bool:
        """Whether one press may approve it, if the message is whole: not where the risk is high."""
        return self.is_whole and self.risk in _OPEN_RISKS

    @property
    def deadline(self) -> str:
        """Until when it can be decided, and what silence means."""
        if self.expires_at is None:
            return self.silence
        until = datetime.fromtimestamp(self.expires_at, UTC).strftime("%d %b %Y, %H:%M UTC").lstrip("0")
        return f"Open until {until}. {self.silence}".strip()

    @property
    def text(self) -> str:
        """All of it as plain text of several paragraphs, for platforms that have no layout of their own.

        Only words of ours begin a line: what others wrote goes on indented, so that it cannot pass for them.
        """
        who = "" if self.asker is None else f"Asked by {visible(self.asker)}"
        if self.on_behalf is not None:
            who = f"{who or 'Asked'} on behalf of {visible(self.on_behalf)}"
        paragraphs = [
            _indented(self.sentence),
            "\n".join(f"{visible(label)}: {_indented(value)}" for label, value in self.facts),
            "\n".join(f"- {_indented(each)}" for each in self.consequences),
            "" if self.reason is None else f"Why you are asked: {_indented(self.reason)}",
            "" if self.risk in _OPEN_RISKS else f"Risk: {self.risk}",
            who,
            self.deadline,
        ]
        return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _indented(text: str) -> str:
    return _LINE_ENDS.sub(_INDENT, text)
