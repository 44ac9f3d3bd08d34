"""The agent's side of HITL Protocol: when a service answers 202 and asks for a person.

The public names, loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from askfirst.errors import MissingExtra
from askfirst.lazy import exports

if TYPE_CHECKING:
    from askfirst.client.callback import CallbackReceiver
    from askfirst.client.client import HitlClient
    from askfirst.client.notify import deliver_review_url
    from askfirst.client.outcome import ReviewOutcome
    from askfirst.client.skill import Skill, SkillHitl, read_skill, write_skill
    from askfirst.client.sync import HitlClientSync, request
    from askfirst.protocol.signatures import verify_hitl_signature

_HOMES = {
    "CallbackReceiver": "callback",
    "HitlClient": "client",
    "HitlClientSync": "sync",
    "ReviewOutcome": "outcome",
    "Skill": "skill",
    "SkillHitl": "skill",
    "deliver_review_url": "notify",
    "read_skill": "skill",
    "request": "sync",
    "verify_hitl_signature": "callback",
    "write_skill": "skill",
}

__all__ = [
    "CallbackReceiver",
    "HitlClient",
    "HitlClientSync",
    "ReviewOutcome",
    "Skill",
    "SkillHitl",
    "deliver_review_url",
    "read_skill",
    "request",
    "verify_hitl_signature",
    "write_skill",
]

_load, __dir__ = exports(globals(), _HOMES)


def __getattr__(name: str) -> object:
    """Load a public name; raises `MissingExtra` where its HTTP client is not there."""
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "httpx2":
            raise
        raise MissingExtra("calling other services", "client") from error
