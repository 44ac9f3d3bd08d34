"""Contents: what a message says about a decision, independent of a platform's layout."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from askfirst.display import Risk
from askfirst.visible_text import visible

_PRESSABLE_RISKS = ("low", "normal")
_LINE_ENDS = re.compile(r"\r\n|\n")
_INDENT = "\n    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The parts of a message about a decision, in reading order.

    Every text comes from an agent, a tool's author or a caller, and is untrusted. A delivery makes hidden characters
    visible (`askfirst.delivery.text.shown`), escapes the text for its platform, and renders no link, mention or
    markup in it. Nothing was cut, unless ``is_whole`` is False.
    """

    sentence: str
    """The decision in one line: the tool author's sentence with the real values, or else the asker's words."""
    is_quoted: bool = False
    """Whether the sentence is in the asker's own words, which nobody checked. It is then put in quotation marks."""
    case_type: str
    """``approval``, ``confirmation``, ``selection``, ``input``, ``escalation``."""
    shown: str
    """The digest of what is shown. A press is bound to it (`Press.shown`)."""
    asker: str | None = None
    """Who asks: the agent, or the service that opened the case."""
    on_behalf: str | None = None
    facts: tuple[tuple[str, str], ...] = ()
    """Label and value of everything that is decided on: every argument of the call, uncut."""
    important: tuple[tuple[str, str], ...] = ()
    """Label and value of the most important facts, each short and in one line."""
    is_brief: bool = False
    """Whether the message has only the most important facts; the others are on the page."""
    consequences: tuple[str, ...] = ()
    reason: str | None = None
    """Why a person is asked, in the policy's words."""
    risk: Risk = "normal"
    expires_at: float | None = None
    """The deadline in seconds since 1970 (UTC); None if there is none."""
    silence: str = ""
    """A sentence about what happens if nobody decides by the deadline."""
    is_whole: bool = False
    """Whether ``sentence`` and ``facts`` show everything that is decided on."""

    @property
    def said(self) -> str:
        """The sentence; in quotation marks if it is in the asker's own words."""
        return f"“{self.sentence}”" if self.is_quoted else self.sentence

    @property
    def subject(self) -> str:
        """The subject of a mail: the sentence, then who asks."""
        return self.said if self.asker is None else f"{self.said} · {self.asker} asks"

    def brief(self, *, with_facts: bool = True) -> Contents:
        """The same in a few lines, for people who decide on the page.

        It does not show everything, so no button can approve.
        """
        facts = self.important if with_facts else ()
        return replace(self, facts=facts, is_whole=False, is_brief=True)

    @property
    def may_be_pressed(self) -> bool:
        """Whether one press may approve: the message is whole, and the risk is low or normal."""
        return self.is_whole and self.risk in _PRESSABLE_RISKS

    @property
    def deadline(self) -> str:
        """The deadline, and what happens if nobody decides by then."""
        if self.expires_at is None:
            return self.silence
        until = datetime.fromtimestamp(self.expires_at, UTC).strftime("%d %b %Y, %H:%M UTC").lstrip("0")
        return f"Open until {until}. {self.silence}".strip()

    @property
    def who(self) -> str:
        """Who asks, and on whose behalf; empty if neither is known."""
        who = "" if self.asker is None else f"Asked by {visible(self.asker)}"
        if self.on_behalf is not None:
            who = f"{who or 'Asked'} on behalf of {visible(self.on_behalf)}"
        return who

    @property
    def paragraphs(self) -> list[str]:
        """The whole message as paragraphs of plain text, the sentence first.

        Further lines of an untrusted text are indented, so that they cannot pass for lines of ours.
        """
        paragraphs = [
            _indented(self.said),
            "\n".join(f"{visible(label)}: {_indented(value)}" for label, value in self.facts),
            "\n".join(f"- {_indented(each)}" for each in self.consequences),
            "" if self.reason is None else f"Why you are asked: {_indented(self.reason)}",
            self._risk,
            self.who,
            self.deadline,
        ]
        return [paragraph for paragraph in paragraphs if paragraph]

    @property
    def text(self) -> str:
        """The paragraphs as one text, for platforms without a layout of their own; three lines if it is brief."""
        if not self.is_brief:
            return "\n\n".join(self.paragraphs)
        facts = [f"{visible(label)}: {value}" for label, value in self.facts]
        lines = [
            _indented(self.said),
            " · ".join(part for part in (*facts, *map(_indented, self.consequences), self._risk) if part),
            ". ".join(part for part in (self.who, self.deadline) if part),
        ]
        return "\n".join(line for line in lines if line)

    @property
    def _risk(self) -> str:
        return "" if self.risk in _PRESSABLE_RISKS else f"Risk: {self.risk}"


def _indented(text: str) -> str:
    return _LINE_ENDS.sub(_INDENT, text)
