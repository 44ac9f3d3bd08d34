"""A case in a few lines of plain text: for mails, messengers and whoever else brings it to a person."""

from __future__ import annotations

from dataclasses import dataclass

from askfirst.display import LONGEST_VALUE, Risk, filled, value_text
from askfirst.service.case import Case
from askfirst.service.pages.decision import readable, risk_of, words_for
from askfirst.visible_text import visible

MOST_FACTS = 3
_LONGEST_SENTENCE = 300


@dataclass(frozen=True, slots=True)
class NoticeText:
    """What a message says of a case. Everything in it is one line, in which nothing hides or acts.

    ``is_trusted`` says whether the sentence is the tool author's; else it is the agent's, or the caller's, own words.
    """

    sentence: str
    is_trusted: bool
    asker: str | None
    facts: tuple[tuple[str, str], ...]
    """Up to three important facts: label and value. Leave them out where the operator does not allow arguments."""
    risk: Risk

    @property
    def subject(self) -> str:
        """The subject of a mail: the sentence, then who asks."""
        return self.sentence if self.asker is None else f"{self.sentence} · {self.asker} asks"


def notice_text(case: Case, key_name: str | None = None) -> NoticeText:
    """The words for a message about a case; ``key_name`` is the name of the API key that opened it."""
    words, payload = words_for(case), case.payload
    call = None if payload is None else payload.shown_call
    args = case.context if call is None else call[1]
    given_labels, given_formats = words.get("labels"), words.get("formats")
    labels = {k: str(v) for k, v in given_labels.items()} if isinstance(given_labels, dict) else {}
    formats = {k: str(v) for k, v in given_formats.items()} if isinstance(given_formats, dict) else {}
    templates = words.get("templates")
    template = templates.get("sentence") if isinstance(templates, dict) else None
    said = words.get("sentence") or words.get("title")
    trusted = call is not None
    if isinstance(template, str):
        sentence = filled(template, args, formats)
    elif isinstance(said, str) and trusted:
        sentence = said
    else:
        sentence = readable(call[0]) if call is not None else case.prompt
    important = words.get("important")
    named = [str(it) for it in important if it in args][:MOST_FACTS] if isinstance(important, list) else []
    facts = tuple(
        (_line(labels.get(name, readable(name))), _line(value_text(args[name], formats.get(name, ""))))
        for name in named
    )
    return NoticeText(
        _line(sentence, _LONGEST_SENTENCE), trusted, _asker(case, key_name), facts, risk_of(case)
    )


def _asker(case: Case, key_name: str | None) -> str | None:
    if case.payload is None:
        return None if key_name is None else _line(key_name)
    path = (case.payload.details or {}).get("agent_path")
    return _line(str(path[-1])) if isinstance(path, list) and path else None


def _line(text: str, most: int = LONGEST_VALUE) -> str:
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
