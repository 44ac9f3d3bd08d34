"""One life of an agent of Microsoft Agent Framework: ``python lives_agent_framework.py VERB``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)
from kit.framework_races import answer, at_the_line, go_on, say, write_effect

from askfirst import Gate
from askfirst.adapters import kept_state
from askfirst.adapters.agent_framework import AskfirstMiddleware, Ended, agent_framework_resumer, run
from askfirst.checkpointer.connect import checkpointer_from_url

NAME = "Microsoft Agent Framework"
KEY = "order-7"
OURS = os.environ.get("LIFE_SIDE", "ours") == "ours"


class ScriptedClient(FunctionInvocationLayer, BaseChatClient):
    """Calls the tool once for each price, then says what came of it."""

    def __init__(self, prices: list[int], tool_name: str = "charge") -> None:
        super().__init__()
        self.prices, self.tool_name = prices, tool_name

    async def _respond(self, messages: Sequence[Message]) -> ChatResponse[Any]:
        results: list[Any] = []
        for message in messages:
            found = [it for it in message.contents if it.type == "function_result"]
            results = [*results, *found] if found else []
        contents: list[Any] = [" / ".join(str(it.result) for it in results)]
        if not results:
            contents = [
                Content.from_function_call(
                    call_id=f"call_{number}", name=self.tool_name, arguments=json.dumps({"cents": cents})
                )
                for number, cents in enumerate(self.prices, 1)
            ]
        return ChatResponse(messages=[Message(role="assistant", contents=contents)])

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Awaitable[ChatResponse[Any]]:
        return self._respond(messages)


def charge(cents: int) -> str:
    """Charge a card."""
    write_effect(str(cents), cents)
    return f"charged {cents}"


def make_agent(gate: Gate | None) -> Agent[Any]:
    prices = [5, 6][: int(os.environ.get("LIFE_CALLS", "1"))]
    mode: Any = "always_require" if gate is None else "never_require"
    return Agent(
        client=ScriptedClient(prices),
        tools=[tool(charge, approval_mode=mode)],
        middleware=[] if gate is None else [AskfirstMiddleware(gate)],
    )


async def approve(agent: Agent[Any], session: AgentSession, requests: list[Any]) -> Any:
    """Approve what a session waits for, as the framework's documentation has it."""
    asked = requests[:1] if os.environ.get("LIFE_ONLY") else requests
    at_the_line()
    yes = Message(role="user", contents=[it.to_function_approval_response(True) for it in asked])
    return await agent.run([yes], session=session)


def altered(text: str) -> str:
    """The arguments changed wherever the session has them."""
    changed = text.replace('"cents": 5', '"cents": 9999').replace('\\"cents\\": 5', '\\"cents\\": 9999')
    assert changed != text
    return changed


class Own:
    """The session in a file, as an application without the gate keeps it."""

    path = Path(os.environ.get("LIFE_FOLDER", ".")) / "session.json"
    first = path.with_suffix(".first.json")

    def save(self, session: AgentSession, response: Any) -> None:
        requests = [it.to_dict() for it in response.user_input_requests]
        text = json.dumps({"session": session.to_dict(), "requests": requests})
        self.path.write_text(text)
        if not self.first.exists():
            self.first.write_text(text)

    def load(self) -> tuple[AgentSession, list[Any]]:
        """As it was paused at first, for an answer that comes again."""
        kept = json.loads((self.first if os.environ.get("LIFE_AGAIN") else self.path).read_text())
        return AgentSession.from_dict(kept["session"]), [Content.from_dict(it) for it in kept["requests"]]


async def native(verb: str) -> None:
    own = Own()
    if verb == "alter":
        own.path.write_text(altered(own.path.read_text()))
        return
    agent = make_agent(None)
    if verb == "ask":
        session, response = AgentSession(session_id=KEY), None
        response = await agent.run("Charge it.", session=session)
    else:
        session, requests = own.load()
        response = await approve(agent, session, requests)
    own.save(session, response)
    say(paused=bool(response.user_input_requests), text=response.text)


async def ours(verb: str) -> None:
    async with checkpointer_from_url(os.environ["LIFE_STORE"], lease_seconds=1) as store, Gate(store) as gate:
        agent = make_agent(gate)
        known = await kept_state.load(store, "agent-framework", KEY)
        if verb == "alter":
            assert known.state is not None
            assert await kept_state.keep(store, known, json.loads(altered(json.dumps(known.state))))
            return
        last: Any = None
        if verb == "ask":
            last = await run(agent, "Charge it.", gate=gate, key=KEY)
        elif verb == "early":
            state: Any = dict(known.state or {})
            requests = [Content.from_dict(it) for it in state.pop("askfirst")["requests"]]
            last = await approve(agent, AgentSession.from_dict(state), requests)
        else:
            if verb == "press":
                await answer(gate)
            resume = agent_framework_resumer(agent)

            async def resumer(continuation: Any) -> None:
                nonlocal last
                last = await resume(continuation)

            await go_on(store, {"agent-framework": resumer})
        last = last or Ended("")
        say(paused=bool(last.user_input_requests), text=last.text)


if __name__ == "__main__":
    asyncio.run((ours if OURS else native)(sys.argv[1]))
