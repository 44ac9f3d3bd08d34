"""A support agent in Slack: a policy that asks, chat tools behind the gate, and threads that survive a restart.

    python examples/slack_bot.py --local            a simulated workspace on this machine: no account needed
    python examples/slack_bot.py --local --auto     the same, with a simulated person
    python examples/slack_bot.py                    your workspace: SLACK_BOT_TOKEN, SLACK_APP_TOKEN, SLACK_PEOPLE

SLACK_PEOPLE has the people who may talk to the agent and decide: "T024BE7LD:U2147483697=Ada, T024BE7LD:U1234=Ben".

It needs the extras ``delivery``, ``service``, ``slack`` and ``sqlite``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from local_slack import ADA, APP_TOKEN, BOT_TOKEN, CHANNEL, TEAM, LocalSlack, People, local_slack

from askfirst import AgentSpec, tool
from askfirst.chat import ChatToolset, Conversation, SlackChat, serve_channels
from askfirst.messages import Message, ToolCall
from askfirst.models import ScriptedModel
from askfirst.permissions import StaticPermissionPolicy

POLICY = StaticPermissionPolicy(
    [{"id": "orders", "scope": {"tool": "cancel_order"}, "effect": "require_approval"}],
    {"allowed": True, "requires_approval": False},
)


@tool
def cancel_order(order: str) -> str:
    """Cancel an order."""
    print(f"(cancel_order runs: {order})", flush=True)
    return f"{order} is cancelled."


def say(messages: Sequence[Message]) -> str | list[str | ToolCall]:
    """The scripted model's next turn. For a real model, name it: ``AgentSpec("support", "anthropic:…", tools)``."""
    last, call_id = messages[-1], f"call_{len(messages)}"
    if last.role == "user":
        return ["I will see to it.", ToolCall(call_id, "cancel_order", {"order": "A-1042"})]
    if last.role == "tool" and last.tool_name == "cancel_order" and not last.is_error:
        return [ToolCall(call_id, "post_message", {"text": f"For the record: {last.text}"})]
    return "That is all."


def support(conversation: Conversation) -> AgentSpec:
    """The agent of a conversation."""
    tools = [cancel_order, *ChatToolset(conversation, require_approval=True).tools]
    return AgentSpec("support", ScriptedModel([say] * 50), tools, policy=POLICY)


def variables(*names: str) -> list[str]:
    """The values of environment variables; without one of them the program ends with a sentence."""
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        sys.exit(f"set {', '.join(missing)}; or try it without an account: python {sys.argv[0]} --local")
    return [os.environ[name] for name in names]


def people_in(text: str) -> dict[str, str]:
    """The people of a text such as ``1001=Ada, 1002=Ben``, by account."""
    pairs = [each.strip().partition("=") for each in text.split(",")]
    if not all(account and name for account, _, name in pairs):
        sys.exit(f"the people are pairs of an account and a name, such as 1001=Ada, 1002=Ben; not {text!r}")
    return {account: name for account, _, name in pairs}


async def serve() -> None:
    """Serve the workspace that the environment names. Any number of these may run on one database."""
    bot_token, app_token, people = variables("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_PEOPLE")
    chat = SlackChat(
        bot_token,
        app_token=app_token,
        people=people_in(people),
        base_url=os.environ.get("SLACK_API", "https://slack.com/api/"),
    )
    store = os.environ.get("DATABASE", "sqlite:///slack_bot.db")
    await serve_channels({"support": support}, store=store, slack=chat).run()


# A workspace on this machine.


@asynccontextmanager
async def program(path: str, **variables: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a program in another process, with these environment variables; it is killed at the end."""
    environment = {**os.environ, **variables}
    process = await asyncio.create_subprocess_exec(sys.executable, path, env=environment)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def worker(slack: LocalSlack) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run this program in another process, and wait until it is connected to the workspace on this machine."""
    variables = {
        "SLACK_API": slack.url,
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_APP_TOKEN": APP_TOKEN,
        "SLACK_PEOPLE": f"{TEAM}:{ADA.id}=Ada",
    }
    before = slack.connections
    async with program(__file__, **variables) as process:
        await slack.until(lambda: slack.connections > before)
        yield process


def posted(slack: LocalSlack, thread: str) -> list[str]:
    """The texts that the app has posted into a thread."""
    return [slack.text(CHANNEL, each["ts"]) for each in slack.in_channel(CHANNEL, thread) if "bot_id" in each]


def open_card(slack: LocalSlack, people: People, thread: str) -> str | None:
    """The last message with buttons, if there is one."""
    found = [each["ts"] for each in slack.in_channel(CHANNEL, thread) if people.buttons(CHANNEL, each["ts"])]
    return found[-1] if found else None


async def play() -> None:
    """The whole story: a message, a card, kill -9, a press, another worker that resumes, and the tool runs once."""
    async with local_slack(ack_seconds=60, trigger_seconds=60) as slack:
        people = People(slack)
        async with worker(slack) as first:
            print("Ada: @askfirst cancel my order A-1042")
            thread = await people.say(CHANNEL, "cancel my order A-1042")
            await slack.until(lambda: open_card(slack, people, thread))
            print("the agent asks:", people.buttons(CHANNEL, open_card(slack, people, thread) or ""))
            first.kill()
            print("kill -9")
        async with worker(slack):
            for _ in range(2):
                await slack.until(lambda: open_card(slack, people, thread))
                print("Ada presses Approve, on another worker")
                await people.press(CHANNEL, open_card(slack, people, thread) or "", "Approve")
            await slack.until(lambda: "That is all." in posted(slack, thread))
            await slack.until(lambda: sum("It ran" in each for each in posted(slack, thread)) == 2)
        for text in posted(slack, thread):
            print("|", text.splitlines()[-1])
        ran = [each for each in posted(slack, thread) if each == "For the record: A-1042 is cancelled."]
        print("success" if len(ran) == 1 else "failure")
        if len(ran) != 1:
            sys.exit(1)


async def talk() -> None:
    """Talk to the agent from this terminal: a line is a message; the label of a button presses it."""
    async with local_slack(ack_seconds=60, trigger_seconds=60) as slack, worker(slack):
        people, thread, shown = People(slack), "", dict[str, str]()
        print(
            'Write to the agent, such as "cancel my order"; press a button by its label; an empty line ends.'
        )
        while line := (await asyncio.to_thread(input, "you > ")).strip():
            card = open_card(slack, people, thread) if thread else None
            if card is not None and line in people.buttons(CHANNEL, card):
                await people.press(CHANNEL, card, line)
            else:
                ts = await people.say(CHANNEL, line, thread_ts=thread or None)
                thread = thread or ts
            with suppress(TimeoutError):
                await slack.until(lambda: False, 3)
            for each in slack.in_channel(CHANNEL, thread):
                text = slack.text(CHANNEL, each["ts"])
                if "bot_id" in each and shown.get(each["ts"]) != text:
                    shown[each["ts"]] = text
                    print("bot |", text.replace("\n", "\n    | "), people.buttons(CHANNEL, each["ts"]) or "")


if __name__ == "__main__":
    local, auto = "--local" in sys.argv, "--auto" in sys.argv
    with suppress(KeyboardInterrupt):
        asyncio.run(play() if local and auto else talk() if local else serve())
