"""``SKILL.md``: a skill that says, in its ``metadata.hitl``, that its service may ask for a person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from askfirst.errors import InvalidDuration, InvalidSkill, MissingExtra
from askfirst.loopback import LOOPBACK_HOSTS
from askfirst.messages import JsonObject
from askfirst.permissions.line_numbers import Located, Unreadable, read_yaml
from askfirst.protocol import ACTIONS, parse_duration

MOST_CHARACTERS = 1_000_000
MOST_FRONT_CHARACTERS = 64_000
HEADING = "## HITL Handling"
"""How the protocol calls the section of the body that is about reviews."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_FIELDS = ("supported", "types", "review_base_url", "timeout_default", "info")

_SECTION = """\
{heading}

This service may need a person's decision{kinds}. It then answers HTTP 202 with a `hitl` object in its body.{info}

1. Send `hitl.review_url` to the person you work for, with `hitl.prompt`. Do not open it, and do not decide yourself.
2. Ask `hitl.poll_url` how the case stands, with the credentials of the first request: every 30 seconds at most, or
   when `Retry-After` says so. Go on while the status is `pending`, `opened` or `in_progress`.
3. `completed`: the decision is `result.action`, and what the person filled in or chose is `result.data`. Use these.
4. `expired`: nobody decided. Do what `default_action` says, and tell the person so.
5. `cancelled`: the service has taken the question back. Tell the person the `reason`, and do not go on with it.
"""


@dataclass(frozen=True, slots=True)
class SkillHitl:
    """What a skill declares about reviews: ``metadata.hitl``."""

    supported: bool = True
    types: tuple[str, ...] = ()
    """The review types that may come: the protocol's five, or ``x-`` ones."""
    review_base_url: str | None = None
    timeout_default: str | None = None
    """How long a review usually stays open, such as ``24h`` or ``PT24H``."""
    info: str | None = None
    """When a person is asked, for people; at most 200 characters."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A ``SKILL.md``: what is in its front matter, and the text below."""

    name: str
    description: str
    hitl: SkillHitl | None = None
    """None if the skill says nothing about reviews."""
    body: str = ""
    more: JsonObject = field(default_factory=dict[str, Any])
    """Whatever else the front matter says, such as ``license``; other ``metadata`` included."""


def read_skill(text: str) -> Skill:
    """Read a ``SKILL.md``.

    The YAML in it is read as plain data: a tag or an alias in it is refused. Raises `InvalidSkill` with
    everything that is wrong, and `MissingExtra` without PyYAML.
    """
    if len(text) > MOST_CHARACTERS:
        raise InvalidSkill([f"it has more than {MOST_CHARACTERS} characters"])
    found = _FRONT.match(text)
    if found is None:
        raise InvalidSkill(["line 1: it begins with front matter, YAML between two lines of ---"])
    if len(found[1]) > MOST_FRONT_CHARACTERS:
        raise InvalidSkill([f"its front matter has more than {MOST_FRONT_CHARACTERS} characters"])
    _yaml()
    try:
        located = read_yaml(found[1])
    except Unreadable as error:
        raise InvalidSkill([f"line {error.fault.line + 1}: {error.fault.sentence}"]) from None
    return _Reading(located).skill(text[found.end() :].lstrip("\r\n"))


def write_skill(skill: Skill) -> str:
    """The text of a ``SKILL.md``.

    A skill that supports reviews gets a section that tells an agent what to do when one comes, unless its body
    has one already. Raises `InvalidSkill` for what `read_skill` would refuse, and for a name that is not in
    lower-case letters, digits and single hyphens, or a description of more than 1024 characters.
    """
    faults = _unwritable(skill)
    if faults:
        raise InvalidSkill(faults)
    yaml = _yaml()
    more = dict(skill.more)
    metadata = dict(cast("Mapping[str, Any]", more.pop("metadata", {})))
    if skill.hitl is not None:
        metadata["hitl"] = _declared(skill.hitl)
    front = {"name": skill.name, "description": skill.description, **more}
    if metadata:
        front["metadata"] = metadata
    written: str = yaml.dump(
        front,
        Dumper=_dumper(yaml),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=10**6,
    )
    text = f"---\n{written}---\n\n{_with_section(skill)}"
    read_skill(text)  # what cannot be read again is not worth writing
    return text


def hitl_section(hitl: SkillHitl) -> str:
    """The section of a skill's body that tells an agent what to do when a person is asked."""
    kinds = f" ({', '.join(hitl.types)})" if hitl.types else ""
    info = f" {hitl.info}" if hitl.info else ""
    return _SECTION.format(heading=HEADING, kinds=kinds, info=info)


def _with_section(skill: Skill) -> str:
    body = skill.body.strip("\r\n")
    wanted = skill.hitl is not None and skill.hitl.supported and HEADING not in body.splitlines()
    parts = [body] if body else []
    if wanted and skill.hitl is not None:
        parts.append(hitl_section(skill.hitl).rstrip("\n"))
    return "\n\n".join(parts) + "\n" if parts else ""


def _declared(hitl: SkillHitl) -> JsonObject:
    said: JsonObject = {"supported": hitl.supported}
    if hitl.types:
        said["types"] = list(hitl.types)
    for name in ("review_base_url", "timeout_default", "info"):
        if (value := getattr(hitl, name)) is not None:
            said[name] = value
    return said


def _unwritable(skill: Skill) -> list[str]:
    faults = [f"{name} has its own place in Skill" for name in ("name", "description") if name in skill.more]
    if len(skill.name) > 64 or not _NAME.fullmatch(skill.name):
        faults.append("name is 1 to 64 lower-case letters, digits and single hyphens")
    if not 0 < len(skill.description) <= 1024:
        faults.append("description has 1 to 1024 characters")
    metadata: Any = skill.more.get("metadata", {})
    if not isinstance(metadata, Mapping):
        faults.append("metadata is an object")
    elif "hitl" in metadata:
        faults.append("metadata.hitl has its own place in Skill")
    return faults


class _Reading:
    """From plain data to a skill; notes all that is wrong on the way."""

    def __init__(self, located: Located) -> None:
        self._located = located
        self._faults = [f"line {each.line + 1}: {each.sentence}" for each in located.faults]

    def skill(self, body: str) -> Skill:
        front: Any = self._located.value
        if not isinstance(front, dict):
            raise InvalidSkill(["line 2: the front matter is an object: names and values"])
        more = cast("dict[Any, Any]", front)
        name, description = (self._text(more.pop(each, None), (each,)) for each in ("name", "description"))
        hitl = self._metadata(more)
        if odd := [key for key in more if not isinstance(key, str)]:
            self._fault((odd[0],), "a name is text")
        if self._faults:
            raise InvalidSkill(self._faults)
        return Skill(name, description, hitl, body.rstrip("\r\n"), cast("JsonObject", more))

    def _metadata(self, more: dict[Any, Any]) -> SkillHitl | None:
        metadata = more.get("metadata", {})
        if not isinstance(metadata, dict):
            self._fault(("metadata",), "metadata is an object")
            return None
        kept = cast("dict[Any, Any]", metadata)
        said = kept.pop("hitl", None)
        if not kept:
            more.pop("metadata", None)
        if said is None:
            return None
        if not isinstance(said, dict):
            self._fault(("metadata", "hitl"), "metadata.hitl is an object")
            return None
        return self._hitl(cast("dict[Any, Any]", said))

    def _hitl(self, said: dict[Any, Any]) -> SkillHitl:
        for key in said:
            if key not in _FIELDS:
                self._hitl_fault(str(key)[:40], f"is no field of it; those are {', '.join(_FIELDS)}")
        supported = said.get("supported")
        if not isinstance(supported, bool):
            self._hitl_fault("supported", "is true or false")
        types = said.get("types", [])
        if not isinstance(types, list) or not all(_is_type(each) for each in cast("list[Any]", types)):
            self._hitl_fault("types", f"is a list of {', '.join(ACTIONS)}, or names that begin with x-")
            types = []
        url, timeout, info = (said.get(name) for name in _FIELDS[2:])
        if url is not None and not _is_url(url):
            self._hitl_fault("review_base_url", "is a URL that begins with https://")
        if timeout is not None and not _is_duration(timeout):
            self._hitl_fault("timeout_default", "is a duration such as 24h or PT24H")
        if info is not None and not (isinstance(info, str) and len(info) <= 200):
            self._hitl_fault("info", "is text of at most 200 characters")
        return SkillHitl(supported is True, tuple(cast("list[str]", types)), url, timeout, info)

    def _text(self, value: Any, path: tuple[str, ...]) -> str:
        if isinstance(value, str) and value.strip():
            return value
        self._fault(path, f"{'.'.join(path)} is missing, or no text")
        return ""

    def _hitl_fault(self, name: str, sentence: str) -> None:
        self._fault(("metadata", "hitl", name), f"metadata.hitl.{name} {sentence}")

    def _fault(self, path: tuple[Any, ...], sentence: str) -> None:
        # The front matter begins on the file's second line.
        self._faults.append(f"line {self._located.line_of(path) + 1}: {sentence}")


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and (value in ACTIONS or (value.startswith("x-") and len(value) > 2))


def _is_url(value: Any) -> bool:
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    try:
        where = urlsplit(value)
        local = where.hostname in LOOPBACK_HOSTS
        return bool(where.hostname) and (where.scheme == "https" or (where.scheme == "http" and local))
    except ValueError:
        return False


def _is_duration(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(parse_duration(value))
    except InvalidDuration:
        return False


def _yaml() -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise MissingExtra("a SKILL.md", "client") from error
    return yaml


def _dumper(yaml: Any) -> Any:
    """Writes text in quotes unless it is a mere word: what may be a number or a time to some stays text."""

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        plain = _WORD.fullmatch(value) and value.lower() not in _RESERVED
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')

    Dumper.add_representer(str, text)
    return Dumper
