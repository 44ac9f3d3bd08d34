"""A case in the protocol: its states, the review types and their actions, how long it is open, and its tokens."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Literal

from askfirst.errors import InvalidDuration, InvalidTransition
from askfirst.protocol.wire import OneOfOrCustom, Text

# States.

State = Literal["pending", "opened", "in_progress", "completed", "expired", "cancelled"]
EventName = Literal[
    "review.opened",
    "review.in_progress",
    "review.reminder",
    "review.completed",
    "review.expired",
    "review.cancelled",
]

FINAL_STATES: frozenset[State] = frozenset({"completed", "expired", "cancelled"})
"""The states that a case never leaves."""

_ENDS: dict[EventName, State] = {
    "review.completed": "completed",
    "review.expired": "expired",
    "review.cancelled": "cancelled",
}
_NEXT: Mapping[State, Mapping[EventName, State]] = {
    "pending": {
        "review.opened": "opened",
        "review.in_progress": "in_progress",
        "review.reminder": "pending",
        **_ENDS,
    },
    "opened": {"review.in_progress": "in_progress", "review.reminder": "opened", **_ENDS},
    "in_progress": {"review.in_progress": "in_progress", **_ENDS},
    "completed": {},
    "expired": {},
    "cancelled": {},
}


def is_final(state: State) -> bool:
    """Whether a case in this state will never change again."""
    return state in FINAL_STATES


def next_state(state: State, event: EventName) -> State:
    """The state of a case after an event.

    A case moves forward, and may skip states. Progress may be reported repeatedly, and a reminder changes nothing.
    Raises `InvalidTransition` for an event that cannot happen in this state.
    """
    following = _NEXT.get(state, {}).get(event)
    if following is None:
        raise InvalidTransition(state, event)
    return following


def may_follow(earlier: State, later: State) -> bool:
    """Whether a case that was in one state may be in another one later, or in the same."""
    return earlier == later or later in _NEXT[earlier].values()


# Review types, and what a person may do in each.


ACTIONS: Mapping[str, tuple[str, ...]] = {
    "approval": ("approve", "edit", "reject"),
    "selection": ("select",),
    "input": ("submit",),
    "confirmation": ("confirm", "cancel"),
    "escalation": ("retry", "skip", "abort"),
}
"""The five review types, each with its actions."""

ReviewType = Annotated[Text, OneOfOrCustom(tuple(ACTIONS))]
"""One of the five types, or a service's own that begins with ``x-``."""


def actions_of(review_type: str) -> tuple[str, ...]:
    """The actions of a review type. A service's own type has those of ``input``."""
    return ACTIONS.get(review_type, ACTIONS["input"])


# Durations: ISO 8601 and a short form, as whole seconds.


_SECONDS = {"W": 604_800, "D": 86_400, "H": 3_600, "M": 60, "S": 1}
_NUMBER = r"[0-9]{1,12}(?:[.,][0-9]{1,12})?"
_SHORT = re.compile(r"([0-9]{1,12})([wdhms])")
_ISO = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_CALENDAR = re.compile(r"P[^T]*[0-9][YM].*")

LONGEST_DURATION = 100 * 365 * 86_400
"""A longer duration is a mistake; the date at its end may not even exist."""


def parse_duration(text: str) -> int:
    """The seconds of ``"PT24H"``, ``"P7D"``, ``"P1DT12H"``, or short: ``"24h"``, ``"7d"``, ``"30m"``.

    Raises `InvalidDuration` with the reason; years and months are refused, because they vary.
    """
    short = _SHORT.fullmatch(text)
    if short:
        return _positive(text, Decimal(int(short[1]) * _SECONDS[short[2].upper()]))
    iso = _ISO.fullmatch(text)
    if not iso or not any(iso.groups()):
        if _CALENDAR.fullmatch(text):
            raise InvalidDuration(text, "years and months have no fixed length; give days or hours")
        raise InvalidDuration(text, "write it as ISO 8601, such as PT24H or P7D, or short, such as 24h or 7d")
    given = [
        (part.replace(",", "."), unit) for part, unit in zip(iso.groups(), _SECONDS, strict=True) if part
    ]
    if any("." in part for part, _ in given[:-1]):
        raise InvalidDuration(text, "only its last number may have a fraction")
    return _positive(text, sum((Decimal(part) * _SECONDS[unit] for part, unit in given), Decimal()))


def iso_duration(seconds: int) -> str:
    """Seconds as an ISO 8601 duration: ``"PT12H"``, ``"P7D"``, ``"P1DT6H"``."""
    days, rest = divmod(_positive(str(seconds), Decimal(seconds)), 86_400)
    hours, rest = divmod(rest, 3_600)
    clock = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (rest // 60, "M"), (rest % 60, "S")) if n)
    return "P" + (f"{days}D" if days else "") + (f"T{clock}" if clock else "")


def short_duration(seconds: int) -> str:
    """Seconds in the short form, in the largest unit that fits: ``"12h"``, ``"7d"``, ``"90m"``."""
    _positive(str(seconds), Decimal(seconds))
    unit = next(unit for unit in "DHMS" if seconds % _SECONDS[unit] == 0)
    return f"{seconds // _SECONDS[unit]}{unit.lower()}"


def _positive(text: str, seconds: Decimal) -> int:
    if seconds <= 0:
        raise InvalidDuration(text, "it must be longer than nothing")
    if seconds != int(seconds):
        raise InvalidDuration(text, "it must come to whole seconds")
    if seconds > LONGEST_DURATION:
        raise InvalidDuration(text, "it must be at most 100 years")
    return int(seconds)


# The two bearer tokens of a case: issued once, stored as hashes, compared in constant time.


TokenScope = Literal["review", "submit"]

_PREFIXES: Mapping[TokenScope, str] = {"review": "", "submit": "agt_"}
"""The protocol fixes a review token at 43 characters, so only submit tokens can have a prefix."""
_RANDOM = re.compile(r"[A-Za-z0-9_-]{43}")
_NOBODY = hashlib.sha256(b"").hexdigest()


def issue_token(scope: TokenScope) -> str:
    """A new token with 256 random bits, safe in an address."""
    return token_prefix(scope) + secrets.token_urlsafe(32)


def token_prefix(scope: TokenScope) -> str:
    """What a token of this scope begins with, before its 43 characters."""
    return _PREFIXES[scope]


def hash_token(token: str) -> str:
    """What to store of a token: its SHA-256 in hexadecimal."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def token_matches(token: str, scope: TokenScope, stored_hash: str | None) -> bool:
    """Whether a token is the one of this scope whose hash is stored.

    A token of the other scope never matches, even with its own hash. Without a stored hash, as for an unknown case,
    the answer is False after the same time.
    """
    same = hmac.compare_digest(hash_token(token).encode(), (stored_hash or _NOBODY).encode())
    return same and stored_hash is not None and _has_scope(token, scope)


def _has_scope(token: str, scope: TokenScope) -> bool:
    prefix = _PREFIXES[scope]
    return token.startswith(prefix) and _RANDOM.fullmatch(token, len(prefix)) is not None
