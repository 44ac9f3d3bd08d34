"""Small services with other styles: only the required fields, unknown fields everywhere, unusual values.

Each is an `OtherService` that changes its messages just before they are sent, so that polls, events, callbacks and
inline answers describe a case in the same style.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from kit.other_service import Asked, OtherCase, OtherService, Reply

TOKEN = "agt_" + "k" * 39


class Bare(OtherService):
    """Only the five required fields of the hitl object, and only the required fields of every answer."""

    has_events = False
    lifetime = 86_400.0

    def wanted(self, case: OtherCase) -> dict[str, Any]:
        needed = ["case_id", "review_url", "poll_url", "type", "prompt"]
        if self.has_events:
            needed.append("events_url")
        return {"hitl": {name: case.offer[name] for name in needed}}

    def state(self, case: OtherCase) -> dict[str, Any]:
        result = {"result": case.facts["result"]} if "result" in case.facts else {}
        return {"status": case.status, **result}

    def event(self, number: int, name: str, data: Any) -> bytes:
        told = {"result": data["result"]} if "result" in data else {}
        return f"event: {name}\ndata: {json.dumps(told)}\n\n".encode()

    async def call_back(self, case: OtherCase) -> None:
        body = json.dumps({"event": f"review.{case.status}", "case_id": case.case_id}).encode()
        await self.post(case, body, self.signature(body))


class BareWithEvents(Bare):
    has_events = True


class Chatty(OtherService):
    """An unknown field in every object, at every depth."""

    def wanted(self, case: OtherCase) -> dict[str, Any]:
        return more_everywhere(super().wanted(case))

    def state(self, case: OtherCase) -> dict[str, Any]:
        return more_everywhere(super().state(case))

    def event(self, number: int, name: str, data: Any) -> bytes:
        return super().event(number, name, more_everywhere(data))

    async def call_back(self, case: OtherCase) -> None:
        told = {"event": f"review.{case.status}", "case_id": case.case_id, **case.facts}
        body = json.dumps(more_everywhere(told)).encode()
        await self.post(case, body, self.signature(body))


def more_everywhere(said: Any) -> Any:
    """A copy with one more field in every object, except in the person's own data."""
    if isinstance(said, list):
        return [more_everywhere(each) for each in said]
    if not isinstance(said, dict):
        return said
    told = {name: value if name == "data" else more_everywhere(value) for name, value in said.items()}
    return {**told, "x_new": {"in": "0.9"}}


class Inline(OtherService):
    """A service that accepts inline answers by button. Subclasses report who pressed in different forms."""

    by: ClassVar[Any] = None
    more: ClassVar[dict[str, Any]] = {}

    def open(self, body: Any = None, **fields: Any) -> OtherCase:
        case = super().open(body, **fields)
        case.offer |= {"submit_url": f"{self.url}/review/{case.case_id}/respond", "submit_token": TOKEN}
        return case

    async def answer(self, asked: Asked) -> Reply:
        match asked.path.strip("/").split("/"):
            case ["review", case_id, "respond"] if asked.headers.get("authorization") == f"Bearer {TOKEN}":
                self.requests.append(asked)
                return self.pressed(self.cases[case_id], asked)
            case _:
                return await super().answer(asked)

    def pressed(self, case: OtherCase, asked: Asked) -> Reply:
        if case.is_over:
            return Reply.of({"error": "duplicate_submission", "message": "too late"}, 409)
        said = asked.json
        self.decide(case, said["action"], said.get("data"), responded_by=self.told_by(said["submitted_by"]))
        case.facts |= self.more
        return Reply.of({"status": "completed", "case_id": case.case_id, "completed_at": self.stamp()})

    def told_by(self, submitted_by: dict[str, Any]) -> Any:
        return self.by


class HandsOnThePress(Inline):
    """``responded_by`` is the unchanged ``submitted_by``."""

    def told_by(self, submitted_by: dict[str, Any]) -> Any:
        return submitted_by


class NamesTheChannel(Inline):
    """``responded_by`` is a text."""

    by = "telegram:123456789"


class NamesAnId(Inline):
    """``responded_by`` has the platform's id, and a name that is null."""

    by: ClassVar[Any] = {"id": 123456789, "name": None, "via": "telegram_inline_button"}


class NamesByList(Inline):
    """``responded_by`` is a list; the submission's context has the service's own field names."""

    by: ClassVar[Any] = [{"platform": "telegram", "user": 123456789}]
    more: ClassVar[dict[str, Any]] = {
        "submission_context": {"mode": "inline", "submitted_by": "telegram"},
        "completed_at": 1_800_000_000,
    }


class Unreadable(OtherService):
    """Its answers to polls cannot be read: each is invalid in another way."""

    nonsense: tuple[bytes, ...] = (
        b"<html>Please log in</html>",
        b"[]",
        b"null",
        b'{"state": "done"}',
        b'{"status": "answered"}',
        b'{"status": "completed"}',
        b'{"status": "completed", "result": {"choice": "approve"}}',
        b'{"status": ["pending"]}',
    )
    follows = False

    async def poll(self, case: OtherCase, asked: Asked) -> Reply:
        return Reply(
            200, self.nonsense[case.polls % len(self.nonsense)], {"Content-Type": "application/json"}
        )
