"""An HTTP API as an agent's tool, also where it answers 202 and a person has to decide first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import BaseModel

from assent.agent.host import hosting
from assent.agent.live import LiveThread
from assent.agent.tools import Effect, Tool, ToolContext, ToolResult
from assent.client.client import HitlClient
from assent.client.outcome import ReviewOutcome
from assent.errors import HitlDetached, InvalidTool, RequestInDoubt, ResponseTooLarge, ReviewError
from assent.messages import JsonObject
from assent.protocol import REDACTED

MOST_CHARACTERS = 100_000
"""Of an answer, for the model."""
MOST_BYTES = 10_000_000
"""Of an answer that is read at all."""
_EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS"), "none"),
    **dict.fromkeys(("PUT", "DELETE"), "idempotent"),
}
_IN_QUERY = ("GET", "HEAD", "OPTIONS", "DELETE")
_PLACE = re.compile(r"\{(\w+)\}")
_REFUSALS = ("reject", "cancel", "abort")
_UNKNOWN = "Whether this took effect is unknown. Check before trying again."


class NoParameters(BaseModel):
    """A tool that takes nothing."""


def http_tool(
    client: HitlClient,
    method: str,
    url: str,
    *,
    name: str,
    description: str = "",
    parameters: type[BaseModel] = NoParameters,
    effect: Effect | None = None,
    requires_approval: bool = False,
) -> Tool:
    """A tool that sends a request, and gives the model the answer, or what a person decided.

    Parameters that stand in the URL's path (``https://a.example/jobs/{job_id}``) go there; the others become the
    query of a ``GET`` or ``DELETE`` and the JSON body of anything else. ``effect`` is what sending the request
    twice does, as with `tool`; the method says it where you do not (``POST`` and ``PATCH``: ``"once"``).
    ``"idempotent"`` promises that the service honours ``Idempotency-Key``, which is sent always.

    If the service asks for a person, the link is delivered. With a client that has a store and an agent that has
    a checkpointer, the run then ends as ``"suspended"``, and nothing is held while the person thinks;
    `assent.client.resuming.resume_when_decided` goes on with it, in any process, and ``agent.resume()`` does so
    too. The request is never sent again. Without both, the tool waits. Credentials belong to the client
    (``auth`` or ``http``): whoever goes on with the wait needs them as well.
    """
    method = method.upper()
    meant = effect or _EFFECTS.get(method, "once")
    _check_places(name, url, parameters)

    async def body(args: BaseModel, ctx: ToolContext) -> ToolResult:
        options = _options(method, url, args)
        options["headers"] = {"Idempotency-Key": ctx.idempotency_key}
        if meant == "idempotent":
            options["idempotency_key"] = ctx.idempotency_key
        options |= {"repeatable": meant != "once", "max_bytes": MOST_BYTES}
        try:
            answer = await _answer(client, method, options, ctx)
        except RequestInDoubt:
            return ToolResult(f"It was sent before, and interrupted. {_UNKNOWN}", is_error=True)
        except ResponseTooLarge as error:
            return ToolResult(f"{error}. {_UNKNOWN}" if meant == "once" else f"{error}.", is_error=True)
        except ReviewError as error:
            return ToolResult(f"A person was asked, and that went wrong: {error}", is_error=True)
        except httpx2.HTTPError as error:
            return _not_sent(error, meant)
        return _decided(answer) if isinstance(answer, ReviewOutcome) else _answered(answer)

    # With a store the body may be run again whatever the request does: it is not sent twice.
    safe: Effect = "idempotent" if client.is_durable and meant == "once" else meant
    return Tool(
        name=name,
        parameters=parameters,
        function=body,
        description=description,
        requires_approval=requires_approval,
        effect=safe,
    )


def wait_key(ctx: ToolContext) -> str:
    """Under which key the wait of a call is stored."""
    return f"{ctx.thread_id}/{ctx.tool_call_id}"


async def _answer(
    client: HitlClient, method: str, options: dict[str, Any], ctx: ToolContext
) -> httpx2.Response | ReviewOutcome:
    """The response or the outcome, however long it takes; raises `HitlDetached` where the thread can wait instead."""
    url, thread_id = options.pop("url"), _stored_thread()
    if thread_id is None or not client.is_durable:
        return await client.request(method, url, **options)
    key = wait_key(ctx)
    if await client.keyed.waits.is_held(key):  # then somebody sees to it already
        raise HitlDetached
    answer = await client.begin(method, url, key=key, thread_id=thread_id, **options)
    if answer is None:
        raise HitlDetached
    return answer


def _stored_thread() -> str | None:
    """The stored thread that has to be resumed for this call to go on: the agent's, not a subagent's."""
    live = hosting.get()
    if not isinstance(live, LiveThread) or live.checkpointer is None:
        return None
    while live.parent is not None:
        live = live.parent
    return live.thread_id


# The request.


def _check_places(name: str, url: str, parameters: type[BaseModel]) -> None:
    """Only required parameters may stand in a URL, and only in its path: a model chooses no host."""
    where = urlsplit(url)
    places = _PLACE.findall(url)
    fields = parameters.model_fields
    if sorted(places) != sorted(set(_PLACE.findall(where.path))):
        raise InvalidTool(
            name, "parameters stand in the path of its URL, each once; give the others no place"
        )
    for place in places:
        if place not in fields or not fields[place].is_required():
            raise InvalidTool(name, f"{{{place}}} in its URL is no required parameter")


def _options(method: str, url: str, args: BaseModel) -> dict[str, Any]:
    given = args.model_dump(mode="json", by_alias=True, exclude_none=True)
    names = {place: _wire_name(args, place) for place in _PLACE.findall(url)}
    places = {place: _segment(given.pop(name, "")) for place, name in names.items()}
    options: dict[str, Any] = {"url": _PLACE.sub(lambda found: places[found[1]], url)}
    if given or method not in _IN_QUERY:
        options["params" if method in _IN_QUERY else "json"] = given
    return options


def _wire_name(args: BaseModel, name: str) -> str:
    field = type(args).model_fields[name]
    return field.serialization_alias or field.alias or name


def _segment(value: Any) -> str:
    """A value as one segment of a path, whatever is in it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text in ("", ".", ".."):
        raise ValueError("a part of the address cannot be empty, . or ..")
    return quote(text, safe="")


# What the model is told.


def _answered(response: httpx2.Response) -> ToolResult:
    text = response.text
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}\n[{len(text) - MOST_CHARACTERS} more characters were cut off]"
    details = {"http_status": response.status_code}
    if response.is_success:
        return ToolResult(text or f"Done (HTTP {response.status_code}).", details)
    return ToolResult(
        f"The service answered with HTTP {response.status_code}: {text}", details, is_error=True
    )


def _decided(outcome: ReviewOutcome) -> ToolResult:
    """What a person decided, or that nobody did. Sensitive values are not for a model, nor for a transcript."""
    data = {name: REDACTED if name in outcome.sensitive else value for name, value in outcome.data.items()}
    by = outcome.responded_by
    hitl: JsonObject = {"case_id": outcome.case_id, "status": outcome.status, "action": outcome.action}
    if by is not None:
        hitl["by"] = by.email or by.name
    said: dict[str, Any] = {"outcome": _sentence(outcome), "action": outcome.action}
    if outcome.status == "completed":
        said["data"] = data
    return ToolResult(said, {"hitl": hitl}, is_error=_is_refusal(outcome))


def _sentence(outcome: ReviewOutcome) -> str:
    if outcome.cancelled:
        why = f": {outcome.reason}" if outcome.reason else ""
        return f"The service took its question back{why}. Nobody decided; do not go on as if they had."
    if outcome.expired:
        return f"Nobody decided in time. The service's default holds: {outcome.action}."
    if outcome.action in _REFUSALS:
        return f"A person refused ({outcome.action}). Do not try to get it done another way."
    return f"A person decided: {outcome.action}."


def _is_refusal(outcome: ReviewOutcome) -> bool:
    """Whether what was asked for is not to be. Of those that expired, only a declared approve is a yes."""
    if outcome.status == "completed":
        return outcome.action in _REFUSALS
    return outcome.action != "approve"


def _not_sent(error: httpx2.HTTPError, effect: Effect) -> ToolResult:
    what = f"The service could not be reached ({type(error).__name__})."
    never = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    return ToolResult(what if never or effect != "once" else f"{what} {_UNKNOWN}", is_error=True)
