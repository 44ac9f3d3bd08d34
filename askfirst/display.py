"""How an action is shown to people: the words that its author wrote, with the values of the call in them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from askfirst.errors import InvalidTool
from askfirst.formats import ENGLISH, Style, formatted, is_known, style_for
from askfirst.messages import JsonObject
from askfirst.visible_text import visible
from askfirst.wording import Wording, in_languages, languages_of, texts_of, wording_faults, wording_in

logger = logging.getLogger("askfirst")

Risk = Literal["low", "normal", "high", "critical"]
RISKS: tuple[Risk, ...] = ("low", "normal", "high", "critical")
CONSEQUENCES = ("money", "irreversible", "production", "external", "data", "access")
"""The consequences that a page has words for, besides ``people:N`` and ``custom:text``."""
LONGEST_VALUE = 60
"""The most characters of a value in a sentence."""
_END = 20
"""So many characters of the end of a long value are shown."""
LONGEST_BUTTON = 24
"""The most characters of a button."""
MOST_STEPS = 20
"""The most steps shown of what the agent did before a call."""
_PLACE = re.compile(r"\{([A-Za-z_]\w*)((?::[\w,.%/ -]+)*)\}")
_CONSEQUENCE = re.compile(r"people:\d{1,9}|custom:[^\n]{1,60}")
_LONGEST_WORDS = 500
_LONGEST_HINT = 200
_MOST_HINTS = 20
_LONGEST_STEP = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The author's words for an action. None of them comes from a model.

    ``sentence``, ``approve`` (the button) and ``done_sentence`` (the heading once the call ran, "Paid back ...") may
    hold arguments, with a format: ``{cents:money:EUR}``. ``labels`` and ``formats`` are by argument, ``important``
    names the arguments that are shown first. ``risk`` is a level, or a function of the arguments that returns one.
    ``consequences`` are some of `CONSEQUENCES`, ``people:N`` or ``custom:text``. ``undo`` says how to reverse the
    effect, ``help_url`` is a page about how to decide.

    Each text may be given in several languages (`Wording`).
    """

    title: Wording | None = None
    sentence: Wording | None = None
    approve: Wording | None = None
    done_sentence: Wording | None = None
    labels: Mapping[str, Wording] = field(default_factory=dict[str, Wording])
    formats: Mapping[str, str] = field(default_factory=dict[str, str])
    important: Sequence[str] = ()
    risk: Risk | Callable[[Mapping[str, Any]], Risk] | None = None
    consequences: Sequence[Wording] = ()
    undo: Wording | None = None
    help_url: str | None = None
    description: str | None = None
    """What the tool does, from its docstring."""
    hints: Mapping[str, str] = field(default_factory=dict[str, str])
    """What arguments mean, by argument: the descriptions of the tool's parameters."""

    def check(self, tool_name: str, parameters: Sequence[str] | None) -> None:
        """Raise `InvalidTool` for words that cannot be shown, before anybody is asked.

        ``parameters`` are the names of the tool's arguments; None if they are unknown, as with another framework's
        tool.
        """
        for fault in self._faults(parameters):
            raise InvalidTool(tool_name, fault)

    def _faults(self, parameters: Sequence[str] | None) -> list[str]:
        known = "none" if not parameters else ", ".join(parameters)
        if faults := self._language_faults():
            return faults
        named, faults = self._placed()
        for name, given in (("labels", self.labels), ("formats", self.formats)):
            named += [(name, key) for key in given]
        named += [("important", key) for key in self.important]
        if parameters is not None:
            strange = [(name, key) for name, key in named if key not in parameters]
            faults += [f"{name} names {key!r}, but the arguments are: {known}" for name, key in strange]
        for key, form in self.formats.items():
            faults += _format_faults(f"formats[{key!r}]", form)
        if self.risk is not None and not callable(self.risk) and self.risk not in RISKS:
            faults.append(
                f"risk is one of {', '.join(RISKS)}, or a function of the arguments, not {self.risk!r}"
            )
        consequences = [text for it in self.consequences for text in texts_of(it)]
        faults += [_consequence_fault(it) for it in consequences if not is_consequence(it)]
        if self.help_url is not None and not is_link(self.help_url):
            faults.append(f"help_url is an https address, not {self.help_url!r}")
        return faults

    def _placed(self) -> tuple[list[tuple[str, str]], list[str]]:
        """The arguments that the sentences name, each with its sentence; and the faults of their placeholders."""
        named: list[tuple[str, str]] = []
        faults: list[str] = []
        for name in _TEMPLATES:
            for words in texts_of(getattr(self, name)):
                for place in _PLACE.finditer(words):
                    named.append((name, place[1]))
                    faults += _format_faults(name, place[2].removeprefix(":"))
                if re.search(r"[{}]", _PLACE.sub("", words)):
                    faults.append(
                        f"{name} has a brace that is not a placeholder: write {{argument}} or {{argument:format}}"
                    )
        return named, faults

    def _language_faults(self) -> list[str]:
        faults: list[str] = []
        for name in _TEXTS:
            if (given := getattr(self, name)) is not None:
                faults += wording_faults(name, given)
        for key, given in self.labels.items():
            faults += wording_faults(f"labels[{key!r}]", given)
        for given in self.consequences:
            faults += wording_faults("a consequence", given)
        return faults

    @property
    def languages(self) -> list[str]:
        """The languages that some of the texts are given in."""
        return languages_of(
            *(getattr(self, name) for name in _TEXTS), *self.labels.values(), *self.consequences
        )

    def in_language(self, tag: str | None) -> Display:
        """The words in one language. A text that lacks the language is in its default language."""
        texts: dict[str, Any] = {
            name: wording_in(given, tag) for name in _TEXTS if (given := getattr(self, name)) is not None
        }
        labels: dict[str, Wording] = {key: wording_in(given, tag) for key, given in self.labels.items()}
        return replace(
            self, **texts, labels=labels, consequences=[wording_in(it, tag) for it in self.consequences]
        )

    def with_defaults(
        self,
        labels: Mapping[str, str],
        formats: Mapping[str, str],
        hints: Mapping[str, str],
        description: str,
    ) -> Display:
        """This display, with the labels, formats, hints and description of the tool's signature where it has none of
        its own."""
        known = {key: form for key, form in formats.items() if is_known(form)}
        return replace(
            self,
            labels={**labels, **self.labels},
            formats={**known, **self.formats},
            hints=self.hints or _short(hints),
            description=self.description or description.strip()[:_LONGEST_WORDS] or None,
        )

    @property
    def is_fixed(self) -> bool:
        """Whether the words are the same for every call."""
        return self.sentence is None and self.approve is None and not callable(self.risk)

    def shown(self, args: Mapping[str, Any], effect: str = "once") -> JsonObject | None:
        """The words that the request of a call with these arguments stores; None if there are none.

        ``templates`` are the sentence and the button with their placeholders, for a page that shows edited arguments.
        If the function for the risk fails, the risk is ``"critical"``, so that people look twice. Words in several
        languages are read with `words_in`.
        """
        languages = self.languages
        words = (self.in_language(None) if languages else self)._words(args, ENGLISH)
        risk = self._risk(args, effect)
        if risk != "normal":
            words["risk"] = risk
        if languages:
            others = {tag: self.in_language(tag)._words(args, style_for(tag)) for tag in languages}
            same = {"risk": words["risk"]} if "risk" in words else {}
            words = in_languages(words, {tag: {**said, **same} for tag, said in others.items()})
        return words or None

    def _words(self, args: Mapping[str, Any], style: Style) -> JsonObject:
        """The words of a display in a single language, with the call's values in them."""
        words: JsonObject = {
            name: said
            for name in ("title", "undo", "help_url", "description")
            if (said := getattr(self, name)) is not None
        }
        templates: dict[str, str] = {
            name: said for name in _TEMPLATES if (said := getattr(self, name)) is not None
        }
        if (sentence := templates.get("sentence")) is not None:
            words["sentence"] = filled(sentence, args, self.formats, style)
        approve = templates.get("approve")
        if approve is not None and (button := button_text(approve, args, self.formats, style)) is not None:
            words["approve"] = button
        if templates:
            words["templates"] = cast(JsonObject, templates)
        formats = {**_formats_in(templates), **self.formats}
        for name, given in (("labels", self.labels), ("formats", formats), ("hints", self.hints)):
            if given:
                words[name] = cast(JsonObject, dict(given))
        for name in ("important", "consequences"):
            if given := getattr(self, name):
                words[name] = list(given)
        return words

    def _risk(self, args: Mapping[str, Any], effect: str) -> Risk:
        """The declared level; without one, ``high`` for irreversible or production consequences, ``low`` for a tool
        that is idempotent or has no effect, else ``normal``."""
        if callable(self.risk):
            try:
                said = self.risk(args)
            except Exception as error:
                logger.error(
                    "the function for a call's risk failed (%s); it is critical", type(error).__name__
                )
                logger.debug("traceback of the failed function", exc_info=error)
                return "critical"
            if said not in RISKS:
                logger.error("the function for a call's risk returned none of its levels; it is critical")
                return "critical"
            return said
        if self.risk is not None:
            return self.risk
        if {"irreversible", "production"} & {text for it in self.consequences for text in texts_of(it)}:
            return "high"
        return "low" if effect in ("none", "idempotent") else "normal"


_TEMPLATES = ("sentence", "approve", "done_sentence")
_TEXTS = ("title", *_TEMPLATES, "undo")


def _short(hints: Mapping[str, str]) -> dict[str, str]:
    """Hints on a line each, cut; and only as many as a request may well store again and again."""
    lines = {name: " ".join(hint.split()) for name, hint in hints.items()}
    kept = {
        name: line if len(line) <= _LONGEST_HINT else f"{line[: _LONGEST_HINT - 1]}…"
        for name, line in lines.items()
        if line
    }
    return dict(list(kept.items())[:_MOST_HINTS])


def higher(*risks: Risk | None) -> Risk | None:
    """The highest of some risk levels; None if none is given."""
    given = [RISKS.index(risk) for risk in risks if risk is not None]
    return RISKS[max(given)] if given else None


def is_consequence(name: str) -> bool:
    """Whether a page has words for a consequence."""
    return name in CONSEQUENCES or bool(_CONSEQUENCE.fullmatch(name))


def is_link(address: str) -> bool:
    """Whether an address may be shown as a link: https, with a host, without a password, in plain characters."""
    try:
        at = urlsplit(address)
        plain = address.isascii() and address.isprintable() and not re.search(r"[\s\"'<>\\`]", address)
        return (
            plain
            and at.scheme == "https"
            and bool(at.hostname)
            and at.username is None
            and len(address) <= 2000
        )
    except ValueError:
        return False


def _consequence_fault(name: str) -> str:
    return f"consequences are some of {', '.join(CONSEQUENCES)}, people:N or custom:text, not {name!r}"


def _format_faults(where: str, form: str) -> list[str]:
    return [] if not form or is_known(form) else [f"{where} has the format {form!r}, which does not exist"]


# Templates.


class Part(NamedTuple):
    """A part of a filled sentence: words of the tool's author, or the value of an argument."""

    text: str
    argument: str | None = None
    """The argument whose value the text is; None for words of the author."""


def parts(
    words: str, args: Mapping[str, Any], formats: Mapping[str, str], style: Style = ENGLISH
) -> list[Part]:
    """A template split into its parts, with the call's values for its placeholders, each `shortened`."""
    found: list[Part] = []
    end = 0
    for place in _PLACE.finditer(words):
        if place.start() > end:
            found.append(Part(words[end : place.start()]))
        form = place[2].removeprefix(":") or formats.get(place[1], "")
        found.append(Part(shortened(value_text(args.get(place[1]), form, style)), place[1]))
        end = place.end()
    if end < len(words):
        found.append(Part(words[end:]))
    return found


def _formats_in(templates: Mapping[str, str]) -> dict[str, str]:
    """The formats that templates give arguments, by argument; the first one counts."""
    found: dict[str, str] = {}
    for place in (place for words in templates.values() for place in _PLACE.finditer(words)):
        if form := place[2].removeprefix(":"):
            found.setdefault(place[1], form)
    return found


def filled(words: str, args: Mapping[str, Any], formats: Mapping[str, str], style: Style = ENGLISH) -> str:
    """A template with the call's values, as one text. Values are made `visible`: no character in them is hidden,
    changes the direction of writing or imitates another."""
    return "".join(
        part.text if part.argument is None else shortened(visible(part.text))
        for part in parts(words, args, formats, style)
    )


def button_text(
    words: str, args: Mapping[str, Any], formats: Mapping[str, str], style: Style = ENGLISH
) -> str | None:
    """The text of a button; None if it is too long for one."""
    button = filled(words, args, formats, style)
    return button if 0 < len(button) <= LONGEST_BUTTON else None


def value_text(value: Any, form: str, style: Style = ENGLISH) -> str:
    """A value as text: in its format if it fits, else plain. Of a long value, the beginning and the end are used."""
    if form == "secret":
        return "…"
    return formatted(value, form, style) or _plain(value, style)


def shortened(text: str) -> str:
    """A value in at most 60 characters. A longer one loses its middle: the end of an address says where it leads."""
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[: LONGEST_VALUE - _END - 1]}…{text[-_END:]}"


def _plain(value: Any, style: Style) -> str:
    if value is None:
        return "–"  # noqa: RUF001  (a dash: not given)
    if isinstance(value, bool):
        return style.yes if value else style.no
    if isinstance(value, list):
        given = cast("list[Any]", value)
        items = [shortened(_plain(it, style)) for it in given[:7]]
        more = style.more.format(rest=len(given) - 7, all=len(given)) if len(given) > 7 else ""
        return style.comma.join(items) + more
    if isinstance(value, dict):
        return f"{{{len(cast('dict[str, Any]', value))}}}"
    if isinstance(value, str):
        return value if len(value) <= 2 * LONGEST_VALUE else value[:LONGEST_VALUE] + value[-LONGEST_VALUE:]
    try:
        return str(value)
    except ValueError:  # a whole number of more digits than Python writes
        return "…"


# The steps before a call, as an adapter reports them.


def steps_before(steps: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
    """The last steps before a call, as a request keeps them.

    Each has ``who`` (``person``, ``agent``, ``tool``) and a ``text``; a call and its result have the name of the
    ``tool``, and a result may have ``failed``.
    """
    kept: list[JsonObject] = []
    for step in steps[-MOST_STEPS:]:
        who, text = str(step.get("who", "agent"))[:40], str(step.get("text", ""))
        said: JsonObject = {"who": who, "text": _step_cut(text)}
        if step.get("tool"):
            said["tool"] = str(step["tool"])[:_LONGEST_STEP]
        if step.get("failed") is True:
            said["failed"] = True
        kept.append(said)
    return kept


def step_args(args: Mapping[str, Any]) -> str:
    """The text of a step that calls a tool: its arguments in a line, each of them short."""
    return ", ".join(f"{name}: {_step_value(value)}" for name, value in islice(args.items(), 10))


def _step_value(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))[:100]


def _step_cut(text: str) -> str:
    return text if len(text) <= _LONGEST_STEP else f"{text[: _LONGEST_STEP - 1]}…"
