"""An HTTP API as an agent's tool; threads whose tools waited for a review are resumed when it ends."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import BaseModel

from askfirst.agent.agent import Agent
from askfirst.agent.context import current
from askfirst.agent.result import AgentResult
from askfirst.agent.thread import has_failed, is_finished, unresolved_calls
from askfirst.agent.tools import Effect, Tool, ToolContext, ToolResult
from askfirst.client.client import HitlClient
from askfirst.client.durable import KeptWait
from askfirst.client.outcome import ReviewOutcome
from askfirst.errors import (
    HitlDetached,
    InvalidTool,
    RequestInDoubt,
    ResponseTooLarge,
    ReviewError,
    StoreError,
)
from askfirst.messages import JsonObject
from askfirst.protocol import REDACTED

MOST_CHARACTERS = 100_000
"""The longest answer that the model is given."""
MOST_BYTES = 10_000_000
"""The largest answer that is read at all."""
_EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS"), "none"),
    **dict.fromkeys(("PUT", "DELETE"), "idempotent"),
}
_IN_QUERY = ("GET", "HEAD", "OPTIONS", "DELETE")
_PLACE = re.compile(r"\{(\w+)\}")
_REFUSALS = ("reject", "cancel", "abort")
_UNKNOWN = "Whether this took effect is unknown. Check before trying again."


class NoParameters(BaseModel):
    """The parameters of a tool without parameters."""


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
    `askfirst.client.http_tool.resume_when_decided` goes on with it, in any process, and ``agent.resume()`` does so
    too. The request is never sent again. Without both, the tool waits. Credentials belong to the client
    (``auth`` or ``http``): a process that continues the wait needs them as well.
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
    """The response or the outcome; raises `HitlDetached` where the thread can be suspended meanwhile."""
    url, thread_id = options.pop("url"), _stored_thread()
    if thread_id is None or not client.is_durable:
        return await client.request(method, url, **options)
    key = wait_key(ctx)
    if await client.keyed.waits.is_held(key):  # another process works on it
        raise HitlDetached
    answer = await client.begin(method, url, key=key, thread_id=thread_id, **options)
    if answer is None:
        raise HitlDetached
    return answer


def _stored_thread() -> str | None:
    """The stored thread that has to be resumed for this call to go on: the agent's, not a subagent's."""
    session = current.get().session
    if session is None or session.live.checkpointer is None:
        return None
    return session.top.thread_id


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
            raise InvalidTool(name, f"{{{place}}} in its URL is not a required parameter")


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
    """Whether the outcome is a refusal. An expired review is one unless its declared default is approve."""
    if outcome.status == "completed":
        return outcome.action in _REFUSALS
    return outcome.action != "approve"


def _not_sent(error: httpx2.HTTPError, effect: Effect) -> ToolResult:
    what = f"The service could not be reached ({type(error).__name__})."
    never = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    return ToolResult(what if never or effect != "once" else f"{what} {_UNKNOWN}", is_error=True)


# Resuming threads whose tools waited for a review.


logger = logging.getLogger("askfirst.client")

LOOK_SECONDS = 5.0
"""How often the store is searched for waits without a lease."""
_SOON, _LATER = 0.2, 60.0

MakeAgent = Callable[[str], Agent | Awaitable[Agent]]
"""From a thread's id to an agent on it, with the tools and the checkpointer that it had."""


async def resume_when_decided(client: HitlClient, make_agent: MakeAgent) -> AsyncIterator[AgentResult]:
    """Wait for the reviews of `http_tool`, and resume each thread when its review has ended.

    It gives the result of every resumed run, and never ends by itself. Any number of processes may do this on one
    store: one of them holds the lease on a wait, and another takes over if that one dies. The client has a store;
    ``make_agent`` makes the agent of a thread.
    """
    results: asyncio.Queue[AgentResult] = asyncio.Queue()
    resuming = _Resuming(client, make_agent, results)
    looking = asyncio.create_task(resuming.look())
    try:
        while True:
            getting = asyncio.ensure_future(results.get())
            await asyncio.wait({getting, looking}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                looking.result()  # it ends only by an error
            yield getting.result()
    finally:
        looking.cancel()
        await asyncio.wait({looking})


class _Resuming:
    def __init__(
        self, client: HitlClient, make_agent: MakeAgent, results: asyncio.Queue[AgentResult]
    ) -> None:
        self._client = client
        self._waits = client.keyed.waits
        self._make_agent = make_agent
        self._results = results
        self._under_way: set[str] = set()

    async def look(self) -> None:
        """Start work on waits without a lease, again and again."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    async for wait in self._waits.kept():
                        free = not wait.is_held and wait.key not in self._under_way
                        if wait.thread_id is not None and free:
                            self._under_way.add(wait.key)
                            tasks.create_task(self._see_to(wait, wait.thread_id))
                except StoreError as error:
                    logger.warning("the store could not be looked at, will try again: %s", error)
                await asyncio.sleep(LOOK_SECONDS)

    async def _see_to(self, wait: KeptWait, thread_id: str) -> None:
        """Wait for the review, then resume the thread; a failure is retried later."""
        pause = _SOON
        try:
            while not await self._tried(wait, thread_id):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LATER)
        finally:
            self._under_way.discard(wait.key)

    async def _tried(self, wait: KeptWait, thread_id: str) -> bool:
        """Whether there is nothing left to do."""
        try:
            ended = await self._client.resume_wait(wait.key)
            found = await self._waits.find(wait.key)
            if isinstance(ended, ReviewError) and found is not None and found.status == "waiting":
                logger.warning("a review cannot be waited for just now: %s", ended)
                return False
            gone_on, result = await self._resumed(wait, thread_id)
            if not gone_on:
                return False
            await self._waits.leave(wait.key)
            if result is not None:
                self._results.put_nowait(result)
            return True
        except Exception as error:
            logger.warning(
                "thread %s could not be resumed, will try again: %s", thread_id, type(error).__name__
            )
            return False

    async def _resumed(self, wait: KeptWait, thread_id: str) -> tuple[bool, AgentResult | None]:
        """Whether the thread has gone on past its wait, and the run in which it just did."""
        made = self._make_agent(thread_id)
        agent = await made if inspect.isawaitable(made) else made
        messages = await agent.load()
        if is_finished(messages) or has_failed(messages):
            return True, None
        await self._waits.unread(wait.key)
        result = await agent.resume()
        return result.status != "suspended" or await self._is_past(wait, result), result

    async def _is_past(self, wait: KeptWait, result: AgentResult) -> bool:
        """Whether a run that was suspended waits for something else now.

        If not, another worker holds the thread's lease.
        """
        own, _, call_id = wait.key.rpartition("/")
        if own == wait.thread_id:
            open_calls = [call.id for call in unresolved_calls(result.messages)]
            return bool(open_calls) and call_id not in open_calls
        found = await self._waits.find(wait.key)  # a subagent's call, which is on a thread of its own
        return found is not None and found.is_read
