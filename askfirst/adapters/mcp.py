"""The gate in your own MCP servers and clients.

`input_required` is for a tool of an `MCPServer` or a FastMCP server: it asks at the gate before a function runs.
`elicitation` is a client's callback: people answer what servers ask, on the gate's pages and in its messengers.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (the SDK is installed in the environment of this adapter's tests only)

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from askfirst.adapters.framework import needs
from askfirst.adapters.mcp_approvals import Approvals, key_of
from askfirst.digests import canonical_json
from askfirst.errors import Denied, HitlCancelled, HitlError, HitlTimedOut, Pending
from askfirst.gate.gate import Gate
from askfirst.ids import new_id
from askfirst.messages import JsonObject

with needs("mcp"):
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import ElicitRequest, ElicitRequestURLParams, ElicitResult, InputRequiredResult

_INPUT = "askfirst"


async def input_required(
    gate: Gate,
    context: Any,
    function: Callable[..., Any],
    args: Mapping[str, Any],
    *,
    requester: str = "*",
    wait: float = 0.0,
    **shown: Any,
) -> Any:
    """Run a function for a tool of your own MCP server, once a person has approved the call: ``return await
    input_required(gate, ctx, pay, {"cents": cents})``.

    ``context`` is the tool's `Context`. While a person decides, and if the client can open links, this returns an
    `InputRequiredResult` with the link, for the tool to return. For other clients it raises `ToolError`, which says
    that the call waits; the same call later picks the decision up. A denial raises `ToolError` too. ``requester`` is
    who calls, if the server knows; ``wait`` is how many seconds to wait in place first; ``shown`` are options of
    `Gate.guarded`.
    """
    name = gate.guard(function, shown).tool.name
    given = canonical_json({"requester": requester, "tool": name, "args": dict(args)})
    base = f"tool:{hashlib.sha256(given).hexdigest()}"
    state = context.request_state
    ordinal, is_first = await _ordinal(gate, base, state)
    outcome = await gate.call(function, args, key=key_of(base, ordinal), wait=wait, **shown)
    if isinstance(outcome, Denied):
        raise ToolError(f"{name} was not run: {outcome.reason}.")
    if not isinstance(outcome, Pending):
        return outcome.result
    if is_first and outcome.link is not None and _opens_links(context):
        message = f"{name} needs your approval. Open the page, look at the call and decide there."
        asked = ElicitRequest(params=ElicitRequestURLParams(message=message, url=outcome.link))
        return InputRequiredResult(input_requests={_INPUT: asked}, request_state=f"{_INPUT}:{base}:{ordinal}")
    where = f"at {outcome.link}" if outcome.link is not None else f"in the case {outcome.case}"
    raise ToolError(
        f"{name} has not run yet: a person has to approve it first, {where}. Call it again with the same arguments "
        "later: it runs once it is approved."
    )


async def _ordinal(gate: Gate, base: str, state: Any) -> tuple[int, bool]:
    """The ordinal of this call among equal calls, and whether the client has not been sent the link yet.

    The SDK's server protects the request state against changes, so the ordinal in it can be trusted.
    """
    own = f"{_INPUT}:{base}:"
    if isinstance(state, str) and state.startswith(own):
        return int(state.removeprefix(own)), False
    return await Approvals(gate).first(base), True


def _opens_links(context: Any) -> bool:
    able = context.request_context.session.client_capabilities
    return able is not None and able.elicitation is not None and able.elicitation.url is not None


def elicitation(
    gate: Gate, *, to: str | None = None, timeout: float | str | None = None
) -> Callable[..., Awaitable[Any]]:
    """A client's callback, so that people answer what MCP servers ask: ``Client(server, elicitation_callback=
    elicitation(gate))``; with FastMCP's client ``elicitation_handler=``.

    A form becomes questions of the gate, checked against the form's schema. A URL is shown to a person, who says
    whether they have opened it. If nobody answers in time, or the request is cancelled, the result is ``cancel``.
    """

    async def answer(*given: Any) -> Any:
        params = given[1] if len(given) == 2 else given[2]  # FastMCP passes the message and a type first
        try:
            if params.mode == "url":
                question = f"{params.message}\n\nA server asks you to open this address: {params.url}"
                opened = await gate.confirm(question, key=f"mcp:elicit:{new_id()}", to=to, timeout=timeout)
                return ElicitResult(action="accept" if opened else "decline")
            model = _model(cast(JsonObject, params.requested_schema))
            said = await gate.ask(model, params.message, key=f"mcp:elicit:{new_id()}", to=to, timeout=timeout)
        except (HitlCancelled, HitlTimedOut):
            return ElicitResult(action="cancel")
        content = said.model_dump(mode="json", exclude_none=True, by_alias=True)
        return ElicitResult(action="accept", content=content)

    return answer


_KINDS: Mapping[str, Any] = {"string": str, "number": float, "integer": int, "boolean": bool}


def _model(schema: JsonObject) -> type[BaseModel]:
    """A pydantic model for the flat JSON Schema of an MCP form."""
    properties = cast("Mapping[str, JsonObject]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or [])
    fields: dict[str, Any] = {}
    for number, (name, field) in enumerate(properties.items()):
        kind = _kind(name, field)
        default = field.get("default")
        if name not in required:
            kind = kind | None
        words: dict[str, Any] = {
            "alias": name,
            "title": field.get("title") or name,
            "description": field.get("description"),
        }
        words |= {ours: field[theirs] for theirs, ours in _LIMITS.items() if theirs in field}
        is_open = default is None and name in required
        fields[f"field_{number}"] = (kind, Field(**words) if is_open else Field(default, **words))
    return create_model("Elicited", __config__=ConfigDict(populate_by_name=True), **fields)


_LIMITS = {
    "minimum": "ge",
    "maximum": "le",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
}


def _kind(name: str, field: JsonObject) -> Any:
    items = cast(JsonObject, field.get("items") or {})
    if field.get("type") == "array":
        return list[_choice(items) or str]
    kind = _choice(field) or _KINDS.get(str(field.get("type")))
    if kind is None:
        raise HitlError(f"the server asks for {name!r} as {field.get('type')!r}, which a form cannot have")
    return kind


def _choice(field: JsonObject) -> Any:
    """The allowed values of a field as a ``Literal`` type; None if the field is not a choice."""
    titled = cast("list[JsonObject]", field.get("oneOf") or field.get("anyOf") or [])
    values = [*cast("list[Any]", field.get("enum") or []), *(it["const"] for it in titled if "const" in it)]
    return Literal[tuple(values)] if values else None
