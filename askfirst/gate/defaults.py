"""The defaults of a gate for functions, calls and actions, and the check of its store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypedDict

from askfirst.checkpointer.base import Checkpointer
from askfirst.errors import HitlError, InvalidAgent, Pending
from askfirst.gate.action import Action
from askfirst.gate.key_state import key_of
from askfirst.ids import case_id_of, page_address
from askfirst.requests import StoredRequest


class How(TypedDict, total=False):
    """Who is asked, how long they have, and how long the caller waits in place."""

    to: str | None
    timeout: float | str | None
    wait: float | None


@dataclass(frozen=True, slots=True)
class Defaults:
    """The options of a gate that apply to every request."""

    timeout: float | None = None
    principal: str = "*"
    to: str | None = None
    resumer: str | None = None
    base_url: str | None = None
    """Where people reach the service, for links."""
    agent: str | None = None
    """Who asks."""

    def fill(self, action: Action) -> Action:
        """The action with the gate's defaults for the options that it does not set."""
        return replace(
            action,
            timeout=self.timeout if action.timeout is None else action.timeout,
            principal=self.principal if action.principal == "*" else action.principal,
            to=action.to or self.to,
            resumer=action.resumer or self.resumer,
            agent_path=action.agent_path or self.agent_path,
        )

    @property
    def agent_path(self) -> tuple[str, ...]:
        """Who asks, as a path of agents; empty without a name."""
        return () if self.agent is None else (self.agent,)

    def pending(self, known: StoredRequest) -> Pending:
        """The `Pending` that a guarded function raises for an open request, with the page's URL if that is known."""
        case = case_id_of(known.thread_id, known.question_id, known.round)
        link = None if self.base_url is None else page_address(self.base_url, case)
        return Pending(key_of(known.thread_id), known.request, case, link)


def given_store(store: Any) -> Checkpointer:
    """An open checkpointer, as it was given; raises `InvalidAgent` for anything else."""
    for needed in ("commit", "settle", "load"):
        if not callable(getattr(store, needed, None)):
            raise InvalidAgent(
                f"a gate needs a store: a URL or an open checkpointer, not {type(store).__name__}"
            )
    return store


def url_of(store: Any) -> str:
    """The store's URL, with which the gate's own thread opens the store; raises `HitlError` if the store was not
    given as a URL."""
    if not isinstance(store, str):
        raise HitlError(
            "a guarded function that is not async opens the store in a thread of its own, so its gate needs the "
            "store's URL: Gate('sqlite:///askfirst.db')"
        )
    return store
